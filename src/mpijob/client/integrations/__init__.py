"""Prometheus, OTLP, MLflow, W&B, TensorBoard, webhooks, S3, model registry."""
