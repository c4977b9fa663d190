"""What the memory engine keeps of one job, and how its frozen state is built from it."""

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
    """One job that was submitted; `generation` grows whenever what was due for it no longer is."""

    plan: Plan
    number: int
    state: JobState
    generation: int = 0
    version: int = 0
    delayed_until: float | None = None
    runs: dict[int, RankRun] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    lines: list[LogLine] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    attempts: list[JobState] = field(default_factory=list)  # as each but the last ended

    @property
    def job(self) -> MPIJob:
        """What was asked for."""
        return self.plan.job

    @property
    def is_queued(self) -> bool:
        """Whether it stands in the queue."""
        return self.state.phase is Phase.QUEUED

    def update(self, **fields: Any) -> None:
        """Replace fields of the state; whoever watches sees a new version."""
        self.state = msgspec.structs.replace(self.state, **fields)
        self.version += 1

    def update_launcher(self, phase: LauncherPhase, **fields: Any) -> None:
        """Let the launcher come as far as this."""
        old = self.state.launcher or first_launcher(self.plan)
        self.update(launcher=msgspec.structs.replace(old, phase=phase, **fields))

    def set_exit_code(self, rank: int, code: int) -> None:
        """Note how one rank ended."""
        ranks = tuple(
            msgspec.structs.replace(item, exit_code=code) if item.rank == rank else item
            for item in self.state.ranks
        )
        self.update(ranks=ranks)


def first_state(plan: Plan, who: Identity, now: float, run: int = 1) -> JobState:
    """Return the state of a job at the moment of its submission."""
    return msgspec.structs.replace(plan.first_state(who.user, now, run), mpi=plan.family.value)


def first_launcher(plan: Plan) -> LauncherState:
    """Return a launcher that has its place and does nothing yet."""
    asked = plan.job.launcher
    return LauncherState(
        name="launcher",
        phase=LauncherPhase.SCHEDULED,
        node="memory",
        cores=asked.asked.cores,
        memory_limit_bytes=asked.memory_bytes,
        log_source="memory:launcher",
    )


def ended_launcher(
    launcher: LauncherState | None, phase: Phase, code: int | None, now: float
) -> LauncherState | None:
    """Return the launcher of a job that has ended in this phase; one that never started has no exit code."""
    if launcher is None or phase is Phase.SUSPENDED:
        return None
    if launcher.started is None or code is None:
        return msgspec.structs.replace(launcher, phase=LauncherPhase.CANCELLED)
    own = LauncherPhase.FAILED if code else LauncherPhase.SUCCEEDED
    message = f"exited with {code}" if code else ""
    return msgspec.structs.replace(launcher, phase=own, exit_code=code, message=message, finished=now)


def workers_in(plan: Plan, phase: Phase) -> tuple[WorkerState, ...]:
    """Return every worker of the plan in one phase."""
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
    """Return every rank where the plan put it."""
    return tuple(
        RankState(rank, worker.index, local, node="memory")
        for worker in plan.workers
        for local, rank in enumerate(worker.ranks)
    )
