"""What is remembered of late, and no more than so much: for whoever lives long and meets many jobs."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")
MOST = 1000


class BoundedDict(dict[K, V]):
    """A dictionary that lets the oldest go when there is no room; what is set again counts as new."""

    def __init__(self, most: int = MOST) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        for oldest in list(self)[: len(self) - self._most] if len(self) > self._most else ():
            self.pop(oldest, None)  # another thread may have been quicker
