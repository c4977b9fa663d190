"""`python -m mpijob.api FD`: serve with the options that are read from a file descriptor (see `server`)."""

from __future__ import annotations

import os
import sys

from mpijob import codec
from mpijob.api.server import Options, serve


def main() -> None:
    with os.fdopen(int(sys.argv[1]), "rb") as handed:
        options = codec.decode(handed.read(), Options)
    serve(options)


if __name__ == "__main__":
    main()
