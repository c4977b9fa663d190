"""The in-cluster services: custom resources, the operator that reconciles the platform, the admission webhook."""
