"""Read the status of Kubernetes objects."""
