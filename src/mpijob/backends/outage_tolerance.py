"""Bearing an engine that does not answer for a while, for whoever follows a job there.

A question that gets no answer is told at once; somebody who waits for a job, watches it or follows its logs has
had answers already, and the job goes on without him. So what may pass by itself is borne for some minutes: told
once when it begins and once when it is over.
"""

from __future__ import annotations

import time

from mpijob.errors import BackendError

LONGEST_SECONDS = 900.0
_PAUSE_SECONDS = 1.0


class OutageTolerance:
    """Remembers since when there has been no answer."""

    def __init__(self, longest_seconds: float = LONGEST_SECONDS) -> None:
        self._longest_seconds = longest_seconds
        self._since: float | None = None

    @property
    def in_outage(self) -> bool:
        """Whether the last question got no answer."""
        return self._since is not None

    def tolerate(self, error: BackendError) -> float:
        """Return how long to pause before asking again; raise what does not pass, or has lasted too long."""
        now = time.monotonic()
        if not error.passing or (self._since is not None and now - self._since > self._longest_seconds):
            raise error
        if self._since is None:
            self._since = now
            _log(f"{error.message}; retrying for up to {self._longest_seconds / 60:g} minutes")
        return _PAUSE_SECONDS

    def reset(self) -> None:
        """Note that there was an answer."""
        if self._since is not None:
            _log(f"the connection is back after {time.monotonic() - self._since:.0f} s")
        self._since = None


def _log(text: str) -> None:
    import logging  # seldom needed: start-up is a feature

    logging.getLogger("mpijob").warning(text)
