"""What each route of the REST API does."""
