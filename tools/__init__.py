"""What the repository needs to keep itself in order; nothing here is installed."""
