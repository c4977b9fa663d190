"""When somebody recorded, and when nobody did: a break in the recording is told in every job that it met."""

from __future__ import annotations

import time

from mpijob.errors import Severity
from mpijob.history.archive import Archive
from mpijob.model import Event, JobRef


class Session:
    """One recorder's time on an archive; the time since the last one's is the break."""

    def __init__(self, archive: Archive, now: float) -> None:
        self._archive = archive
        rows = archive.read("SELECT beat FROM sessions ORDER BY id DESC LIMIT 1")
        self._last: float | None = rows[0][0] if rows else None
        self._began = now
        with archive.transaction() as db:
            row = db.execute("INSERT INTO sessions (began, beat) VALUES (?,?)", (now, now))
            self._id = row.lastrowid
            db.execute("DELETE FROM sessions WHERE id < ?", (int(self._id or 0) - 1000,))

    def beat(self, now: float) -> None:
        """Say that the recorder lives."""
        with self._archive.transaction() as db:
            db.execute("UPDATE sessions SET beat=? WHERE id=?", (now, self._id))

    def end(self, now: float) -> None:
        """Say that it has ended in good order."""
        with self._archive.transaction() as db:
            db.execute("UPDATE sessions SET beat=?, ended=? WHERE id=?", (now, now, self._id))

    def unfinished(self, namespace: str = "") -> list[JobRef]:
        """Return the jobs that were there when the last recorder looked."""
        where, values = ("AND namespace=?", (namespace,)) if namespace else ("", ())
        rows = self._archive.read(
            f"SELECT namespace, name, uid FROM jobs WHERE deleted IS NULL {where}", *values
        )
        return [JobRef(*row) for row in rows]

    def break_words(self) -> str:
        """Return between which times nobody recorded."""
        return f"between {_clock(self._last or self._began)} and {_clock(self._began)}"

    def tell_break(self, ref: JobRef) -> None:
        """Write into a job that had not ended what may be missing there."""
        state = self._archive.state(ref.key)
        if state is None or state.phase.final:
            return
        text = f"nobody recorded {self.break_words()}; states and events of that time may be missing"
        event = Event(self._began, "NotRecorded", text, Severity.WARNING, state.attempt)
        self._archive.add_events(ref.key, [event])


def _clock(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(moment))
