"""Causes in the user's own program: how it starts, and how it ends."""
