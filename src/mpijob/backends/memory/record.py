"""What the engine stores of one simulated job, and the parts of its frozen state: launcher, workers, ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from mpijob.backends.memory.shell_sim import RankRun
from mpijob.model import (
    Event,
    Identity,
    JobState,
    LauncherPhase,
    LauncherState,
    LogLine,
    MPIJob,
    Phase,
    Plan,
    RankState,
    Sample,
    WorkerState,
)


@dataclass(slots=True, eq=False)
class Record:
    """One job that was submitted."""

    plan: Plan
    number: int
    state: JobState
    # Timers of an earlier generation are cancelled.
    generation: int = 0
    # Grows with each change of the state.
    version: int = 0
    # When a queued job may start at the earliest: a retry's time, or infinity while it waits for other jobs.
    delayed_until: float | None = None
    runs: dict[int, RankRun] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    lines: list[LogLine] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    # The last state of each attempt but the current one.
    attempts: list[JobState] = field(default_factory=list)

    @property
    def job(self) -> MPIJob:
        return self.plan.job

    @property
    def full_name(self) -> tuple[str, str]:
        """Namespace and name, which later jobs may use again."""
        return self.job.namespace, self.job.name

    @property
    def is_queued(self) -> bool:
        return self.state.phase is Phase.QUEUED

    def update(self, **fields: Any) -> None:
        """Replace fields of the state."""
        self.state = msgspec.structs.replace(self.state, **fields)
        self.version += 1

    def update_launcher(self, phase: LauncherPhase, **fields: Any) -> None:
        old = self.state.launcher or first_launcher(self.plan)
        self.update(launcher=msgspec.structs.replace(old, phase=phase, **fields))

    def set_exit_code(self, rank: int, code: int) -> None:
        ranks = tuple(
            msgspec.structs.replace(state, exit_code=code) if state.rank == rank else state
            for state in self.state.ranks
        )
        self.update(ranks=ranks)


def first_state(plan: Plan, who: Identity, now: float, run: int = 1) -> JobState:
    return msgspec.structs.replace(plan.first_state(who.user, now, run), mpi=plan.family.value)


def first_launcher(plan: Plan) -> LauncherState:
    resources = plan.job.launcher
    return LauncherState(
        name="launcher",
        phase=LauncherPhase.SCHEDULED,
        node="memory",
        cores=resources.asked.cores,
        memory_limit_bytes=resources.memory_bytes,
        log_source="memory:launcher",
    )


def ended_launcher(
    launcher: LauncherState | None, phase: Phase, code: int | None, now: float
) -> LauncherState | None:
    """Return the last state of the launcher of a job that has ended in this phase; None if it can be resumed."""
    if launcher is None or phase is Phase.SUSPENDED:
        return None
    if launcher.started is None or code is None:
        return msgspec.structs.replace(launcher, phase=LauncherPhase.CANCELLED)
    ended = LauncherPhase.FAILED if code else LauncherPhase.SUCCEEDED
    message = f"exited with {code}" if code else ""
    return msgspec.structs.replace(launcher, phase=ended, exit_code=code, message=message, finished=now)


def workers_in(plan: Plan, phase: Phase) -> tuple[WorkerState, ...]:
    return tuple(
        WorkerState(
            worker.index,
            worker.name,
            phase,
            node="memory",
            group=worker.group,
            memory_limit_bytes=plan.job.part_of(worker.index).job.resources.memory_bytes,
        )
        for worker in plan.workers
    )


def census(plan: Plan) -> tuple[RankState, ...]:
    return tuple(
        RankState(rank, worker.index, local, node="memory")
        for worker in plan.workers
        for local, rank in enumerate(worker.ranks)
    )
