"""Parse shell text."""
