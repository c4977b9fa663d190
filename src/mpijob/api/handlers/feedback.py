"""How helpful the help is said to be: two counts for each topic, kept in one small file."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from mpijob import atomic_write, codec
from mpijob.api.schemas.draft_schemas import Votes

_MOST = 2000


class OpinionBox:
    """Counts of yes and no by topic; without a home they last as long as the server."""

    def __init__(self, home: str) -> None:
        self._path = Path(home) / "opinions.json" if home else None
        self._counts: dict[str, tuple[int, int]] = {}
        if self._path is not None:
            with contextlib.suppress(OSError, msgspec.DecodeError):  # none yet, or not ours: begin anew
                self._counts = codec.decode(self._path.read_bytes(), dict[str, tuple[int, int]])

    def add(self, topic: str, helpful: bool) -> None:
        """Count one opinion; topics beyond a bound are not counted."""
        if topic not in self._counts and len(self._counts) >= _MOST:
            return
        yes, no = self._counts.get(topic, (0, 0))
        self._counts[topic] = (yes + helpful, no + (not helpful))
        with contextlib.suppress(OSError):  # a disk that is full costs the count, not the page
            self._keep()

    def all(self) -> tuple[Votes, ...]:
        """Return all counts, by topic."""
        return tuple(Votes(topic, *self._counts[topic]) for topic in sorted(self._counts))

    def _keep(self) -> None:
        if self._path is None or not self._path.parent.is_dir():
            return
        atomic_write.write(self._path, msgspec.json.encode(self._counts))
