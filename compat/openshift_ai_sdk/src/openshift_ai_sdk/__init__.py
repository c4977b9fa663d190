"""An import path that notebooks know; all work is done by `mpijob`."""
