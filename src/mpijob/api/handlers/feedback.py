"""Feedback on help texts: two counts for each topic, stored in a small file."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from mpijob import atomic_write, codec
from mpijob.api.schemas.draft_schemas import Votes

_MOST = 2000


class OpinionBox:
    """Counts of yes and no by topic; without a home directory they are lost when the server ends."""

    def __init__(self, home: str) -> None:
        self._path = Path(home) / "opinions.json" if home else None
        self._counts: dict[str, tuple[int, int]] = {}
        if self._path is not None:
            # No file yet, or an invalid one: start with no counts.
            with contextlib.suppress(OSError, msgspec.DecodeError):
                self._counts = codec.decode(self._path.read_bytes(), dict[str, tuple[int, int]])

    def add(self, topic: str, helpful: bool) -> None:
        """Count one vote; topics beyond a limit are ignored."""
        if topic not in self._counts and len(self._counts) >= _MOST:
            return
        yes, no = self._counts.get(topic, (0, 0))
        self._counts[topic] = (yes + helpful, no + (not helpful))
        # On a full disk the count is lost, and the page works.
        with contextlib.suppress(OSError):
            self._keep()

    def all(self) -> tuple[Votes, ...]:
        return tuple(Votes(topic, *self._counts[topic]) for topic in sorted(self._counts))

    def _keep(self) -> None:
        if self._path is None or not self._path.parent.is_dir():
            return
        atomic_write.write(self._path, msgspec.json.encode(self._counts))
