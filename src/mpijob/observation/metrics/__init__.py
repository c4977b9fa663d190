"""Numbers that jobs report and use."""
