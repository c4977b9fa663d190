"""Convert scripts, manifests and whole clusters."""
