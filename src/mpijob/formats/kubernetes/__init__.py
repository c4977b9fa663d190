"""Kubernetes objects of a job: writers and readers."""
