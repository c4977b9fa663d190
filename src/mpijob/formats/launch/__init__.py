"""Launch commands and the scripts that run in pods."""
