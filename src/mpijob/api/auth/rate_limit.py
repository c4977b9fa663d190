"""How much one visitor may ask at once: requests a second, open streams, and acts that wait for a job."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from mpijob.api.errors import Refused

BODY_BYTES = 64 << 10  # of a request that holds no document
DOCUMENT_BYTES = 1536 << 10  # of a job: what an API server takes
SCRIPT_BYTES = 512 << 10  # of what is converted
PARSE_SECONDS = 5.0  # for one document
PARSE_SOON_CPU_SECONDS, PARSE_SOON_SECONDS = 0.2, 1.5  # after which, of a processor or at all, only few go on
PARSED_BYTES = 16 << 20  # of what comes of one
PARSES_AT_ONCE, PARSES_SLOW, PARSES_WAITING = 4, 2, 48
PARSES_OF_USER = 8  # on their way, and as many waiting, of which one is read at a time
RETRY_SECONDS = 2
BODY_SECONDS = 20.0
SEND_SECONDS = 30.0  # a reader who takes nothing for so long is let go
STREAMS = 100
ACTS, ACTS_AT_ONCE = 100, 8
BURST, PER_SECOND = 200.0, 50.0
_MOST_USERS = 5000


@contextmanager
def counted(held: Counter[str], user: str) -> Iterator[None]:
    """Count one more thing that a user holds, as long as it is held."""
    held[user] += 1
    try:
        yield
    finally:
        held[user] -= 1
        if not held[user]:
            del held[user]


class _Acts:
    """How many acts one user has begun, and the turns that they take."""

    def __init__(self) -> None:
        self.begun, self.turns = 0, asyncio.Semaphore(ACTS_AT_ONCE)


class Limits:
    """A bucket of requests, a count of streams and turns to act for each user."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._buckets: dict[str, tuple[float, float]] = {}
        self._streams: Counter[str] = Counter()
        self._acts: dict[str, _Acts] = {}

    def count(self, user: str) -> None:
        """Take one request from the user's bucket; refuse when it is empty."""
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
        """Forget the buckets that are full again."""
        full = BURST / PER_SECOND
        self._buckets = {user: one for user, one in self._buckets.items() if now - one[1] < full}

    def check_stream(self, user: str) -> None:
        """Refuse one stream too many; asked before an answer begins, when it can still be a refusal."""
        held = self._streams[user]
        if held >= STREAMS:
            raise Refused(429, f"{held} open streams: limit reached", "close some pages", "USAGE")

    @contextmanager
    def stream(self, user: str) -> Iterator[None]:
        """Hold one of the user's streams; refuse one too many."""
        self.check_stream(user)
        with counted(self._streams, user):
            yield

    @asynccontextmanager
    async def act(self, user: str) -> AsyncIterator[None]:
        """Wait for one of the user's turns to act, and hold it; refuse one too many."""
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
