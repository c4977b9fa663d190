"""What a client read of a cluster a moment ago, and uses for its next job, too: things that change seldom.

Names, pods, and what is used of a quota are read for every job. A refusal is never founded on what is kept
here: the client asks once more for the job that it is about to refuse, and is told everything anew.
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
    """Answers that are still young, by namespace and question; refusals are not among them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[tuple[str, str], tuple[float, ReadResult]] = {}

    def recall(self, namespace: str, questions: Iterable[str]) -> ReadResults:
        """Return the answers to those of the questions that were answered a moment ago."""
        now, found = self._clock(), ReadResults()
        for question in LASTING.intersection(questions):
            when, answer = self._kept.get((namespace, question), (float("-inf"), None))
            if answer is not None and now - when < KEPT_SECONDS:
                found[question] = answer
        return found

    def keep(self, namespace: str, answers: Mapping[str, ReadResult], *, since: float) -> None:
        """Keep what was answered to questions asked then."""
        for question in LASTING.intersection(answers):
            if answers[question].error is None:
                self._kept[namespace, question] = since, answers[question]

    def forget(self, namespace: str) -> None:
        """Forget what was answered about a namespace."""
        for question in LASTING:
            self._kept.pop((namespace, question), None)

    def now(self) -> float:
        """Return the time as it is counted here."""
        return self._clock()
