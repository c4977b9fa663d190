"""Order, filter, fold and render log lines."""
