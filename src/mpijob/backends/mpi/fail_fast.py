"""What every engine puts first on its ranks' Python path: `sitecustomize`, so that one rank's failure ends them all."""

from __future__ import annotations

import functools
import os

DIRECTORY = os.path.join(os.path.dirname(os.path.dirname(__file__)), "python")


@functools.cache
def text() -> str:
    """Return the text of `sitecustomize`, for ranks that run where this package is not installed."""
    with open(os.path.join(DIRECTORY, "sitecustomize.py"), encoding="utf-8") as file:
        return file.read()
