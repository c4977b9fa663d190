"""The output of squeue, read at most once in two seconds by all processes of a user, however many jobs are
followed.

It is stored in a file, which other processes read instead of calling squeue: many clients would slow down
slurmctld. If Slurm does not respond, the last output is returned with the error, and callers that have one
are not kept waiting: squeue continues in a thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import threading
import time
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from mpijob import atomic_write, codec
from mpijob.backends.slurm.client import SlurmClient
from mpijob.errors import BackendError, MpiJobError
from mpijob.formats.slurm import queries
from mpijob.formats.slurm.queries import Rows

EVERY_SECONDS = 2.0
# For a newer result, if there is an older one.
_WAIT_SECONDS = 0.3


class Snapshot(NamedTuple):
    """The user's jobs at a time, by ID; `error` is why there is no newer result."""

    time: float
    rows: Rows
    error: MpiJobError | None = None

    @property
    def answered(self) -> bool:
        """Whether Slurm has responded yet."""
        return self.time > 0


class Kept(msgspec.Struct, frozen=True):
    """The base of results that processes of this user share in a file."""

    time: float


K = TypeVar("K", bound=Kept)


def recall(file: Path, kind: type[K], seconds: float) -> K | None:
    """Return a stored result that is at most `seconds` old; None without one."""
    try:
        known = codec.decode(file.read_bytes(), kind)
    except (OSError, msgspec.DecodeError):
        return None
    # Another machine's clock may be ahead.
    return known if -1 <= time.time() - known.time < seconds else None


def keep(file: Path, value: Kept) -> None:
    """Store a result; if that fails, Slurm is called again."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic_write.write(file, msgspec.json.encode(value))
    except OSError:
        return


class Squeue(Kept, frozen=True):
    """The output of squeue."""

    text: str


class Poll:
    """The shared calls of squeue."""

    def __init__(self, client: SlurmClient, folder: Path) -> None:
        self._client, self.folder = client, folder
        self._file, self._lock = folder / "squeue", folder / "squeue.lock"
        self._guard = threading.Condition()
        self._asking = False
        # When it was called last, whatever the result.
        self._tried = 0.0
        self._last = Snapshot(0.0, Rows())

    def snapshot(self, since: float = 0.0) -> Snapshot:
        """Return the last result, at most 2 s old if Slurm responds; not older than `since`."""
        oldest = max(time.time() - EVERY_SECONDS, since)
        with self._guard:
            if self._last.time >= oldest or (self._last.error and time.time() - self._tried < EVERY_SECONDS):
                return self._last
            if not self._asking:
                self._asking = True
                threading.Thread(target=self._ask, args=(oldest,), daemon=True, name="squeue").start()
            patience = _WAIT_SECONDS if self._last.answered and self._last.time >= since else None
            self._guard.wait_for(lambda: not self._asking, patience)
            return self._last

    def _ask(self, oldest: float) -> None:
        found: Squeue | MpiJobError = BackendError("squeue was not run")
        try:
            found = self._answer(oldest)
        except MpiJobError as error:
            found = error
        finally:
            # Callers that wait are woken in any case.
            with self._guard:
                if isinstance(found, Squeue):
                    self._last = Snapshot(found.time, Rows(found.text))
                else:
                    self._last = self._last._replace(error=found)
                self._asking, self._tried = False, time.time()
                self._guard.notify_all()

    def _answer(self, oldest: float) -> Squeue:
        """Return a result that is recent enough: another process's, else a new one."""
        with contextlib.ExitStack() as held:
            # Without a writable directory, squeue is called by each process.
            with contextlib.suppress(OSError):
                self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                fcntl.flock(held.enter_context(self._lock.open("w")), fcntl.LOCK_EX)
            kept = recall(self._file, Squeue, time.time() - oldest)
            # Another process called it while this one waited for the lock.
            if kept is not None:
                return kept
            when = time.time()
            found = Squeue(when, self._client.run(queries.squeue()))
            keep(self._file, found)
            return found
