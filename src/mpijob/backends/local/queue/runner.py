"""The runner: a process without a terminal that runs queued jobs one after another.

There is no daemon. Whoever submits a job wakes or starts a runner; a runner claims the next job that
fits, supervises it in a fork, and claims again until nothing is left that it could run; then it
listens for two seconds before it goes. When more than one job fits, it starts another runner. Where
another release was installed meanwhile, it makes way for one of that. Killed at any moment it loses
nothing: the next command finds its job's supervisor, or finds it gone, in `recovery`.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import time
from collections.abc import Callable

from mpijob import codec
from mpijob.backends.local.planning import machine
from mpijob.backends.local.queue import recovery, runner_wakeup, scheduler
from mpijob.backends.local.queue.scheduler import Claimed
from mpijob.backends.local.queue.store import Store
from mpijob.backends.local.storage.paths import Home
from mpijob.backends.local.supervisor.attempt_spec import AttemptSpec
from mpijob.backends.local.supervisor.supervisor import Supervisor
from mpijob.backends.local.worker import isolation, process_tree, syscalls
from mpijob.backends.recurring import background
from mpijob.errors import BackendError
from mpijob.settings import Settings

LINGER_SECONDS = 2.0
_EXPIRY_CHECK_SECONDS = 60.0  # a clock may be set, a job deleted by hand, another release installed
RETRY_SECONDS = 60.0
_NAME = "mpijob-runner"


def main() -> None:
    """Be a runner, with the settings that were handed over."""
    settings = codec.decode(os.environ.pop(background.SETTINGS), Settings)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Runner(Home(settings.home), settings).run()


class Runner:
    """Claims and runs jobs until nothing is left to do."""

    def __init__(self, home: Home, settings: Settings) -> None:
        self._home = home
        self._settings = settings
        self._me = machine.process_identity(os.getpid())
        self._release = _release()

    def run(self, *, accept_newer: bool = False) -> None:
        """Run what is queued; return when nothing more can be run by us. Who was forked by a runner has `begun`."""
        syscalls.become_subreaper()
        syscalls.name_process(_NAME)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # a nudge may reach a supervisor before it listens
        gc.freeze()  # forks share what is there; a collection would copy it page by page
        gc.disable()
        store = Store(self._home, accept_newer=accept_newer)
        while True:
            if self._is_outdated(store):
                runner_wakeup.start_runner(self._home, self._settings)
                return
            claimed = self._claim(store)
            if claimed is not None:
                self._ensure_second_runner(store)
                self._supervise(store, claimed)
            elif not self._listen(store, self._delete_expired(store)):
                self._apply_retention(store)
                return

    def _is_outdated(self, store: Store) -> bool:
        """Whether another release has been here since we began: our files are its own, or the store has its format.

        Our code is read as it is needed, so we would be half of one and half of the other.
        """
        deadline = time.monotonic() + RETRY_SECONDS
        while (now := _release()) is None and time.monotonic() < deadline:
            time.sleep(0.2)  # it is just being installed
        return now != self._release or not store.is_current()

    def _apply_retention(self, store: Store) -> None:
        """Nobody waits any more: remove what was kept long enough."""
        from mpijob.backends.local.queue import retention
        from mpijob.backends.local.storage import archive
        from mpijob.history.retention import RetentionSettings

        now = time.time()
        retention.apply_retention(
            store,
            now,
            RetentionSettings.from_settings(self._settings),
            lambda uid: archive.archive_account(store, uid, self._settings, now),
        )
        archive.apply_retention(self._settings, time.time())

    def _claim(self, store: Store) -> Claimed | None:
        recovery.recover(store)
        return scheduler.claim(store, self._settings, self._me, time.time())

    def _delete_expired(self, store: Store) -> float | None:
        """Delete jobs whose `ttl_seconds` are over; return in how many seconds the next is due."""
        if not store.read("SELECT 1 FROM jobs WHERE ttl IS NOT NULL LIMIT 1"):
            return None
        from mpijob.backends.local.queue import retention

        return retention.delete_expired(store, self._settings, time.time())

    def _listen(self, store: Store, expiry: float | None) -> bool:
        """Wait a while for work, or for the expiry of a job; return whether there is some.

        Whoever submits writes the job first and rings then. So what is queued before the bell is hung
        up is seen by the look after that, and what comes later rings, or finds no bell.
        """
        wakeup_pipe = self._open_wakeup_pipe()
        try:
            if scheduler.can_start(store, time.time(), self._settings):
                return True
            delayed = scheduler.seconds_until_delayed(store, time.time())
            seconds = LINGER_SECONDS if delayed is None else delayed + 0.01
            if expiry is not None:
                due = min(expiry + 0.01, _EXPIRY_CHECK_SECONDS)
                seconds = due if delayed is None else min(seconds, due)
            rung, _, _ = select.select([wakeup_pipe], [], [], seconds)
        finally:
            os.close(wakeup_pipe)
        waits = delayed is not None or expiry is not None
        return bool(rung) or waits or scheduler.can_start(store, time.time(), self._settings)

    def _open_wakeup_pipe(self) -> int:
        with contextlib.suppress(FileExistsError):
            os.mkfifo(self._home.wakeup_pipe, 0o600)
        return os.open(self._home.wakeup_pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def _ensure_second_runner(self, store: Store) -> None:
        """See to another runner when there is room for one more job beside ours."""
        if scheduler.can_start(store, time.time(), self._settings) and not runner_wakeup.notify_listening(
            self._home
        ):
            pid = process_tree.fork_child(lambda: _run_second(self._home, self._settings))
            os.waitpid(pid, 0)

    def _supervise(self, store: Store, claimed: Claimed) -> None:
        """Run one job in a supervisor of its own, and write down what follows from its end."""
        plan = store.plan(claimed.uid)
        spec = AttemptSpec(self._home, claimed.uid, claimed.attempt, plan, claimed.gpu_ids, self._settings)
        supervisor = _fork_supervisor(self._home, spec)
        status = _wait_recorded(store, claimed.uid, supervisor)
        if spec.isolation is isolation.Isolation.GROUPS:
            _kill_orphans()
        _retry_on_full_disk(lambda: self._finish(store, spec, os.waitstatus_to_exitcode(status)))
        process_tree.reap()

    def _finish(self, store: Store, spec: AttemptSpec, code: int) -> None:
        """After the supervisor's end: the truth if it could not write it, then what follows."""
        for row in store.rows("uid=? AND holds=1", spec.uid):
            if code != 0:
                recovery.declare_lost(store, row)
            else:
                recovery.finish_attempt(store, row.state)


