"""Resource requests, node fit and the choice of the engine."""
