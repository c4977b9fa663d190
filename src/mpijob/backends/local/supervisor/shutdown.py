"""Signals to the processes of one attempt, for its end; `supervisor` decides when."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping

from mpijob.backends.local.supervisor.attempt_spec import AttemptSpec
from mpijob.backends.local.worker import cgroups, process_tree
from mpijob.observation.state.attempt_state import AttemptState


def signal_ranks(
    spec: AttemptSpec, workers: Iterable[int], attempt_state: AttemptState, *, warned: bool = False
) -> None:
    """Send the ranks' programs the job's signal, or SIGTERM at the deadline if they got that as a warning."""
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
    # Signals go to descendants of these only: one to MPI's own daemons would make them end the whole world.
    if spec.ranks_report:
        return [state.pid for state in attempt_state.ranks.values()]
    return [process.pid for pid in workers for process in table.values() if process.parent == pid]


def kill_ranks_and_launcher(workers: Iterable[int], attempt_state: AttemptState) -> None:
    # At once, from one table: survivors would report that others have died.
    table = process_tree.table()
    launcher = attempt_state.launcher_pid if attempt_state.launcher is None else 0
    roots = (launcher, *workers) if launcher else tuple(workers)
    below = [process.pid for pid in roots for process in process_tree.descendants(pid, table)]
    for pid in (launcher, *below) if launcher else below:
        process_tree.send_signal(pid, signal.SIGKILL)


def end_cgroups(spec: AttemptSpec, attempt_state: AttemptState) -> None:
    """Note kills by the kernel's OOM killer, then kill what is left and remove the cgroups, if there are any."""
    if spec.cgroup is not None:
        for worker in spec.plan.workers:
            attempt_state.oom_kills[worker.index] = cgroups.oom_kills(
                cgroups.worker_cgroup(spec.cgroup, worker.index)
            )
        cgroups.kill_and_remove(spec.cgroup)


def signal_number(name: str) -> int:
    """Return the number of a signal, whose name may begin with SIG or not."""
    return int(signal.Signals["SIG" + name.upper().removeprefix("SIG")])