def _release() -> tuple[int, int] | None:
    """Return which files our package is read from, by one of them; None while there are none."""
    try:
        seen = os.stat(codec.__file__)
    except FileNotFoundError:
        return None
    return seen.st_ino, seen.st_mtime_ns


def _wait_recorded(store: Store, uid: str, supervisor: int) -> int:
    """Write down who supervises the job, as soon as the disk takes it, and return how it ended."""
    identity, noted = machine.process_identity(supervisor), False
    while True:
        if not noted:
            with contextlib.suppress(BackendError):
                with store.transaction() as db:
                    db.execute("UPDATE jobs SET supervisor=? WHERE uid=?", (identity, uid))
                noted = True  # only now is it on the disk
        pid, status = os.waitpid(supervisor, 0 if noted else os.WNOHANG)
        if pid:
            return status
        time.sleep(0.2)


def _retry_on_full_disk(act: Callable[[], None]) -> None:
    """Do what must be written down; a full disk may have room again in a moment."""
    deadline = time.monotonic() + RETRY_SECONDS
    while True:
        try:
            return act()
        except BackendError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def _run_second(home: Home, settings: Settings) -> None:
    """In a child of a runner: leave it, and be a runner too."""
    if os.fork():
        os._exit(0)
    os.setsid()
    Runner(home, settings).run(accept_newer=True)


def _kill_orphans(seconds: float = 3.0) -> None:
    """End what a job without namespaces left to us, the next subreaper above it; other runners below us live on."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        table = process_tree.table()
        left = [
            p for p in table.values() if p.parent == os.getpid() and p.state not in "ZX" and p.name != _NAME
        ]
        if not left:
            return
        for orphan in left:
            for process in (orphan, *process_tree.descendants(orphan.pid, table)):
                process_tree.send_signal(process.pid, signal.SIGKILL)
        process_tree.reap()
        time.sleep(0.002)


def _fork_supervisor(home: Home, spec: AttemptSpec) -> int:
    """Return the pid of a supervisor, PID 1 of its own namespaces where the plan says so."""
    if spec.isolation is isolation.Isolation.GROUPS:
        return process_tree.fork_child(lambda: _supervise(home, spec))
    read, write = os.pipe()
    middle = process_tree.fork_child(lambda: _fork_in_namespaces(home, spec, write))
    os.close(write)
    os.waitpid(middle, 0)
    pid = os.read(read, 32)
    os.close(read)
    if pid:
        return int(pid)
    spec.disable_namespaces()
    return process_tree.fork_child(lambda: _supervise(home, spec, spec.refuse_without_namespaces))


def _fork_in_namespaces(home: Home, spec: AttemptSpec, write: int) -> None:
    """Leave the namespaces and fork PID 1; the runner, a subreaper, becomes its parent when we go."""
    isolation.unshare_namespaces()
    pid = process_tree.fork_child(lambda: _supervise_in_namespaces(home, spec))
    os.write(write, b"%d" % pid)


def _supervise_in_namespaces(home: Home, spec: AttemptSpec) -> None:
    isolation.mount_private()
    _supervise(home, spec, spec.prepare_mounts)


def _supervise(home: Home, spec: AttemptSpec, prepare: Callable[[], None] | None = None) -> None:
    os.setsid()
    syscalls.name_process("mpijob-job")
    store = Store(home, accept_newer=True)
    row = store.rows("uid=?", spec.uid)[0]
    Supervisor(store, spec, row.state).run(prepare)
    store.close()
