"""The names and arguments of the Kubeflow SDK."""
