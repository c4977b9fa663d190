"""Headers of batch scripts: #SBATCH, #PBS and #BSUB."""
