"""Kubeconfig, credentials, impersonation and delegated access."""
