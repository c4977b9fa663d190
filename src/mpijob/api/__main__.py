"""`python -m mpijob.api FD`: serve the page as the options on that file descriptor say (see `serving`)."""

from __future__ import annotations

import os
import sys

from mpijob import shapes
from mpijob.api.serving import Options, serve


def main() -> None:
    """Read the options and serve."""
    with os.fdopen(int(sys.argv[1]), "rb") as handed:
        options = shapes.decode(handed.read(), Options)
    serve(options)


if __name__ == "__main__":
    main()
