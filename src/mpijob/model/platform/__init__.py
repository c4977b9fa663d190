"""What a cluster or machine offers and allows."""
