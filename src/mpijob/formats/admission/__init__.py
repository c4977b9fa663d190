"""Read admission requests."""
