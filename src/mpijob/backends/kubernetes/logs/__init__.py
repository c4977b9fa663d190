"""Pod logs: read, follow, and after the pods are gone."""
