"""Resource usage from metrics.k8s.io and Prometheus."""
