"""Limits of each user: requests per second, open streams, and operations that wait for a job."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from mpijob.api.errors import Refused

# For requests without a document.
BODY_BYTES = 64 << 10
# For a job: the limit of a Kubernetes API server.
DOCUMENT_BYTES = 1536 << 10
# For manifests and scripts to convert.
SCRIPT_BYTES = 512 << 10
# For each document. After the second limits, in seconds of CPU and of time, a document counts as slow, and
# only PARSES_SLOW of those continue.
PARSE_SECONDS = 5.0
PARSE_SOON_CPU_SECONDS, PARSE_SOON_SECONDS = 0.2, 1.5
# For the parsed document.
PARSED_BYTES = 16 << 20
PARSES_AT_ONCE, PARSES_SLOW, PARSES_WAITING = 4, 2, 48
# Documents of one user in the queue; one of them is parsed at a time.
PARSES_OF_USER = 8
RETRY_SECONDS = 2
BODY_SECONDS = 20.0
# A client that reads nothing for longer is disconnected.
SEND_SECONDS = 30.0
STREAMS = 100
ACTS, ACTS_AT_ONCE = 100, 8
BURST, PER_SECOND = 200.0, 50.0
_MOST_USERS = 5000


@contextmanager
def counted(held: Counter[str], user: str) -> Iterator[None]:
    """Count one more item of a user while the context is open."""
    held[user] += 1
    try:
        yield
    finally:
        held[user] -= 1
        if not held[user]:
            del held[user]


class _Acts:
    """Operations of one user: those that have begun, and the semaphore for those that run."""

    def __init__(self) -> None:
        self.begun, self.turns = 0, asyncio.Semaphore(ACTS_AT_ONCE)


class Limits:
    """Request bucket, stream count and operations of each user."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._buckets: dict[str, tuple[float, float]] = {}
        self._streams: Counter[str] = Counter()
        self._acts: dict[str, _Acts] = {}

    def count(self, user: str) -> None:
        """Take one request from the user's bucket (a token bucket); raise Refused when it is empty."""
        level, at = self._buckets.get(user, (BURST, self._now()))
        now = self._now()
        level = min(BURST, level + (now - at) * PER_SECOND)
        if level < 1:
            raise Refused(
                429,
                f"rate limit exceeded: more than {PER_SECOND:g} requests per second",
                "wait a moment",
                "USAGE",
            )
        self._buckets[user] = (level - 1, now)
        if len(self._buckets) > _MOST_USERS:
            self._forget_idle(now)

    def _forget_idle(self, now: float) -> None:
        """Drop the full buckets: a new one is the same."""
        full = BURST / PER_SECOND
        self._buckets = {user: one for user, one in self._buckets.items() if now - one[1] < full}

    def check_stream(self, user: str) -> None:
        """Raise Refused when the user has too many streams; called before the response begins, when its
        status can still be set.
        """
        held = self._streams[user]
        if held >= STREAMS:
            raise Refused(429, f"{held} open streams: limit reached", "close some pages", "USAGE")

    @contextmanager
    def stream(self, user: str) -> Iterator[None]:
        self.check_stream(user)
        with counted(self._streams, user):
            yield

    @asynccontextmanager
    async def act(self, user: str) -> AsyncIterator[None]:
        """Hold one of the user's slots for operations, waiting for it; raise Refused when too many wait."""
        own = self._acts.setdefault(user, _Acts())
        if own.begun >= ACTS:
            raise Refused(
                429,
                f"{own.begun} of your operations are pending: limit reached",
                "wait until some of them finish",
                "USAGE",
            )
        own.begun += 1
        try:
            async with own.turns:
                yield
        finally:
            own.begun -= 1
            if not own.begun:
                del self._acts[user]
