"""The simulation: a virtual clock, what is due on it, and how one job goes from phase to phase.

Who may start, and in which order, is decided next door in `queue`; what the ranks do, in `scenario`.
Nothing here waits: time passes only when somebody calls `advance` or `leap`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping

import msgspec

from mpijob.backends.memory import plan as planning
from mpijob.backends.memory import queue
from mpijob.backends.memory.record import Record, census, ended_launcher, first_state, workers_in
from mpijob.backends.memory.scenario import Script, rank_runs
from mpijob.backends.memory.shell_sim import RankRun
from mpijob.errors import Finding, Severity
from mpijob.model import (
    Amounts,
    Event,
    Identity,
    JobRef,
    LauncherPhase,
    LogLine,
    Phase,
    Plan,
    Quota,
    Role,
    Sample,
    WorkerState,
)
from mpijob.model.spec import dependencies
from mpijob.observation.state import retry_cause

EPOCH = 1_700_000_000.0
_STEP_SECONDS = 0.2
_KILLED = 137


class Engine:
    """All simulated jobs of one backend."""

    def __init__(self, capacity: Amounts, quotas: Mapping[str, Quota], script: Script) -> None:
        self.now = EPOCH
        self.capacity = capacity
        self.quotas = quotas
        self.records: dict[str, Record] = {}
        self._script = script
        self._timers: list[tuple[float, int, Record, int, Callable[[Record], None]]] = []
        self._count = 0

    # time

    def advance(self, seconds: float) -> None:
        """Let virtual time pass; everything that falls due happens in order."""
        until = self.now + seconds
        while self._timers and self._timers[0][0] <= until:
            self._run_next()
        self.now = until

    def advance_to_next(self) -> bool:
        """Go on to the next thing that falls due; return whether there was one."""
        while self._timers and self._timers[0][2].generation != self._timers[0][3]:
            heapq.heappop(self._timers)
        if self._timers:
            self._run_next()
            return True
        return False

    def _run_next(self) -> None:
        when, _, record, generation, action = heapq.heappop(self._timers)
        if record.generation == generation:
            self.now = max(self.now, when)
            action(record)

    def _call_later(self, record: Record, seconds: float, action: Callable[[Record], None]) -> None:
        entry = (self.now + seconds, self._next_number(), record, record.generation, action)
        heapq.heappush(self._timers, entry)

    def new_uid(self) -> str:
        """Return the uid of the next plan."""
        return f"{self._next_number():016x}"

    def _next_number(self) -> int:
        self._count += 1
        return self._count

    # from submit to running

    def submit(self, plan: Plan, who: Identity) -> JobRef:
        """Take a job in; it starts at once when there is room for all of it."""
        run = 1 + max(
            (one.state.run for one in self.records.values() if _same_name(one.state.ref, plan)), default=0
        )
        record = Record(plan, self._next_number(), first_state(plan, who, self.now, run))
        self.records[record.state.ref.uid] = record
        self.add_event(record, "Submitted", f"{plan.job.workers} workers, {plan.world} ranks, by {who.user}")
        if plan.waits_for:
            self._hold(record)
        else:
            self.enqueue(record)
        return record.state.ref

    def enqueue(self, record: Record) -> None:
        """Put a job into the queue, and start whoever may start now."""
        record.delayed_until = None
        record.update(phase=Phase.QUEUED, queued=self.now, reason="", message="", waiting_for="")
        self.add_event(record, "Queued", "Waiting for its turn")
        self.schedule()

    def _hold(self, record: Record) -> None:
        text = dependencies.sentence(record.plan.entries)
        record.delayed_until = math.inf
        record.update(reason=dependencies.WAITING, message=text, waiting_for=text)

    def _release_held(self) -> None:
        """Let held jobs into the queue, or end them, when those have ended that they wait for."""
        for record in list(self.records.values()):
            if not record.is_queued or record.delayed_until != math.inf:
                continue  # not held, or not any more: letting one in may let in others
            known = [(ref, self.records.get(ref.uid)) for ref in record.plan.waits_for]
            found = dependencies.of_entries(
                record.job.after, ((ref, other.state if other else None) for ref, other in known)
            )
            waits, finding = dependencies.judge(record.state.ref.name, found)
            if finding is not None:
                record.delayed_until = None
                self.end(record, Phase.FAILED, dependencies.FAILED, finding.message, findings=(finding,))
            elif not waits:
                self.enqueue(record)

    def schedule(self) -> None:
        """Start every job that may start now, each wholly or not at all."""
        self._release_held()
        while record := queue.next_job(self.records.values(), self.capacity, self.quotas):
            self._start(record)

    def _start(self, record: Record) -> None:
        record.runs = rank_runs(record.plan, self._script, record.state.attempt)
        workers = workers_in(record.plan, Phase.PENDING)
        record.update(
            phase=Phase.PENDING, workers=workers, ranks=(), started=self.now, released=None, finished=None
        )
        record.update_launcher(LauncherPhase.SCHEDULED, scheduled=self.now)
        self.add_event(record, "GangScheduled", f"all {len(workers)} workers were allocated at once")
        self._call_later(record, _STEP_SECONDS, self._ready)
        if record.job.deadline_seconds is not None:
            self._call_later(record, record.job.deadline_seconds, self._exceed_deadline)

    def _ready(self, record: Record) -> None:
        workers = workers_in(record.plan, Phase.RUNNING)
        record.update(phase=Phase.INITIALIZING, workers=workers)
        record.update_launcher(LauncherPhase.STARTING, started=self.now)
        self.add_event(record, "WorkersReady", f"Launcher discovered {len(workers)} workers")
        self._call_later(record, _STEP_SECONDS, self._prove_world)

    def _prove_world(self, record: Record) -> None:
        record.update(ranks=census(record.plan))
        record.update_launcher(LauncherPhase.READY, ready=self.now)
        if record.job.census:
            self.add_event(record, "WorldProved", "MPI initialization completed")
        self._call_later(record, _STEP_SECONDS, self._run)

    def _run(self, record: Record) -> None:
        record.update(phase=Phase.RUNNING, running=self.now)
        record.update_launcher(LauncherPhase.RUNNING, running=self.now)
        self.add_event(record, "Running", f"{record.plan.world} ranks are running")
        self._add_samples(record)
        for seat in record.state.ranks:
            part = record.runs[seat.rank]
            for offset, text in part.lines:
                self._call_later(record, offset, _line_action(self, seat.rank, seat.worker, text))
            if part.ends is not None:
                self._call_later(record, part.ends, _exit_action(self, seat.rank, seat.worker, part))

    # while it runs

    def add_line(self, record: Record, rank: int, worker: int, text: str) -> None:
        """Write down one line of a rank."""
        last = record.lines[-1].time if record.lines else 0
        stamp = max(int(self.now * 1e6) * 1000, last + 1)
        line = LogLine(stamp, text.encode(), Role.RANK, "stdout", worker, rank, record.state.attempt)
        record.lines.append(line)

    def end_rank(self, record: Record, rank: int, worker: int, code: int) -> None:
        """End one rank: the last good one ends the job well, the first bad one ends it for all."""
        record.set_exit_code(rank, code)
        if code:
            self._fail_rank(record, rank, worker, code)
        elif all(seat.exit_code == 0 for seat in record.state.ranks):
            self.end(record, Phase.SUCCEEDED, "Succeeded", f"all {record.plan.world} ranks exited with 0", 0)

    def _fail_rank(self, record: Record, rank: int, worker: int, code: int) -> None:
        cause = f"worker {worker} failed: rank {rank} ended with exit code {code}"
        finding = Finding("WORKER_FAILED", cause, worker=worker, rank=rank)
        for seat in record.state.ranks:
            if seat.exit_code is None:
                record.set_exit_code(seat.rank, _KILLED)
        self._fail(record, finding, f"1/{record.job.workers} workers failed", code)

    def _exceed_deadline(self, record: Record) -> None:
        limit = record.job.deadline_seconds
        finding = Finding("DEADLINE_EXCEEDED", f"the job had not ended at its deadline of {limit:g} s")
        self._fail(record, finding, finding.message, _KILLED, again=False)

    def _fail(self, record: Record, finding: Finding, message: str, code: int, again: bool = True) -> None:
        attempt, allowed = record.state.attempt, record.state.attempts_allowed
        self.end(record, Phase.FAILED, finding.code.title().replace("_", ""), message, code, (finding,))
        if again and attempt < allowed and retry_cause.wanted(record.state, record.job.retry):
            self._retry(record, attempt)

    def _retry(self, record: Record, attempt: int) -> None:
        delay = record.job.retry.delay_seconds(attempt)
        record.delayed_until = self.now + delay
        text = f"attempt {attempt + 1} of {record.state.attempts_allowed} starts in {delay:g} s"
        record.attempts.append(record.state)
        record.update(
            phase=Phase.QUEUED,
            attempt=attempt + 1,
            reason="Retrying",
            message=text,
            finished=None,
            launcher=None,
            launcher_exit_code=None,
        )
        self.add_event(record, "Retrying", text)
        self._call_later(record, delay, self.enqueue)

    # ends

    def end(
        self,
        record: Record,
        phase: Phase,
        reason: str,
        message: str,
        code: int | None = None,
        findings: tuple[Finding, ...] = (),
    ) -> None:
        """Stop everything that was due for a job, free what it held and say how it ended."""
        record.generation += 1
        self._add_samples(record)
        fields = {"reason": reason, "message": message, "finished": self.now, "findings": findings}
        if record.state.phase is Phase.SUSPENDED:
            fields["released"] = record.state.finished
        fields["launcher"] = ended_launcher(record.state.launcher, phase, code, self.now)
        record.update(
            phase=phase,
            workers=self._ended_workers(record, phase, findings),
            launcher_exit_code=code,
            **fields,
        )
        self.add_event(record, phase.value, findings[0].message if findings else message, findings)
        if phase.final and record.job.ttl_seconds is not None:
            self._call_later(record, record.job.ttl_seconds, self._expire)
        self.schedule()

    def _ended_workers(
        self, record: Record, phase: Phase, findings: tuple[Finding, ...]
    ) -> tuple[WorkerState, ...]:
        if not record.state.workers or phase is Phase.SUSPENDED:
            return ()
        blamed = {finding.worker: finding for finding in findings}
        ended = Phase.CANCELLED if phase is Phase.FAILED and None not in blamed else phase
        return tuple(
            msgspec.structs.replace(worker, phase=phase, message=blamed[worker.index].message)
            if worker.index in blamed
            else worker
            for worker in workers_in(record.plan, ended)
        )

    def resume(self, record: Record) -> None:
        """Queue a suspended job again, as its next attempt."""
        begun = int(record.state.started is not None)
        attempt, allowed = record.state.attempt + begun, record.state.attempts_allowed + begun
        times = {"started": None, "finished": None}
        record.attempts += [record.state] if begun else []
        record.update(attempt=attempt, attempts_allowed=allowed, launcher=None, workers=(), ranks=(), **times)
        self.add_event(record, "Resumed", f"queued again as attempt {record.state.attempt}")
        self.enqueue(record)

    def scale(self, record: Record, workers: int) -> None:
        """Let an elastic job go on with another number of workers."""
        before, record.plan = record.job.workers, planning.scale_plan(record.plan, workers)
        there = workers_in(record.plan, record.state.phase) if record.state.workers else ()
        record.update(workers_wanted=workers, workers=there)
        self.add_event(record, "Scaled", f"scaled from {before} to {workers} workers")

    def remove(self, record: Record) -> None:
        """Remove a job, whatever it was doing, and let the next ones start."""
        record.generation += 1
        del self.records[record.state.ref.uid]
        self.schedule()

    def _expire(self, record: Record) -> None:
        """Delete a job that has been kept for its `ttl_seconds`; one that is tried again goes on."""
        kept = self.now - (record.state.finished or self.now)
        if record.state.phase.final and kept >= (record.job.ttl_seconds or 0.0):
            self.remove(record)

    def add_event(
        self, record: Record, reason: str, message: str, findings: tuple[Finding, ...] = ()
    ) -> None:
        """Write down one event."""
        severity = Severity.ERROR if findings else Severity.NOTICE
        blamed = findings[0] if findings else None
        record.events.append(
            Event(
                self.now,
                reason,
                message,
                severity,
                record.state.attempt,
                blamed.worker if blamed else None,
                blamed.rank if blamed else None,
                len(record.events) + 1,
            )
        )

    def _add_samples(self, record: Record) -> None:
        if record.state.phase is not Phase.RUNNING:
            return
        for planned in record.plan.workers:
            worker, attempt = record.job.part_of(planned.index).job.resources, record.state.attempt
            memory = worker.memory_bytes // 2
            record.samples.append(Sample(self.now, planned.index, worker.cores * 0.9, memory, attempt))


def _same_name(ref: JobRef, plan: Plan) -> bool:
    return (ref.namespace, ref.name) == (plan.job.namespace, plan.job.name)


def _line_action(engine: Engine, rank: int, worker: int, text: str) -> Callable[[Record], None]:
    return lambda record: engine.add_line(record, rank, worker, text)


def _exit_action(engine: Engine, rank: int, worker: int, part: RankRun) -> Callable[[Record], None]:
    return lambda record: engine.end_rank(record, rank, worker, part.exit_code)
