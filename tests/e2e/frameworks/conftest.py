"""The requirement marks, as in `tests`."""
