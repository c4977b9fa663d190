"""Ending what one attempt has started: with its signal, then for good. When it is time is the supervisor's decision."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping

from mpijob.backends.local.supervisor.attempt_spec import AttemptSpec
from mpijob.backends.local.worker import cgroups, process_tree
from mpijob.observation.state.attempt_state import AttemptState


def signal_ranks(
    spec: AttemptSpec, workers: Iterable[int], attempt_state: AttemptState, *, warned: bool = False
) -> None:
    """Send the job's own signal to the ranks' programs; at the deadline, those that were warned by it get SIGTERM."""
    last = warned and attempt_state.deadline_passed
    number = signal.SIGTERM if last else signal_number(spec.plan.job.signal.name)
    table = process_tree.table()
    for pid in _program_parents(spec, workers, attempt_state, table):
        for process in process_tree.descendants(pid, table):
            process_tree.send_signal(process.pid, number)


def _program_parents(
    spec: AttemptSpec,
    workers: Iterable[int],
    attempt_state: AttemptState,
    table: Mapping[int, process_tree.Process],
) -> list[int]:
    """Return what stands right above the ranks' programs: a signal to MPI's own helpers would end the world."""
    if spec.ranks_report:
        return [state.pid for state in attempt_state.ranks.values()]
    return [process.pid for pid in workers for process in table.values() if process.parent == pid]


def kill_ranks_and_launcher(workers: Iterable[int], attempt_state: AttemptState) -> None:
    """All at once: MPI's own processes would only complain about each other's death."""
    table = process_tree.table()
    launcher = attempt_state.launcher_pid if attempt_state.launcher is None else 0
    roots = (launcher, *workers) if launcher else tuple(workers)
    below = [process.pid for pid in roots for process in process_tree.descendants(pid, table)]
    for pid in (launcher, *below) if launcher else below:
        process_tree.send_signal(pid, signal.SIGKILL)


def end_cgroups(spec: AttemptSpec, attempt_state: AttemptState) -> None:
    """Where workers have cgroups: note what the kernel killed for memory, end what is left, remove them."""
    if spec.cgroup is not None:
        for worker in spec.plan.workers:
            attempt_state.oom_kills[worker.index] = cgroups.oom_kills(
                cgroups.worker_cgroup(spec.cgroup, worker.index)
            )
        cgroups.kill_and_remove(spec.cgroup)


def signal_number(name: str) -> int:
    """Return the number of a signal named with or without SIG."""
    return int(signal.Signals["SIG" + name.upper().removeprefix("SIG")])
