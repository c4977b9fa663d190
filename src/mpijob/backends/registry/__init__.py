"""Container images read from a registry or a file: no container engine is needed, and nothing is unpacked."""
