"""Sessions of the recorder: the time between two sessions becomes an event of every job that it affects."""

from __future__ import annotations

import time

from mpijob.errors import Severity
from mpijob.history.archive import Archive
from mpijob.model import Event, JobRef

_MAX_SESSIONS = 1000


class Session:
    """One recorder's session on an archive; the time since the previous one's last heartbeat is the gap."""

    def __init__(self, archive: Archive, now: float) -> None:
        self._archive = archive
        rows = archive.read("SELECT beat FROM sessions ORDER BY id DESC LIMIT 1")
        self._last_heartbeat: float | None = rows[0][0] if rows else None
        self._began = now
        with archive.transaction() as db:
            row = db.execute("INSERT INTO sessions (began, beat) VALUES (?,?)", (now, now))
            self._id = row.lastrowid
            # A recorder that crashes in a loop must not fill the table.
            db.execute("DELETE FROM sessions WHERE id < ?", (int(self._id or 0) - _MAX_SESSIONS,))

    def heartbeat(self, now: float) -> None:
        with self._archive.transaction() as db:
            db.execute("UPDATE sessions SET beat=? WHERE id=?", (now, self._id))

    def end(self, now: float) -> None:
        """Store that the recorder ended regularly."""
        with self._archive.transaction() as db:
            db.execute("UPDATE sessions SET beat=?, ended=? WHERE id=?", (now, now, self._id))

    def recorded_jobs(self, namespace: str = "") -> list[JobRef]:
        """Return the jobs that had not been deleted when the last recorder stored its observations."""
        where, values = ("AND namespace=?", (namespace,)) if namespace else ("", ())
        rows = self._archive.read(
            f"SELECT namespace, name, uid FROM jobs WHERE deleted IS NULL {where}", *values
        )
        return [JobRef(*row) for row in rows]

    def gap_text(self) -> str:
        """Return the time range without a recorder, as text."""
        return f"between {_format_time(self._last_heartbeat or self._began)} and {_format_time(self._began)}"

    def record_gap(self, ref: JobRef) -> None:
        """Add an event to a job that had not ended: states may be missing."""
        state = self._archive.state(ref.key)
        if state is None or state.phase.final:
            return
        text = f"no recorder was running {self.gap_text()}; states and events of that time may be missing"
        event = Event(self._began, "NotRecorded", text, Severity.WARNING, state.attempt)
        self._archive.add_events(ref.key, [event])


def _format_time(timestamp: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(timestamp))
