"""Convert scripts, manifests and whole clusters."""

from mpijob.client.convert.convert_jobs import convert

__all__ = ["convert"]
