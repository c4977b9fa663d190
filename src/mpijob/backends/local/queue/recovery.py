"""Recovery of jobs whose processes are gone, and what follows the end of each attempt: retry, release, cleanup.

There is no daemon, so each command that uses the engine recovers first. A job without a living runner and supervisor
(compared by pid and start time) has failed with SupervisorLost, and its leftover processes are killed.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import msgspec

from mpijob.backends.local.planning import machine
from mpijob.backends.local.storage.job_files import remove_secrets
from mpijob.errors import BackendError, Finding, Fix, Severity
from mpijob.model import Event, LauncherPhase, Phase
from mpijob.settings import LOCAL

if TYPE_CHECKING:
    from mpijob.backends.local.queue.store import Row, Store
    from mpijob.model import JobState, LauncherState, MPIJob


def recover(store: Store) -> int:
    """Fail every job whose processes are gone; return their number."""
    lost = [row for row in store.rows("holds=1") if not _has_process(row)]
    for row in lost:
        # Again: another process may have recovered it, or started its next attempt.
        fresh = store.rows("uid=? AND holds=1", row.uid)
        if fresh and not _has_process(fresh[0]):
            _declare_if_possible(store, fresh[0])
    return len(lost)


def _declare_if_possible(store: Store, row: Row) -> None:
    # On a full disk, commands that only read still show jobs.
    try:
        declare_lost(store, row)
    except BackendError as error:
        if not store.allow_full_disk:
            raise
        store.warn_once(f"job '{row.state.ref.name}' is lost, which cannot be recorded: {error.message}")


def _has_process(row: Row) -> bool:
    return machine.is_alive(row.runner) or machine.is_alive(row.supervisor)


def declare_lost(store: Store, row: Row) -> None:
    """Store that the job's supervisor is gone; its leftover processes are killed before."""
    # Before the state says that it has ended: a retry must not meet them.
    kill_leftovers(store, row)
    state = row.state
    if not (state.phase.final or state.phase is Phase.SUSPENDED):
        state = msgspec.structs.replace(
            state,
            phase=Phase.FAILED,
            reason="SupervisorLost",
            message=LOST.message,
            finished=max(time.time(), state.started or 0.0),
            findings=(LOST,),
            launcher=_lost_launcher(state.launcher),
            workers=tuple(msgspec.structs.replace(w, phase=Phase.FAILED) for w in state.workers),
        )
        store.put(state, Event(time.time(), "Failed", LOST.message, Severity.ERROR, row.attempt))
    finish_attempt(store, state)


def _lost_launcher(launcher: LauncherState | None) -> LauncherState | None:
    if launcher is None or launcher.phase.final:
        return launcher
    return msgspec.structs.replace(launcher, phase=LauncherPhase.FAILED, message="its end was not observed")


def finish_attempt(store: Store, state: JobState) -> None:
    """After an attempt: release its resources, and queue the next attempt if the spec asks for one."""
    # Rarely needed: its import would delay every command.
    from mpijob.backends.local.storage import private_dirs

    private_dirs.remove(store.home.attempt(state.ref.uid, state.attempt))
    plan = store.plan(state.ref.uid)
    job = plan.job
    if state.phase is Phase.FAILED and is_retried(state, job):
        ended = state
        # If the supervisor has planned it with another MPI, there is no reason to wait.
        at_once = not state.mpi.startswith(plan.family.value)
        state = msgspec.structs.replace(state, mpi=plan.mpi)
        _queue_retry(store, state, ended, 0.0 if at_once else job.retry.delay_seconds(state.attempt))
        _audit_job_end(store, state, job)
        return
    events = _not_retried_event(state, job) if state.phase is Phase.FAILED else ()
    store.put(state, *events, holds=0, gpu_ids="", runner="", supervisor="", desired="")
    _audit_job_end(store, state, job)
    if state.phase.final:
        remove_secrets(store.home, state.ref.uid)


