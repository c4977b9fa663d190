"""Tolerate an engine that does not respond for some minutes, for clients that follow a job.

A single request reports an outage at once. A client that waits for a job, watches it or follows its logs has
had responses already, and the job keeps running without it: a temporary error is logged once when it begins
and once when it is over. What may be repeated within a request is decided by each API client.
"""

from __future__ import annotations

import time

from mpijob.errors import BackendError

MAX_OUTAGE_SECONDS = 900.0
_RETRY_SECONDS = 1.0


class OutageTolerance:
    """The outage of one sequence of requests; each sequence has its own."""

    def __init__(self, max_seconds: float = MAX_OUTAGE_SECONDS) -> None:
        self._max_seconds = max_seconds
        self._since: float | None = None

    @property
    def in_outage(self) -> bool:
        """Whether the last request failed."""
        return self._since is not None

    def tolerate(self, error: BackendError) -> float:
        """Return how long to sleep before the next request; raise the error if it is permanent or lasts too long."""
        now = time.monotonic()
        if not error.passing or (self._since is not None and now - self._since > self._max_seconds):
            raise error
        if self._since is None:
            self._since = now
            _log(f"{error.message}; retrying for up to {self._max_seconds / 60:g} minutes")
        return _RETRY_SECONDS

    def reset(self) -> None:
        """Record that a request succeeded."""
        if self._since is not None:
            _log(f"the connection is back after {time.monotonic() - self._since:.0f} s")
        self._since = None


def _log(text: str) -> None:
    # Imported here because it is rarely needed, and `mpijob list` must start quickly.
    import logging

    logging.getLogger("mpijob").warning(text)
