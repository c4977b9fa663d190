"""A whole day of a cluster's events in fast motion, and how the memory of our services grows by it."""
