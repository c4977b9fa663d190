"""Parse user documents in a separate, bounded process."""
