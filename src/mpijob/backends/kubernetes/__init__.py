"""Jobs on a cluster: Kubeflow Trainer, the MPI Operator, JobSet and Kueue, used as they are."""
