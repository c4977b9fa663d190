"""What container images contain."""
