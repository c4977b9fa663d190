"""Runs jobs on Kubernetes: Kubeflow Trainer, the MPI Operator, JobSet and Kueue, all unmodified."""
