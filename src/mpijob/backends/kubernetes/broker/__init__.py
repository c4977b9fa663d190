"""The fit broker: capacity questions for users who may not read nodes."""
