"""Labels and annotations of our objects: well-known names, identity, notes."""
