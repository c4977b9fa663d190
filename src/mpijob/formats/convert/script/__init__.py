"""Bodies of batch scripts: steps, launch lines, environment."""
