"""Read container images from a registry or a file, without a container engine and without unpacking to disk."""
