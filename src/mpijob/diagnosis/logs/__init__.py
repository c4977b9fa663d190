"""Read and search log text for rules."""
