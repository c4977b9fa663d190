"""Text for the terminal: tables, diagnosis, live view."""
