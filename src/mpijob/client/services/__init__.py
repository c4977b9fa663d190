"""Entry points of the long-running services."""
