"""The runner: a process without a terminal that runs queued jobs one after another.

There is no daemon. Whoever submits a job starts a runner; a runner claims the next job that fits,
supervises it in a fork, and claims again until nothing is left that it could run. When more than
one job fits, it starts another runner. Killed at any moment it loses nothing: the next command
finds its job's supervisor, or finds it gone, in `recovery`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

import msgspec

from mpijob.backends.local import isolation, linux, machine, processes, recovery, retention, scheduler
from mpijob.backends.local.orders import Orders
from mpijob.backends.local.paths import Home
from mpijob.backends.local.scheduler import Claimed
from mpijob.backends.local.store import Store
from mpijob.backends.local.supervisor import Supervisor
from mpijob.settings import Settings


def main() -> None:
    """Read the settings from stdin, detach, and run what is queued."""
    settings = msgspec.json.decode(sys.stdin.buffer.read(), type=Settings)
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Runner(Home(settings.home), settings).run()


class Runner:
    """Claims and runs jobs until nothing is left to do."""

    def __init__(self, home: Home, settings: Settings) -> None:
        self._home = home
        self._settings = settings
        self._me = machine.identity(os.getpid())

    def run(self) -> None:
        """Run what is queued; return when nothing more can be run by us."""
        linux.adopt_orphans()
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # a nudge may reach a supervisor before it listens
        store = Store(self._home)
        while True:
            recovery.recover(store)
            claimed = scheduler.claim(store, self._settings, self._me, time.time())
            if claimed is not None:
                self._share(store)
                store.close()  # never carried across a fork
                self._supervise(claimed)
                store = Store(self._home)
            elif not self._worth_waiting(store):
                retention.forget_old(store, time.time())
                return

    def _worth_waiting(self, store: Store) -> bool:
        """Wait for a delayed attempt if there is one; another runner may have the rest."""
        seconds = scheduler.next_wake(store)
        if seconds is None:
            return False
        time.sleep(min(seconds + 0.01, 1.0))
        return True

    def _share(self, store: Store) -> None:
        """Start another runner when there may be room for one more job beside ours."""
        if store.read("SELECT 1 FROM jobs WHERE phase='Queued' AND desired='' LIMIT 1") and _room(
            store, self._settings
        ):
            pid = processes.in_child(lambda: _second(self._home, self._settings))
            os.waitpid(pid, 0)

    def _supervise(self, claimed: Claimed) -> None:
        supervisor = _fork_supervisor(self._home, claimed)
        identity = machine.identity(supervisor)
        store = Store(self._home)
        with store.transaction() as db:
            db.execute("UPDATE jobs SET supervisor=? WHERE uid=?", (identity, claimed.uid))
        store.close()
        _, status = os.waitpid(supervisor, 0)
        processes.end_below(os.getpid())
        self._settle(claimed, os.waitstatus_to_exitcode(status))

    def _settle(self, claimed: Claimed, code: int) -> None:
        """After the supervisor's end: the truth if it could not write it, then what follows."""
        store = Store(self._home)
        try:
            for row in store.rows("uid=? AND holds=1", claimed.uid):
                if code != 0:
                    recovery.declare_lost(store, row)
                else:
                    recovery.settle(store, row.state)
        finally:
            store.close()


def _room(store: Store, settings: Settings) -> bool:
    free = machine.capacity(settings).minus(scheduler.held(store))
    return free.cores > 0 and free.memory_bytes > 0


def _second(home: Home, settings: Settings) -> None:
    """In a child of a runner: leave it, and be a runner too."""
    if os.fork():
        os._exit(0)
    os.setsid()
    Runner(home, settings).run()


def _fork_supervisor(home: Home, claimed: Claimed) -> int:
    """Return the pid of a supervisor, PID 1 of its own namespaces where the plan says so."""
    store = Store(home)
    plan = store.plan(claimed.uid)
    store.close()
    orders = Orders(home, claimed.uid, claimed.attempt, plan, claimed.gpu_ids)
    if orders.isolation is isolation.Isolation.GROUPS:
        return processes.in_child(lambda: _supervise(home, orders))
    read, write = os.pipe()
    middle = processes.in_child(lambda: _middle(home, orders, write))
    os.close(write)
    os.waitpid(middle, 0)
    pid = os.read(read, 32)
    os.close(read)
    return int(pid) if pid else processes.in_child(lambda: _supervise(home, orders))


def _middle(home: Home, orders: Orders, write: int) -> None:
    """Leave the namespaces and fork PID 1; the runner, a subreaper, becomes its parent when we go."""
    isolation.leave()
    pid = processes.in_child(lambda: _settled(home, orders))
    os.write(write, b"%d" % pid)


def _settled(home: Home, orders: Orders) -> None:
    isolation.settle()
    _supervise(home, orders, orders.attach_volumes)


def _supervise(home: Home, orders: Orders, prepare: Callable[[], None] | None = None) -> None:
    os.setsid()
    store = Store(home)
    row = store.rows("uid=?", orders.uid)[0]
    Supervisor(store, orders, row.state).run(prepare)
    store.close()
