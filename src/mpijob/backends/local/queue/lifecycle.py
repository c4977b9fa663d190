"""Cancel, suspend, resume and delete jobs.

For a running job, the request is stored, its supervisor gets SIGUSR1, and this process waits for the new state. A job
without a runner is ended here, in one transaction, so that no runner can claim it meanwhile.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable

import msgspec

from mpijob import codec
from mpijob.backends.common_errors import refuse_resuming
from mpijob.backends.local.planning import machine
from mpijob.backends.local.queue import disk_full, recovery
from mpijob.backends.local.queue.store import Row, Store
from mpijob.backends.local.storage import archive
from mpijob.backends.local.storage.paths import Home
from mpijob.backends.local.worker.process_tree import send_signal
from mpijob.errors import BackendError, WaitTimeout
from mpijob.model import Event, JobState, Phase
from mpijob.settings import Settings

_POLL_SECONDS = 0.03
_END_SECONDS = 15.0

Pause = Callable[[float], None]


def end(store: Store, row: Row, target: Phase, grace_seconds: float | None, pause: Pause) -> JobState:
    """Cancel or suspend a job (`target` is the phase to reach) and return its last state; works on a full disk."""
    disk_full.free_reserve_if_full(store.home)
    if row.phase.final and not row.holds:
        return row.state
    store.request(row.uid, "suspend" if target is Phase.SUSPENDED else "cancel", grace_seconds)
    if not _end_unstarted(store, row.uid, target):
        grace = store.plan(row.uid).job.grace_seconds if grace_seconds is None else grace_seconds
        _wait_until_ended(store, row, grace + _END_SECONDS, pause)
    return store.rows("uid=?", row.uid)[0].state


def _end_unstarted(store: Store, uid: str, target: Phase) -> bool:
    with store.transaction() as db:
        held, state = db.execute("SELECT holds, state FROM jobs WHERE uid=?", (uid,)).fetchone()
        if held:
            return False
        old = codec.decode(state, JobState)
        # It ended by itself since it was read.
        if old.phase.final:
            db.execute("UPDATE jobs SET desired='' WHERE uid=?", (uid,))
            return True
        now = time.time()
        before = "while it was suspended" if old.phase is Phase.SUSPENDED else "before it had started"
        text = f"the job was {target.value.lower()} {before}"
        new = msgspec.structs.replace(
            old, phase=target, reason=target.value, message=text,
            # A suspended job released its resources when it was suspended, and is accounted until then.
            released=old.finished,
            finished=max(now, old.created) if target.final else None,
        )  # fmt: skip
        db.execute(
            "UPDATE jobs SET phase=?, state=?, desired='', version=version+1 WHERE uid=?",
            (target.value, msgspec.json.encode(new), uid),
        )
        event = Event(now, target.value, text, attempt=old.attempt)
        db.execute("INSERT INTO events (uid, event) VALUES (?,?)", (uid, msgspec.json.encode(event)))
    return True


def _wait_until_ended(store: Store, row: Row, seconds: float, pause: Pause) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        fresh = next(iter(store.rows("uid=? AND holds=1", row.uid)), None)
        if fresh is None:
            return
        # On each round: the supervisor may not have had its handler yet, or the row not its supervisor.
        if machine.is_alive(fresh.supervisor):
            send_signal(machine.pid_of(fresh.supervisor), signal.SIGUSR1)
        recovery.recover(store)
        pause(_POLL_SECONDS)
    raise WaitTimeout(f"job '{row.state.ref.name}' has not ended within {seconds:g} s; it will be ended")


def resume(store: Store, row: Row) -> JobState:
    """Queue a suspended job again, as its next attempt if it had started one."""
    refuse_resuming(row.state)
    state = recovery.next_attempt_state(row.state, "WaitingForResources", "waiting in the queue")
    if row.state.started is None:
        state = msgspec.structs.replace(state, attempt=row.attempt)
    # A suspension is no failure, and costs none of the attempts that the spec allows.
    else:
        state = msgspec.structs.replace(state, attempts_allowed=state.attempts_allowed + 1)
    event = Event(time.time(), "Resumed", "queued again", attempt=state.attempt)
    store.put(state, event, ended=row.state if state.attempt > row.attempt else None, desired="")
    return state


def remove(store: Store, home: Home, settings: Settings, row: Row, *, alone: bool) -> None:
    """Archive and remove a finished job and, unless `alone`, earlier jobs of its name."""
    ref = row.state.ref
    earlier = [] if alone else store.rows("namespace=? AND name=? AND newest=0", ref.namespace, ref.name)
    for job in (*earlier, *store.rows("uid=?", row.uid)):
        archive.archive_job(store, job, settings)
        # The row first: a directory without a row is removed later (`retention`), a row without files stays.
        _remove_row(store, job.uid)
        shutil.rmtree(home.job(job.uid), ignore_errors=True)


def _remove_row(store: Store, uid: str) -> None:
    try:
        store.remove(uid)
    # On a full disk, the job's files make the space that the deletion needs.
    except BackendError:
        shutil.rmtree(store.home.job(uid), ignore_errors=True)
        store.remove(uid)
