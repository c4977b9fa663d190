"""Request and response types of the REST API."""
