"""The schedules of an engine without a server of its own: a file each, and the lock of their scheduler.

There is no daemon (docs/decisions/0007, 0038): a command that creates a schedule, or submits a job where there
are schedules, starts the scheduler unless it runs. It sleeps until a job is due or a schedule changes, submits
the job as a user would, and ends when no schedule is left. Its code is in `client/services/cron`, in a higher
layer; here it is only a program to start.

ROOT/NAMESPACE/NAME.json  one schedule and its last result
ROOT/changes              locked while a schedule is changed
ROOT/clock                locked by the scheduler
ROOT/bell                 the named pipe on which the scheduler is woken
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from mpijob import atomic_write, codec
from mpijob.backends import code_upload
from mpijob.backends.common_errors import no_such_schedule
from mpijob.backends.recurring import background
from mpijob.backends.state_home import StateHome, cannot_write
from mpijob.model import MPIJob
from mpijob.model.spec.schedule import Recurrence
from mpijob.settings import Settings, own_places

_SCHEDULER = "from mpijob.client.services.cron import main; main()"


class ScheduleFiles:
    """The schedules of one engine (see `Schedules`), in a folder of the home."""

    def __init__(self, settings: Settings, folder: str = "schedules") -> None:
        self._settings = settings
        self._home = StateHome(settings.home)
        self.root = Path(settings.home, folder)

    def resolve(self, job: MPIJob, directory: Path) -> MPIJob:
        return code_upload.resolve(job, directory, own_places(self._settings))

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Exclude other processes and threads from changing a schedule; blocks until they have finished."""
        path = self.root / "changes"
        try:
            self._home.ensure()
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise cannot_write(path, str(error.strerror)) from error
        try:
            # Without a timeout: it is held only while a small file is read and written.
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def put(self, recurrence: Recurrence) -> None:
        path = self._path(recurrence.schedule.namespace, recurrence.schedule.name)
        try:
            self._home.ensure()
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            atomic_write.write(path, msgspec.json.encode(recurrence))
        except OSError as error:
            raise cannot_write(path, str(error.strerror)) from error
        self.wake()

    def remove(self, namespace: str, name: str) -> None:
        self.get(namespace, name)
        self._path(namespace, name).unlink(missing_ok=True)
        self.wake()

    def get(self, namespace: str, name: str) -> Recurrence:
        try:
            return codec.decode(self._path(namespace, name).read_bytes(), Recurrence)
        except OSError as error:
            raise no_such_schedule(namespace, name) from error

    def all(self, namespace: str = "") -> tuple[Recurrence, ...]:
        return tuple(self._read(namespace or "*"))

    def _read(self, namespace: str) -> Iterator[Recurrence]:
        for path in sorted(self.root.glob(f"{namespace}/[!.]*.json")):
            # Deleted meanwhile, or a file of somebody else.
            with contextlib.suppress(OSError, msgspec.DecodeError):
                yield codec.decode(path.read_bytes(), Recurrence)

    def _path(self, namespace: str, name: str) -> Path:
        # Names come from users and must not lead to another file.
        if "/" in namespace + name or namespace.startswith(".") or name.startswith("."):
            raise no_such_schedule(namespace, name)
        return self.root / namespace / f"{name}.json"

    # -- the scheduler -------------------------------------------------------------------------------
    def ensure_scheduler(self) -> None:
        """Start the scheduler if there is a schedule and it does not run."""
        if self.root.is_dir() and next(self._read("*"), None) is not None and not self.wake():
            background.start(self._home, self._settings, _SCHEDULER)

    def wake(self) -> bool:
        """Make the scheduler read the schedules again; return False if it does not run."""
        return background.wake_listener(self.root / "bell")

    @contextlib.contextmanager
    def scheduler_lock(self) -> Iterator[int | None]:
        """Become the scheduler; yield the pipe on which it is woken, or None if another process is the scheduler."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.root / "clock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            yield None
            return
        with contextlib.suppress(FileExistsError):
            os.mkfifo(self.root / "bell", 0o600)
        # Also for writing: without a writer, a pipe is always readable (end of file).
        wakeup_pipe = os.open(self.root / "bell", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            yield wakeup_pipe
        finally:
            os.close(wakeup_pipe)
            os.close(lock)
