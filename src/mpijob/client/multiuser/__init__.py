"""Sessions and projects of many users."""
