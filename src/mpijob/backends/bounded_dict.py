"""A dictionary of bounded size, for caches of processes that live long and meet many jobs."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")
MAX_ENTRIES = 1000


class BoundedDict(dict[K, V]):
    """Evicts the entry that was set longest ago; an entry that is set again counts as new."""

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        super().__init__()
        self._max_entries = max_entries

    def __setitem__(self, key: K, value: V) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        for oldest in list(self)[: len(self) - self._max_entries] if len(self) > self._max_entries else ():
            # Another thread may have evicted it already.
            self.pop(oldest, None)
