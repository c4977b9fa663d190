"""Mask secrets in log streams, values and support bundles."""
