"""What squeue says, asked at most once in two seconds however many jobs are followed, by all processes together.

The answer is kept in a file of this user, which other processes read instead of asking. Where Slurm does not answer,
the last answer stands with the reason, and whoever has one already is not kept waiting: the question goes on behind.
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
_PATIENCE_SECONDS = 0.3  # for a fresh answer, where there is an older one


class Snapshot(NamedTuple):
    """The user's jobs as Slurm saw them at a time, by number; `error` is why there is no newer answer."""

    time: float
    rows: Rows
    error: MpiJobError | None = None

    @property
    def answered(self) -> bool:
        """Whether Slurm has said anything yet."""
        return self.time > 0


class Kept(msgspec.Struct, frozen=True):
    """The root of what processes of this user keep for each other in a file: what Slurm said at a time."""

    time: float


K = TypeVar("K", bound=Kept)


def recall(file: Path, kind: type[K], seconds: float) -> K | None:
    """Return what was kept at most so many seconds ago; None where nothing was, or it cannot be read."""
    try:
        known = codec.decode(file.read_bytes(), kind)
    except (OSError, msgspec.DecodeError):
        return None
    return known if -1 <= time.time() - known.time < seconds else None  # another machine's clock may be ahead


def keep(file: Path, value: Kept) -> None:
    """Keep what Slurm said; where nothing can be written, it is asked again."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic_write.write(file, msgspec.json.encode(value))
    except OSError:
        return


class Squeue(Kept, frozen=True):
    """What squeue printed."""

    text: str


class Poll:
    """The one question to Slurm."""

    def __init__(self, client: SlurmClient, folder: Path) -> None:
        self._client, self.folder = client, folder
        self._file, self._lock = folder / "squeue", folder / "squeue.lock"
        self._guard = threading.Condition()
        self._asking = False
        self._tried = 0.0  # when it was asked last, whatever came of that
        self._last = Snapshot(0.0, Rows())

    def snapshot(self, since: float = 0.0) -> Snapshot:
        """Return the last answer, at most two seconds old where Slurm answers; none older than `since`."""
        oldest = max(time.time() - EVERY_SECONDS, since)
        with self._guard:
            if self._last.time >= oldest or (self._last.error and time.time() - self._tried < EVERY_SECONDS):
                return self._last
            if not self._asking:
                self._asking = True
                threading.Thread(target=self._ask, args=(oldest,), daemon=True, name="squeue").start()
            patience = _PATIENCE_SECONDS if self._last.answered and self._last.time >= since else None
            self._guard.wait_for(lambda: not self._asking, patience)
            return self._last

    def _ask(self, oldest: float) -> None:
        found: Squeue | MpiJobError = BackendError("squeue was not run")
        try:
            found = self._answer(oldest)
        except MpiJobError as error:
            found = error
        finally:  # whoever waits for the answer does not wait for ever
            with self._guard:
                if isinstance(found, Squeue):
                    self._last = Snapshot(found.time, Rows(found.text))
                else:
                    self._last = self._last._replace(error=found)
                self._asking, self._tried = False, time.time()
                self._guard.notify_all()

    def _answer(self, oldest: float) -> Squeue:
        """Return an answer that is fresh enough: another process's, else our own, which others will find."""
        with contextlib.ExitStack() as held:
            with contextlib.suppress(OSError):  # where there is no place for files, it is asked without them
                self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                fcntl.flock(held.enter_context(self._lock.open("w")), fcntl.LOCK_EX)
            kept = recall(self._file, Squeue, time.time() - oldest)
            if kept is not None:  # another process may have asked while we waited
                return kept
            when = time.time()
            found = Squeue(when, self._client.run(queries.squeue()))
            keep(self._file, found)
            return found
