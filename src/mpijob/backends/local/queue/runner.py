"""The runner: a background process that runs queued jobs one after another (docs/decisions/0007 and 0014).

It claims the next job that fits, forks a supervisor for it, waits for its end, and claims again. Without work it
listens for two seconds and exits. If one more job fits beside its own, it starts a second runner; if another release
was installed meanwhile, it starts a runner of that release and exits. It may be killed at any time: see `recovery`.
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
# The longest sleep until a job's `ttl_seconds` are over: meanwhile the clock may be set, the job deleted, or another
# release installed.
_EXPIRY_CHECK_SECONDS = 60.0
RETRY_SECONDS = 60.0
_NAME = "mpijob-runner"


def main() -> None:
    """Run a runner, with the settings in its environment."""
    settings = codec.decode(os.environ.pop(background.SETTINGS), Settings)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Runner(Home(settings.home), settings).run()


class Runner:
    """Claims and runs jobs, one at a time, until there are none."""

    def __init__(self, home: Home, settings: Settings) -> None:
        self._home = home
        self._settings = settings
        self._me = machine.process_identity(os.getpid())
        self._release = _release()

    def run(self, *, accept_newer: bool = False) -> None:
        """Run queued jobs; `accept_newer`: work with a store whose format is newer (see `Store`)."""
        syscalls.become_subreaper()
        syscalls.name_process(_NAME)
        # Inherited by supervisors: SIGUSR1 (`lifecycle`) may reach one before it has its handler.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        # Forks share this process's memory until one writes to it; a garbage collection writes to every object.
        gc.freeze()
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
        """Return whether another release was installed, or has migrated the store, since this process started."""
        # Modules are imported when they are needed: this process would be a mixture of two releases.
        deadline = time.monotonic() + RETRY_SECONDS
        # While a release is being installed, there are no files.
        while (now := _release()) is None and time.monotonic() < deadline:
            time.sleep(0.2)
        return now != self._release or not store.is_current()

    def _apply_retention(self, store: Store) -> None:
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
        """Delete jobs whose `ttl_seconds` are over; return the seconds until the next is due, None for none."""
        if not store.read("SELECT 1 FROM jobs WHERE ttl IS NOT NULL LIMIT 1"):
            return None
        from mpijob.backends.local.queue import retention

        return retention.delete_expired(store, self._settings, time.time())

    def _listen(self, store: Store, expiry: float | None) -> bool:
        """Wait for work, or for the next job that expires; return whether the caller must look again."""
        # A submit stores the job first, and writes to the pipe then. So the queue is read after the pipe is opened, and
        # again after it is closed: no job is missed in between.
        wakeup_pipe = self._open_wakeup_pipe()
        try:
            if scheduler.can_start(store, time.time(), self._settings):
                return True
            delayed = scheduler.seconds_until_delayed(store, time.time())
            seconds = LINGER_SECONDS if delayed is None else delayed + 0.01
            if expiry is not None:
                due = min(expiry + 0.01, _EXPIRY_CHECK_SECONDS)
                seconds = due if delayed is None else min(seconds, due)
            readable, _, _ = select.select([wakeup_pipe], [], [], seconds)
        finally:
            os.close(wakeup_pipe)
        waits = delayed is not None or expiry is not None
        return bool(readable) or waits or scheduler.can_start(store, time.time(), self._settings)

    def _open_wakeup_pipe(self) -> int:
        with contextlib.suppress(FileExistsError):
            os.mkfifo(self._home.wakeup_pipe, 0o600)
        return os.open(self._home.wakeup_pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def _ensure_second_runner(self, store: Store) -> None:
        """Start another runner if one more job fits beside this one's."""
        if scheduler.can_start(store, time.time(), self._settings) and not runner_wakeup.notify_listening(
            self._home
        ):
            # A fork takes less time than a new Python process.
            pid = process_tree.fork_child(lambda: _run_second(self._home, self._settings))
            os.waitpid(pid, 0)

    def _supervise(self, store: Store, claimed: Claimed) -> None:
        """Run one job in a supervisor process, and store what follows from its end."""
        plan = store.plan(claimed.uid)
        spec = AttemptSpec(self._home, claimed.uid, claimed.attempt, plan, claimed.gpu_ids, self._settings)
        supervisor = _fork_supervisor(self._home, spec)
        status = _wait_recorded(store, claimed.uid, supervisor)
        if spec.isolation is isolation.Isolation.GROUPS:
            _kill_orphans()
        _retry_on_full_disk(lambda: self._finish(store, spec, os.waitstatus_to_exitcode(status)))
        process_tree.reap()

    def _finish(self, store: Store, spec: AttemptSpec, code: int) -> None:
        # There is no such row if the job was recovered or deleted meanwhile.
        for row in store.rows("uid=? AND holds=1", spec.uid):
            if code != 0:
                recovery.declare_lost(store, row)
            else:
                recovery.finish_attempt(store, row.state)