def _not_retried_event(state: JobState, job: MPIJob) -> tuple[Event, ...]:
    """Return an event if attempts are left, but the cause of the failure is none for which the job is retried."""
    from mpijob.observation.state import retry_cause

    why = retry_cause.refusal(state, job.retry) if state.attempt < state.attempts_allowed else ""
    return (Event(time.time(), "NotRetried", why, Severity.WARNING, state.attempt),) if why else ()


def _audit_job_end(store: Store, state: JobState, job: MPIJob) -> None:
    """Write the attempt's usage into the audit log, if there is one."""
    from mpijob.history.audit.job_end import write_job_end

    directory = str(store.home.root / "history" / LOCAL / "audit")
    write_job_end(directory, state, job, store.samples(state.ref.uid), user="system:mpijob:engine")


def is_retried(state: JobState, job: MPIJob) -> bool:
    """Return whether a failed attempt is followed by another."""
    # Only for a failed job.
    from mpijob.observation.state import retry_cause

    allowed = job.retry.limit + 1
    lost = job.requeue_on_lost_worker and state.reason in ("WorkerLost", "SupervisorLost")
    # The supervisor has planned another attempt, with another MPI (`StatusWriter`): not for the causes of the spec.
    planned = (
        bool(state.findings) and state.findings[0].code == "WRONG_WORLD" and state.attempts_allowed > allowed
    )
    if not (lost or planned or retry_cause.is_retryable(state, job.retry)):
        return False
    return state.attempt < state.attempts_allowed + (MAX_REQUEUES if lost else 0)


def _queue_retry(store: Store, state: JobState, ended: JobState, delay_seconds: float) -> None:
    following = state.attempt + 1
    text = (
        f"attempt {state.attempt} failed ({state.message}); attempt {following} starts in {delay_seconds:g} s"
    )
    now = time.time()
    again = next_attempt_state(state, "BackingOff", text)
    event = Event(now, "Retrying", text, attempt=state.attempt)
    store.put(
        again,
        event,
        ended=ended,
        holds=0,
        gpu_ids="",
        runner="",
        supervisor="",
        not_before=now + delay_seconds,
    )


def next_attempt_state(state: JobState, reason: str, message: str) -> JobState:
    return msgspec.structs.replace(
        state, phase=Phase.QUEUED, reason=reason, message=message, attempt=state.attempt + 1, queued=time.time(),
        launcher=None, launcher_exit_code=None, workers=(), ranks=(), started=None, running=None, released=None,
        finished=None,
    )  # fmt: skip


# After lost workers, in addition to the attempts of the spec.
MAX_REQUEUES = 3
LOST = Finding(
    code="SUPERVISOR_LOST",
    message="the supervisor process of the job no longer exists (killed, or the machine was restarted)",
    hint="no process of the job is left; run it again with: mpijob retry",
    fixes=(Fix("run it again with the same configuration"),),
)


def kill_leftovers(store: Store, row: Row) -> None:
    """Kill every process of this user that has the job's directory in its environment."""
    # Without namespaces, a process that left its session and its parents is found by nothing else.
    import signal

    from mpijob.backends.local.worker import cgroups, process_tree

    mark = f"MPIJOB_ATTEMPT_DIR={store.home.job(row.uid)}/".encode()
    if machine.is_alive(row.supervisor):
        process_tree.send_signal(machine.pid_of(row.supervisor), signal.SIGKILL)
    for pid in _marked_pids(mark):
        process_tree.send_signal(pid, signal.SIGKILL)
    if group := cgroups.attempt_cgroup(store.plan(row.uid).cgroup, row.uid, row.attempt):
        cgroups.kill_and_remove(group)


def _marked_pids(mark: bytes) -> list[int]:
    pids = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    environ = file.read()
            except OSError:
                continue
            if mark in environ:
                pids.append(int(entry))
    return pids
