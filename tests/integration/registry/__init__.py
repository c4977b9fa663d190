"""Tests with a real registry server."""
