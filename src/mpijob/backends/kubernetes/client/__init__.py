"""REST client of the API server: transport, verbs, watch, errors."""
