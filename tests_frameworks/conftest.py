"""The requirement marks, as in `tests`."""

pytest_plugins = ["tools.requirement_marks"]
