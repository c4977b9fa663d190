"""TrainJob and MPIJob manifests as jobs."""
