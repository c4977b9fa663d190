"""Caches what a client read of a cluster for its next jobs: things that change rarely.

Names, pods and used quota are read for every job. No job is refused because of cached results: the client
reads everything again before it refuses one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from mpijob.backends.kubernetes.client.concurrent import ReadResult, ReadResults

KEPT_SECONDS = 5.0
LASTING = frozenset(
    {
        "rights",
        "namespace",
        "ranges",
        "policies",
        "nodes",
        "queues",
        "classes",
        "drivers",
        "flavors",
        "workload_classes",
    }
)


class PreflightCache:
    """Recent results by namespace and key; failed reads are not cached."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[tuple[str, str], tuple[float, ReadResult]] = {}

    def recall(self, namespace: str, keys: Iterable[str]) -> ReadResults:
        """Return the cached results among these keys."""
        now, found = self._clock(), ReadResults()
        for key in LASTING.intersection(keys):
            when, result = self._kept.get((namespace, key), (float("-inf"), None))
            if result is not None and now - when < KEPT_SECONDS:
                found[key] = result
        return found

    def keep(self, namespace: str, results: Mapping[str, ReadResult], *, since: float) -> None:
        """Cache results; `since` is when they were requested."""
        for key in LASTING.intersection(results):
            if results[key].error is None:
                # The time of the request: the result may be as old as that.
                self._kept[namespace, key] = since, results[key]

    def forget(self, namespace: str) -> None:
        """Drop the results of a namespace."""
        for key in LASTING:
            self._kept.pop((namespace, key), None)

    def now(self) -> float:
        """Return the time of the cache's clock."""
        return self._clock()