def _release() -> tuple[int, int] | None:
    """Return values that change when the package's files are replaced, None while there are none."""
    # By a module of the package: installers replace all files, and every runner may read this one.
    try:
        status = os.stat(codec.__file__)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def _wait_recorded(store: Store, uid: str, supervisor: int) -> int:
    """Store the supervisor's identity, wait for its end, and return its wait status."""
    identity, is_stored = machine.process_identity(supervisor), False
    while True:
        # Again if the disk is full: without the identity, a killed runner would make the job look lost.
        if not is_stored:
            with contextlib.suppress(BackendError):
                with store.transaction() as db:
                    db.execute("UPDATE jobs SET supervisor=? WHERE uid=?", (identity, uid))
                # After the commit, which may fail.
                is_stored = True
        pid, status = os.waitpid(supervisor, 0 if is_stored else os.WNOHANG)
        if pid:
            return status
        time.sleep(0.2)


def _retry_on_full_disk(act: Callable[[], None]) -> None:
    # The end of a job must not be lost; a full disk may have space again in a moment.
    deadline = time.monotonic() + RETRY_SECONDS
    while True:
        try:
            return act()
        except BackendError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def _run_second(home: Home, settings: Settings) -> None:
    if os.fork():
        os._exit(0)
    os.setsid()
    Runner(home, settings).run(accept_newer=True)


def _kill_orphans(seconds: float = 3.0) -> None:
    """Kill what a job without namespaces has left behind."""
    # When the supervisor ends, this process, the next subreaper above it, becomes the parent of what it left. Second
    # runners are children as well, and stay.
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        table = process_tree.table()
        orphans = [
            process
            for process in table.values()
            if process.parent == os.getpid() and process.state not in "ZX" and process.name != _NAME
        ]
        if not orphans:
            return
        for orphan in orphans:
            for process in (orphan, *process_tree.descendants(orphan.pid, table)):
                process_tree.send_signal(process.pid, signal.SIGKILL)
        process_tree.reap()
        time.sleep(0.002)


def _fork_supervisor(home: Home, spec: AttemptSpec) -> int:
    """Start a supervisor, in namespaces if the plan says so and the machine still allows it; return its pid."""
    if spec.isolation is isolation.Isolation.GROUPS:
        return process_tree.fork_child(lambda: _supervise(home, spec))
    # A process cannot become PID 1 by `unshare`, only its next child can. So a process in between enters the
    # namespaces, forks the supervisor, sends its pid (as seen from here) and ends.
    read, write = os.pipe()
    middle = process_tree.fork_child(lambda: _fork_in_namespaces(home, spec, write))
    os.close(write)
    os.waitpid(middle, 0)
    pid = os.read(read, 32)
    os.close(read)
    if pid:
        return int(pid)
    # The process in between failed before it forked.
    spec.disable_namespaces()
    return process_tree.fork_child(lambda: _supervise(home, spec, spec.refuse_without_namespaces))


def _fork_in_namespaces(home: Home, spec: AttemptSpec, write: int) -> None:
    # When this process ends, the runner, a subreaper, becomes the parent of the supervisor and can wait for it.
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
