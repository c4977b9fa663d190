"""Merge sorted runs in windows: read a little of each, sort what is certain at once, go on.

Taking the smallest line of a hundred, one at a time, costs more than the lines themselves. Here blocks of every
run are put behind each other and sorted as a whole: Python's sort finds the runs and merges them in C. What
is behind the earliest of the blocks' ends waits for the next window. A key that is smaller than the one before
it in its own run (a clock that went back) takes the place of that one: a run's order is never changed.

Here are only keys and items; `live_merge` and `bulk_merge` say what they are.
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
Block = tuple[list[K], list[T]]  # keys and items, one for each


class _Run(Generic[K, T]):
    """One run: what of it was read and not yet given away."""

    def __init__(self, blocks: Iterator[Block[K, T]]) -> None:
        self._blocks = blocks
        self._enough = 0
        self._last: list[K] = []  # the key that was read last, if any
        self.strict = True  # whether no key came twice so far
        self.keys: list[K] = []
        self.items: list[T] = []
        self.ended = False

    def fill(self) -> None:
        """Read on until at least half a block is there: a window ends where the shortest run does."""
        while not self.ended and len(self.keys) <= self._enough:
            block = next(self._blocks, None)
            if block is None:
                self.ended = True
                return
            keys, items = block
            self._enough = len(keys) // 2
            if not _follow(lt, keys, self._last):
                self.strict = False
                keys = _never_back(keys, self._last)
            self.keys += keys
            self.items += items
            self._last = self.keys[-1:]

    def give(self, count: int, keys: list[K], items: list[T]) -> None:
        """Move the first of what was read behind the given ones."""
        keys += self.keys[:count]
        items += self.items[:count]
        del self.keys[:count], self.items[:count]


def _follow(order: Callable[[K, K], bool], keys: list[K], before: Sequence[K]) -> bool:
    """Whether each key stands in this order to the next, the one before them included."""
    return all(map(order, keys, islice(keys, 1, None))) and (not before or order(before[0], keys[0]))


def _never_back(keys: list[K], before: Sequence[K]) -> list[K]:
    return keys if _follow(le, keys, before) else [*accumulate([*before, *keys], max)][len(before) :]


def merged(sources: Sequence[Iterator[Block[K, T]]], *, led: bool = False) -> Iterator[list[T]]:
    """Yield windows of items, in the order of their keys; items of one source stay in their order.

    `led` says that every item begins with its key: as long as no source has a key twice, items can then be compared
    themselves, which is faster.
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
            run.give(count, keys, items)
        if led and all(run.strict for run in runs):
            items.sort()
        else:
            items.sort(key=partial(next, iter(keys)))  # each item's key, in turn, without a call into Python
        yield items
