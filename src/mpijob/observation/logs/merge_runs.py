"""Merges sorted runs in windows: reads a block of each run and sorts what is certain at once.

Taking the smallest line of a hundred, one at a time, costs more than the lines themselves. Here blocks of all
runs are concatenated and sorted together: Python's sort detects the runs and merges them in C. Items after
the earliest end of the blocks wait for the next window. A key that is smaller than the previous one of its
run (a clock that went back) is replaced by that one, so that the order of a run never changes.

Keys and items are opaque here; `live_merge` and `bulk_merge` define them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate, islice
from operator import le, lt
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Any)
T = TypeVar("T")
# Keys and items, of the same length.
Block = tuple[list[K], list[T]]


class _Run(Generic[K, T]):
    """One run: the part that was read and not yet returned."""

    def __init__(self, blocks: Iterator[Block[K, T]]) -> None:
        self._blocks = blocks
        self._half_block = 0
        # The key that was read last, if any.
        self._last: list[K] = []
        # No key occurred twice so far.
        self.strict = True
        self.keys: list[K] = []
        self.items: list[T] = []
        self.ended = False

    def fill(self) -> None:
        """Read until at least half a block is available: a window ends where the shortest run does."""
        while not self.ended and len(self.keys) <= self._half_block:
            block = next(self._blocks, None)
            if block is None:
                self.ended = True
                return
            keys, items = block
            self._half_block = len(keys) // 2
            if not _is_ordered(lt, keys, self._last):
                self.strict = False
                keys = _monotonic(keys, self._last)
            self.keys += keys
            self.items += items
            self._last = self.keys[-1:]

    def take(self, count: int, keys: list[K], items: list[T]) -> None:
        """Move the first `count` items to the given lists."""
        keys += self.keys[:count]
        items += self.items[:count]
        del self.keys[:count], self.items[:count]


def _is_ordered(order: Callable[[K, K], bool], keys: list[K], before: Sequence[K]) -> bool:
    return all(map(order, keys, islice(keys, 1, None))) and (not before or order(before[0], keys[0]))


def _monotonic(keys: list[K], before: Sequence[K]) -> list[K]:
    return keys if _is_ordered(le, keys, before) else [*accumulate([*before, *keys], max)][len(before) :]


def merged(sources: Sequence[Iterator[Block[K, T]]], *, key_prefixed: bool = False) -> Iterator[list[T]]:
    """Yield windows of items in the order of their keys; items of one source keep their order.

    `key_prefixed` means that each item begins with its key: while no source repeats a key, the items themselves are
    compared, which is faster.
    """
    runs = [_Run(source) for source in sources]
    while True:
        for run in runs:
            run.fill()
        runs = [run for run in runs if run.keys]
        if not runs:
            return
        keys: list[K] = []
        items: list[T] = []
        ends = [run.keys[-1] for run in runs if not run.ended]
        horizon = min(ends, default=None)
        for run in runs:
            count = len(run.keys) if horizon is None else bisect_right(run.keys, horizon)
            run.take(count, keys, items)
        if key_prefixed and all(run.strict for run in runs):
            items.sort()
        else:
            # Returns each item's key in turn, without a call into Python.
            items.sort(key=partial(next, iter(keys)))
        yield items
