"""The directory that every engine puts first on its ranks' Python path, so that one failed rank ends all.

What happens in a rank is in `backends/python/sitecustomize`.
"""

from __future__ import annotations

import functools
import os

DIRECTORY = os.path.join(os.path.dirname(os.path.dirname(__file__)), "python")


@functools.cache
def text() -> str:
    """Return the text of `sitecustomize.py`, for containers in which this package is not installed."""
    with open(os.path.join(DIRECTORY, "sitecustomize.py"), encoding="utf-8") as file:
        return file.read()
