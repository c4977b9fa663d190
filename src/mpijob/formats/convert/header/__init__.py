"""Headers of batch scripts: #SBATCH and #PBS."""
