"""What Slurm reads and says: batch scripts, states, reasons, the text of its commands."""
