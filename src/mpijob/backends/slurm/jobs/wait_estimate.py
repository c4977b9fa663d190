"""The start times of this user's waiting jobs: the queue of each partition, simulated with earlier run times.

Other users' jobs are hidden at many sites, so only what they hold now counts. The time that Slurm's backfill
scheduler expects (%S of squeue) is a bound and no estimate, because it assumes that every job uses its whole
time limit.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

from mpijob.backends.slurm.client import SlurmClient
from mpijob.backends.slurm.jobs import poll
from mpijob.backends.slurm.jobs.job_files import JobDirectories
from mpijob.backends.slurm.jobs.poll import Kept, Poll
from mpijob.errors import MpiJobError
from mpijob.formats.slurm import batch_script, queries
from mpijob.formats.slurm.job_states import JobState as SlurmState
from mpijob.formats.slurm.queries import Row, Rows
from mpijob.model import Phase
from mpijob.model.status.forecast import Forecast
from mpijob.observation.state import queue_wait

# How long the CPUs of partitions are cached.
_KNOWN_SECONDS = 10.0
# Until then, a result waits for the next squeue that is called anyway.
_OLDEST_SECONDS = 30.0
# The longest time between the calls of sinfo and squeue.
_TOGETHER_SECONDS = 0.1
# The newest ended jobs of ours, whose run times are read.
_ENDED_JOBS = 50
# Of each partition's queue; of later jobs only the position is known.
_SIMULATED_JOBS = 60
_NO_TURN = ("Dependency", "BeginTime", "JobHeld", "JobHold", "launch failed")
_OTHERS = "other jobs of the partition, which you may not see, are ahead"
BOUND = "the latest start that Slurm expects, if every job uses its whole time limit"
_LACKS = "Slurm waits for more than idle CPUs: memory, GPUs, or whole nodes"
_NO_ROOM = "the number of free CPUs of the partition is unknown"


class Asked(NamedTuple):
    """A job's request: CPUs of a partition, time limit; `command` is the same for all runs of one program."""

    partition: str
    cpus: int
    limit_seconds: float | None
    command: str


class Room(Kept, frozen=True):
    """The idle CPUs of each partition at a time, and those that this user's jobs held then."""

    idle: dict[str, int]
    held: dict[str, int]

    def free(self, partition: str, held_now: int) -> int:
        """Return the idle CPUs of a partition now, corrected by what this user's own jobs have changed since."""
        return max(0, self.idle.get(partition, 0) + self.held.get(partition, 0) - held_now)


