"""The facts about one attempt that an engine has collected, and what follows from them.

The supervisor records facts here as they arrive; `observation/state/phase` derives the phase from all of
them, and `diagnosis` the cause of a failure. No I/O.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from mpijob.model import (
    Exit,
    Family,
    LauncherPhase,
    LauncherState,
    Phase,
    Plan,
    RankState,
    StepState,
    WorkerState,
)
from mpijob.observation.state.phase import Observation, Reason

# Exit codes above 128 + 64 are the program's own: exit(-1) is 255.
_LAST_SIGNAL = 64
# MPI_ERR_UNKNOWN: a rank of Open MPI exits with it when its connection to another rank is closed.
LOST_PEER_CODE = 14
# Ends within this time are reported in no particular order; the supervisor waits as long for what follows a failure.
TOGETHER_SECONDS = 0.25


@dataclass(slots=True)
class LauncherTimes:
    """When the launcher reached each stage, in seconds since the epoch."""

    scheduled: float
    started: float | None = None
    ready: float | None = None
    running: float | None = None


class AttemptState:
    """The facts about one attempt.

    `now` is the time (seconds since the epoch) of the facts being recorded. Facts that arrive together have
    the same time; kills are then ordered before exits.
    """

    def __init__(self, plan: Plan, now: float) -> None:
        self._plan = plan
        self.now = now
        self.ready: set[int] = set()
        self.ranks: dict[int, RankState] = {}
        self.steps: dict[int, StepState] = {}
        # By step and rank.
        self.step_ranks: dict[int, dict[int, RankState]] = {}
        self._step_exits: dict[int, dict[int, Exit]] = {}
        self.sizes: set[int] = set()
        self.rank_exits: dict[int, Exit] = {}
        self.daemon_exits: dict[int, Exit] = {}
        self.daemons: dict[int, int] = {}
        self.lost: dict[int, Exit] = {}
        self.unreached: set[str] = set()
        self.launcher: Exit | None = None
        self.launcher_started = False
        self.launcher_pid = 0
        self.launcher_times = LauncherTimes(scheduled=now)
        self.launcher_peak_bytes = 0
        self.proved: int | None = None
        self.ending = False
        self._deaths: dict[int, tuple[float, bool]] = {}
        self.aborted: set[int] = set()
        self.followers: set[int] = set()
        self.cancelled = False
        self.suspended = False
        self.deadline_passed = False
        self.stopped: Reason | None = None
        self.stopped_message = ""
        self.culprit: int | None = None
        self.peak_bytes: dict[int, int] = {}
        self.oom_kills: dict[int, int] = {}

    # -- facts ------------------------------------------------------------------------------------
    def launcher_spawned(self, pid: int, *, counting: bool) -> None:
        """Record the launcher's process. It runs the job's command, unless it is `counting` or the ranks are
        counted first.
        """
        self.launcher_pid, times = pid, self.launcher_times
        times.started = times.started or self.now
        if not counting and (self._plan.own_launcher or not self._plan.job.census):
            times.ready = times.ready or self.now
            times.running = self.now

    def _has_reached_all(self) -> bool:
        if self.launcher_times.ready is not None:
            return False
        # Workers without ranks may never get a daemon.
        there = self.daemons.keys() | {rank.worker for rank in self.ranks.values()}
        if there >= {worker.index for worker in self._plan.workers if worker.ranks}:
            self.launcher_times.ready = self.now
        return self.launcher_times.ready is not None

    def daemon_started(self, worker: int) -> bool:
        """Record an MPI daemon on a worker; return whether it was the last worker that the launcher had to reach."""
        self.daemons[worker] = self.daemons.get(worker, 0) + 1
        return self._has_reached_all()

    def rank_started(
        self, rank: int, size: int, worker: int, local_rank: int, pid: int, gpus: str, node: str
    ) -> bool:
        """Record a rank; return whether its worker was the last one that the launcher had to reach."""
        names = tuple(gpus.split(",")) if gpus else ()
        self.ranks[rank] = RankState(rank, worker, local_rank, node, pid, names)
        self.sizes.add(size)
        return self._has_reached_all()

    def step_started(self, number: int, command: str, ranks: int) -> None:
        """Record the start of one launcher of a script."""
        self.steps.setdefault(number, StepState(number, command, ranks, started=self.now))

    def step_ended(self, number: int, code: int) -> None:
        """Record the end of one launcher of a script."""
        if (step := self.steps.get(number)) is not None and step.finished is None:
            self.steps[number] = msgspec.structs.replace(step, finished=self.now, exit_code=code)

    def step_rank_started(self, number: int, rank: int, size: int, worker: int, pid: int) -> bool:
        """Record a rank of a step; return whether all ranks of the step have started."""
        step = self.steps.get(number)
        if step is None:
            return False
        ranks = self.step_ranks.setdefault(number, {})
        ranks[rank] = RankState(rank, worker, pid=pid)
        workers = tuple(sorted({*step.workers, worker}))
        self.steps[number] = msgspec.structs.replace(step, ranks=size or step.ranks, workers=workers)
        return len(ranks) == (size or step.ranks)

    def record_step_memory(self, memory: Mapping[int, int]) -> None:
        """Record the memory in use by workers, for the steps that run on them."""
        for number, step in self.steps.items():
            used = max((memory.get(worker, 0) for worker in step.workers), default=0)
            if step.finished is None and used > step.peak_bytes:
                self.steps[number] = msgspec.structs.replace(step, peak_bytes=used)

    def step_rank_exited(self, number: int, rank: int, code: int) -> None:
        """Record the exit of a rank of a step; the first failed rank is kept."""
        step = self.steps.get(number)
        status = 128 - code if 128 < code <= 128 + _LAST_SIGNAL else code
        known = self.step_ranks.get(number, {}).get(rank)
        exit = self._exit(status, rank, None if known is None else known.worker)
        self._step_exits.setdefault(number, {}).setdefault(rank, exit)
        if step is not None and code and step.failed_rank is None:
            self.steps[number] = msgspec.structs.replace(step, failed_rank=rank)

    def failed_step(self) -> StepState | None:
        """Return the last failed step of a script that failed, else None."""
        if self.launcher is None or self.launcher.good:
            return None
        return next((step for _, step in sorted(self.steps.items(), reverse=True) if step.exit_code), None)

    def current_step(self) -> int | None:
        """Return the step that started last and has not ended."""
        return max((step.number for step in self.steps.values() if step.finished is None), default=None)

    def rank_exited(self, rank: int, code: int) -> None:
        """Record the exit status that a rank's shim reported: 128 + N is signal N."""
        self._record_exit(rank, 128 - code if 128 < code <= 128 + _LAST_SIGNAL else code)

    def rank_aborting(self, rank: int, code: int) -> None:
        """Record the exit status that a failed Python rank reports before it calls MPI_Abort."""
        # MPI then kills the rank, so the status that its shim reports is ignored (`_record_exit`).
        if rank in self.ranks and rank not in self.rank_exits and not self._plan.job.script:
            self._record_exit(rank, code)
            self.aborted.add(rank)

    def program_ended(self, rank: int) -> None:
        """Record when a rank's program ended; its shim reports the exit status a moment later."""
        self._deaths[rank] = (self.now, self.ending)

    def rank_lost(self, rank: int) -> None:
        """Record a rank that ended without an exit status: it was killed together with its shim."""
        if rank not in self.rank_exits:
            self._record_exit(rank, -int(signal.SIGKILL))

    def _record_exit(self, rank: int, code: int) -> None:
        # The time is when the program ended, not when its shim reported: reports of several ranks arrive in
        # any order.
        if rank in self.aborted:
            return
        worker = self.ranks[rank].worker if rank in self.ranks else None
        exit = self._exit(code, rank, worker)
        time, by_us = self._deaths.get(rank, (exit.time, exit.by_us))
        self.rank_exits[rank] = msgspec.structs.replace(exit, time=time, by_us=by_us)

    def daemon_ended(self, worker: int, code: int) -> None:
        # Counted, because a script starts a daemon for each of its steps.
        self.daemons[worker] = self.daemons.get(worker, 1) - 1
        # A script decides itself what the end of one of its launchers means.
        if self._plan.job.script:
            return
        if worker not in self.daemon_exits or self.daemon_exits[worker].good:
            self.daemon_exits[worker] = self._exit(code, worker, worker)

    def worker_lost(self, worker: int, code: int) -> None:
        """Record that a worker's own process ended unexpectedly."""
        self.lost.setdefault(worker, self._exit(code, worker, worker))

    def worker_stopped(self, worker: int) -> None:
        """Record a worker that the engine kills because of its own fault, such as a lost heartbeat or too
        much memory.
        """
        self.lost.setdefault(worker, self._exit(-int(signal.SIGKILL), worker, worker))

    def launcher_ended(self, code: int) -> None:
        exit = self._exit(code, 0, None)
        # The end of a killed launcher is reported after the ends that it caused. It is dated before those
        # that follow at once.
        if exit.signal == signal.SIGKILL and not exit.by_us:
            before = (*self.rank_exits.values(), *self.daemon_exits.values())
            close = [e.time for e in before if exit.time - e.time < TOGETHER_SECONDS]
            exit = msgspec.structs.replace(exit, time=min([exit.time, *close]) - 1e-6)
        self.launcher = exit

    def stop(self, reason: Reason, message: str) -> None:
        """Record that the engine ends the attempt; the first reason is kept."""
        if self.stopped is None:
            self.stopped, self.stopped_message = reason, message

    def _exit(self, code: int, index: int, worker: int | None) -> Exit:
        sent = -code if code < 0 else None
        return Exit(None if sent else code, sent, self.now, index, worker, self.ending)

    # -- what follows -----------------------------------------------------------------------------
    def take_census(self) -> bool:
        """Return True once, when every rank has reported; a wrong world stops the attempt."""
        if self.proved is not None or len(self.ranks) < self._plan.world:
            return False
        wrong = self._world_mismatch()
        self.proved = len(self.ranks)
        if not self._plan.own_launcher:
            self.launcher_times.running = self.now
        if wrong:
            self.stop(Reason.WORLD_DIFFERS, wrong)
        return True

    def _world_mismatch(self) -> str:
        if self.sizes - {self._plan.world, 0}:
            return (
                f"ranks report MPI worlds of {sorted(self.sizes)} ranks; planned: one of {self._plan.world}"
            )
        for worker in self._plan.workers:
            seen = tuple(sorted(rank for rank, state in self.ranks.items() if state.worker == worker.index))
            if worker.ranks and seen != worker.ranks:
                return f"worker {worker.index} has ranks {list(seen)}; planned: {list(worker.ranks)}"
        return ""

    def all_ended(self) -> bool:
        """Return whether the launcher, all daemons and all ranks have ended."""
        daemons = all(count <= 0 for count in self.daemons.values())
        ranks = bool(self._plan.own_launcher) or not (self.ranks.keys() - self.rank_exits.keys())
        return self.launcher is not None and daemons and ranks

    def reset_after_census(self) -> None:
        """Forget the ends of the launch that only counted ranks: they mean nothing for the job."""
        self.launcher = None
        self.rank_exits.clear()
        self.daemon_exits.clear()

    def causes(self, exits: Iterable[Exit]) -> tuple[Exit, ...]:
        """Return the exits; those that only followed from a failed start or a killed launcher are marked `by_us`."""
        # When the launcher cannot reach a worker or is killed, the daemons and ranks that it started end in
        # any way and order.
        since = self._launcher_killed_at()
        return tuple(
            msgspec.structs.replace(e, by_us=True) if self.unreached or e.time >= since else e for e in exits
        )

    def _launcher_killed_at(self) -> float:
        exit = self.launcher
        killed = exit is not None and exit.signal == signal.SIGKILL and not exit.by_us
        return exit.time if exit is not None and killed else float("inf")

    def observe(self, *, ended: bool, ranks_watched: bool) -> Observation:
        job = self._plan.job
        # A worker without ranks has no daemon; it counts as successful once the launcher is.
        idle = [Exit(0, index=w.index) for w in self._plan.workers if w.index not in self.daemon_exits]
        done = self.launcher is not None and self.launcher.good
        return Observation(
            workers_wanted=job.workers,
            workers_ready=len(self.ready),
            workers_lost=tuple(i for i, exit in self.lost.items() if not exit.by_us),
            world_planned=self._plan.world,
            world_proved=self.proved,
            census=job.census and not self._plan.own_launcher,
            launcher_started=self.launcher_started,
            launcher=self.launcher,
            workers=(*self.causes(self.daemon_exits.values()), *(idle if done else ())),
            ranks=self.ranks_ended(),
            ranks_watched=ranks_watched,
            ended=ended,
            cancel_requested=self.cancelled,
            suspend_requested=self.suspended,
            deadline_passed=self.deadline_passed,
            deadline_seconds=job.deadline_seconds,
            stopped=self.stopped,
            stopped_message=self.stopped_message,
            script=bool(job.script),
            steps=tuple(step for _, step in sorted(self.steps.items())),
        )

    def ranks_ended(self) -> tuple[Exit, ...]:
        """Return the exits of ranks in the order in which they happened; of a failed script, those of its
        failed step.
        """
        exits = self.rank_exits
        if (step := self.failed_step()) is not None:
            exits = self._step_exits.get(step.number, {})
        return self.causes(sorted(exits.values(), key=self._order))

    def _order(self, exit: Exit) -> tuple[float, bool, bool, bool, bool]:
        # At the same time, causes come before what follows from them: reported aborts, ranks that failed by
        # themselves, kills from outside, and at the end kills by MPI.
        reported = exit.index in self.aborted
        return (
            exit.time,
            not reported,
            not self.failed_by_itself(exit),
            not self.killed_from_outside(exit),
            _by_mpi(exit),
        )

    def failed_by_itself(self, exit: Exit) -> bool:
        """Return whether a rank failed by what it did: MPI did not end it, nor the loss of a peer."""
        lost_peer = self._plan.family is Family.OPENMPI and exit.code == LOST_PEER_CODE
        return not (exit.good or exit.by_us or lost_peer or _by_mpi(exit))

    def killed_from_outside(self, exit: Exit) -> bool:
        """Return whether a rank was probably killed from outside: Open MPI's own kills begin with SIGTERM.

        Open MPI sends SIGKILL soon after, so a rank that failed by itself is a likelier cause.
        """
        return self._plan.family is Family.OPENMPI and exit.signal == signal.SIGKILL and not exit.by_us

    def rank_states(self) -> tuple[RankState, ...]:
        return tuple(
            msgspec.structs.replace(
                state, exit_code=self._status(self.rank_exits.get(rank)), followed=rank in self.followers
            )
            for rank, state in sorted(self.ranks.items())
        )

    def worker_states(self, phase: Phase, gpus: Callable[[int], tuple[str, ...]]) -> tuple[WorkerState, ...]:
        """Return every worker; after the job's end, only the failed ones have the phase Failed."""
        job = self._plan.job
        return tuple(
            WorkerState(
                index=worker.index,
                name=worker.name,
                group=worker.group,
                phase=self._worker_phase(worker.index, phase),
                exit_code=self._status(self.lost.get(worker.index) or self.daemon_exits.get(worker.index)),
                gpus=gpus(worker.index),
                memory_limit_bytes=job.part_of(worker.index).job.resources.memory_bytes,
                memory_bytes=self.peak_bytes.get(worker.index),
            )
            for worker in self._plan.workers
        )

    def launcher_state(self, phase: Phase, *, node: str, log: str) -> LauncherState:
        """Return the launcher's state in a job of this phase; `log` is the path of its log file."""
        exit, times, asked = self.launcher, self.launcher_times, self._plan.job.launcher
        own = self._launcher_living(phase) if exit is None else _launcher_ended(exit)
        return LauncherState(
            name="launcher",
            phase=own,
            node=node,
            message=self._launcher_message(own),
            exit_code=self._status(exit),
            cores=asked.asked.cores,
            memory_limit_bytes=asked.memory_bytes,
            memory_bytes=self.launcher_peak_bytes or None,
            log_source=f"file:{log}",
            scheduled=times.scheduled,
            started=times.started,
            ready=times.ready,
            running=times.running,
            finished=None if exit is None else exit.time,
        )

    def _launcher_living(self, phase: Phase) -> LauncherPhase:
        times = self.launcher_times
        if phase.final or phase is Phase.SUSPENDED:
            # It never ran, or its end was not observed.
            return LauncherPhase.CANCELLED
        if times.running is not None:
            return LauncherPhase.RUNNING
        if times.ready is not None:
            return LauncherPhase.READY
        return LauncherPhase.SCHEDULED if times.started is None else LauncherPhase.STARTING

    def _launcher_message(self, phase: LauncherPhase) -> str:
        if phase is LauncherPhase.SCHEDULED:
            return f"starts when all workers are ready ({len(self.ready)} of {len(self._plan.workers)} are)"
        if self.launcher is None or self.launcher.good:
            return ""
        return "ended with the job" if self.launcher.by_us else str(self.launcher)

    def failed_worker(self) -> int | None:
        """Return the worker that failed first by itself, or the one that was found to be the cause."""
        ended = self.causes((*self.rank_exits.values(), *self.daemon_exits.values()))
        exits = [*ended, *self.lost.values()]
        bad = [e for e in exits if not e.good and not e.by_us and e.worker is not None]
        first = min(bad, key=lambda e: e.time).worker if bad else None
        return first if self.culprit is None else self.culprit

    def _failed_workers(self) -> set[int | None]:
        # Also workers whose ranks exited by themselves with the same code: they failed for the same reason.
        first = self.failed_worker()
        own = [
            e for e in self.rank_exits.values() if e.code and not e.by_us and e.index not in self.followers
        ]
        codes = {e.code for e in own if e.worker == first}
        return {first, *(e.worker for e in own if e.code in codes)}

    @staticmethod
    def _status(exit: Exit | None) -> int | None:
        return None if exit is None else exit.status

    def _worker_phase(self, index: int, phase: Phase) -> Phase:
        if phase is Phase.FAILED:
            return Phase.FAILED if index in self._failed_workers() else Phase.CANCELLED
        if phase in (Phase.PENDING, Phase.INITIALIZING) and index in self.ready:
            return Phase.RUNNING
        return phase


def _by_mpi(exit: Exit) -> bool:
    return exit.signal in (signal.SIGKILL, signal.SIGTERM)


def _launcher_ended(exit: Exit) -> LauncherPhase:
    if exit.good:
        return LauncherPhase.SUCCEEDED
    return LauncherPhase.CANCELLED if exit.by_us else LauncherPhase.FAILED
