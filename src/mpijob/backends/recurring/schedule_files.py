"""The schedules of an engine without a server of its own: a file each, and who keeps the time.

There is no daemon (decision 0007): whoever makes a schedule, or submits a job where there are some, starts the
clock unless it runs. It sleeps until a job is due or somebody rings, submits it as a user would, and ends when no
schedule is left. What it does is in `client/services/cron`, above this package; here it is only a program to start.

ROOT/NAMESPACE/NAME.json  one schedule and what came of it last
ROOT/changes              locked by whoever changes a schedule
ROOT/clock                locked by the process that keeps the time
ROOT/bell                 the pipe on which it listens
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

_CLOCK = "from mpijob.client.services.cron import main; main()"


class ScheduleFiles:
    """The schedules of one engine, in a folder of the home."""

    def __init__(self, settings: Settings, folder: str = "schedules") -> None:
        self._settings = settings
        self._home = StateHome(settings.home)
        self.root = Path(settings.home, folder)

    def resolve(self, job: MPIJob, directory: Path) -> MPIJob:
        """Return the job as it can be started later from anywhere: with the directory that goes along named."""
        return code_upload.resolve(job, directory, own_places(self._settings))

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Let no other process, or thread, change a schedule meanwhile."""
        path = self.root / "changes"
        try:
            self._home.ensure()
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise cannot_write(path, str(error.strerror)) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # held for as long as a small file is read and written
            yield
        finally:
            os.close(lock)

    def put(self, recurrence: Recurrence) -> None:
        """Keep a schedule, new or changed, wholly or not at all."""
        path = self._path(recurrence.schedule.namespace, recurrence.schedule.name)
        try:
            self._home.ensure()
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            atomic_write.write(path, msgspec.json.encode(recurrence))
        except OSError as error:
            raise cannot_write(path, str(error.strerror)) from error
        self.wake()

    def remove(self, namespace: str, name: str) -> None:
        """Forget a schedule; its jobs stay."""
        self.get(namespace, name)
        self._path(namespace, name).unlink(missing_ok=True)
        self.wake()

    def get(self, namespace: str, name: str) -> Recurrence:
        """Return one schedule; raise NotFound."""
        try:
            return codec.decode(self._path(namespace, name).read_bytes(), Recurrence)
        except OSError as error:
            raise no_such_schedule(namespace, name) from error

    def all(self, namespace: str = "") -> tuple[Recurrence, ...]:
        """Return the schedules of a namespace, or of all."""
        return tuple(self._read(namespace or "*"))

    def _read(self, namespace: str) -> Iterator[Recurrence]:
        for path in sorted(self.root.glob(f"{namespace}/[!.]*.json")):
            with contextlib.suppress(OSError, msgspec.DecodeError):  # deleted meanwhile, or not ours
                yield codec.decode(path.read_bytes(), Recurrence)

    def _path(self, namespace: str, name: str) -> Path:
        if "/" in namespace + name or namespace.startswith(".") or name.startswith("."):
            raise no_such_schedule(namespace, name)
        return self.root / namespace / f"{name}.json"

    # -- the clock -----------------------------------------------------------------------------------
    def ensure_scheduler(self) -> None:
        """See to it that somebody keeps the time, where there is a schedule."""
        if self.root.is_dir() and next(self._read("*"), None) is not None and not self.wake():
            background.start(self._home, self._settings, _CLOCK)

    def wake(self) -> bool:
        """Wake the clock so that it looks at the schedules; return False when there is none."""
        return background.wake_listener(self.root / "bell")

    @contextlib.contextmanager
    def scheduler_lock(self) -> Iterator[int | None]:
        """Be the clock: the pipe on which it hears of changes, or None where another process is it."""
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
        wakeup_pipe = os.open(self.root / "bell", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            yield wakeup_pipe
        finally:
            os.close(wakeup_pipe)
            os.close(lock)