class WaitEstimates:
    """Estimates for one user, from squeue's rows."""

    def __init__(self, client: SlurmClient, poll: Poll, jobs: JobDirectories) -> None:
        self._client, self._poll, self._jobs = client, poll, jobs
        self._file = poll.folder / "room"
        # Of each ended job by its uid.
        self._durations: dict[str, tuple[str, float] | None] = {}

    def of(self, rows: Rows, numbers: Iterable[str], now: float) -> dict[str, Forecast]:
        """Return the start times of these jobs by ID, without those that wait for something else."""
        wanted = {number for number in numbers if number in rows and waits_its_turn(rows[number])}
        found: dict[str, Forecast] = {}
        for partition in sorted({rows[number].partition for number in wanted}):
            waiting = queue(rows, partition)
            for row, forecast in zip(waiting, self._simulate(rows, partition, waiting), strict=True):
                if row.number in wanted:
                    found[row.number] = _corrected(row, forecast, now)
        return found

    def of_new(self, rows: Rows, job: Asked) -> Forecast:
        """Return the start time of a job that is submitted now, behind this user's others."""
        return self._simulate(rows, job.partition, queue(rows, job.partition), job)[-1]

    def _simulate(self, rows: Rows, partition: str, waiting: list[Row], *new: Asked) -> tuple[Forecast, ...]:
        jobs = [*map(_asked, waiting), *new]
        ahead = bool(waiting) and waiting[0].reason == "Priority"
        room = None if ahead else self._room()
        if room is None:
            basis = _OTHERS if ahead else _NO_ROOM
            return tuple(Forecast(place, basis=basis) for place in range(1, len(jobs) + 1))
        now, runs = time.time(), self._runs()
        running = [row for row in rows.values() if row.partition == partition and holds(row)]
        played = queue_wait.Queue(
            free={"cpu": float(room.free(partition, sum(row.cpus for row in running)))},
            running=tuple(
                queue_wait.Running(
                    elapsed_seconds=max(0.0, now - (row.started or now)),
                    holds={"cpu": float(row.cpus)},
                    durations=runs.get(_asked(row).command, ()),
                    deadline_seconds=row.limit_seconds,
                )
                for row in running
            ),
            waiting=tuple(
                queue_wait.Waiting(
                    needs={"cpu": float(job.cpus)},
                    durations=runs.get(job.command, ()),
                    deadline_seconds=job.limit_seconds,
                )
                for job in jobs
            ),
            # Backfill starts a later job if that delays none before it.
            strict=False,
        )
        return queue_wait.forecasts(played, _SIMULATED_JOBS)

    def _room(self) -> Room | None:
        """Return the CPUs of all partitions, cached for all processes."""
        # squeue is called together with sinfo: a job that starts or ends in between would count twice, or not at all.
        since, known = time.time() - _TOGETHER_SECONDS, poll.recall(self._file, Room, _OLDEST_SECONDS)
        if known and (time.time() - known.time < _KNOWN_SECONDS or self._poll.snapshot().time < since):
            return known
        held: dict[str, int] = {}
        try:
            snapshot = self._poll.snapshot(since=since)
            if snapshot.time < since:
                return None
            idle = queries.idle_cpus(self._client.run(queries.partition_cpus()))
        except MpiJobError:
            return None
        for row in snapshot.rows.values():
            if holds(row):
                held[row.partition] = held.get(row.partition, 0) + row.cpus
        room = Room(time.time(), idle, held)
        poll.keep(self._file, room)
        return room

    def _runs(self) -> dict[str, tuple[float, ...]]:
        """Return the earlier run times of each command."""
        self._read_ended()
        found: dict[str, tuple[float, ...]] = {}
        for command, seconds in filter(None, self._durations.values()):
            found[command] = (*found.get(command, ()), seconds)
        return found

    def _read_ended(self) -> None:
        for place in self._jobs.all(pull=False)[: 2 * _ENDED_JOBS]:
            if place.uid in self._durations:
                continue
            files = self._jobs.files(place, logs=False)
            state = files.settled()
            if state is None:
                continue
            ran = state.phase in (Phase.SUCCEEDED, Phase.FAILED)
            seconds = state.duration_seconds(state.finished or 0.0) if ran else None
            command = batch_script.command_key(files.plan.job)
            self._durations[place.uid] = None if seconds is None else (command, seconds)


def _asked(row: Row) -> Asked:
    comment = batch_script.read_comment(row.comment)
    return Asked(row.partition, row.cpus, row.limit_seconds, comment.runs if comment else "")


def _corrected(row: Row, found: Forecast, now: float) -> Forecast:
    """Return the forecast with what Slurm reports: why the job waits, and its latest start."""
    if row.reason == "Resources" and found.basis == queue_wait.FREE_NOW:
        found = Forecast(found.position, basis=_LACKS)
    if row.started is None or row.started <= now:
        return found
    return queue_wait.bounded(found, row.started - now, BOUND)


def waits_its_turn(row: Row) -> bool:
    """Return whether a job waits for resources, and for nothing else."""
    return row.state.waits and not row.reason.startswith(_NO_TURN)


def holds(row: Row) -> bool:
    """Return whether a job holds CPUs; those of a completing one may be idle for sinfo already."""
    waits_or_ends = row.state.waits or row.state in (SlurmState.COMPLETING, SlurmState.UNKNOWN)
    return row.ending is None and not waits_or_ends


def queue(rows: Rows, partition: str) -> list[Row]:
    """Return this user's waiting jobs of a partition in Slurm's order."""
    waiting = [row for row in rows.values() if row.partition == partition and waits_its_turn(row)]
    return sorted(waiting, key=lambda row: (-row.priority, int(row.number)))
