"""The simulation: a virtual clock with timers, and the phases of each job.

Which job starts next is decided in `queue`, what its ranks do in `scenario`. Time passes only in calls of
`advance` and `advance_to_next`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from mpijob.backends.memory import plan as planning
from mpijob.backends.memory import queue
from mpijob.backends.memory.record import Record, census, ended_launcher, first_state, workers_in
from mpijob.backends.memory.scenario import Script, rank_runs
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
    RankState,
    Role,
    Sample,
    WorkerState,
)
from mpijob.model.spec import dependencies
from mpijob.observation.state import retry_cause

# A fixed date, so that every run of a test or demo has the same times.
EPOCH = 1_700_000_000.0
# The time in each phase before Running, so that a watcher sees all of them.
_STEP_SECONDS = 0.2
# The exit code of SIGKILL, with which MPI ends the other ranks.
_KILLED = 137


class Engine:
    """All simulated jobs of one backend, whose lock the caller holds."""

    def __init__(self, capacity: Amounts, quotas: Mapping[str, Quota], script: Script) -> None:
        self.now = EPOCH
        self.capacity = capacity
        self.quotas = quotas
        self.records: dict[str, Record] = {}
        self._script = script
        # Due time, a number that keeps the order of equal times, job, its generation, action.
        self._timers: list[tuple[float, int, Record, int, Callable[[Record], None]]] = []
        self._count = 0

    # time

    def advance(self, seconds: float) -> None:
        """Advance the virtual time and run everything that is due by then."""
        until = self.now + seconds
        while self._timers and self._timers[0][0] <= until:
            self._run_next()
        self.now = until

    def advance_to_next(self) -> bool:
        """Advance the virtual time to the next timer and run it; return whether there was one."""
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
        return f"{self._next_number():016x}"

    def _next_number(self) -> int:
        self._count += 1
        return self._count

    # from submit to running

    def submit(self, plan: Plan, who: Identity) -> JobRef:
        """Add a job; it starts at once if all its workers fit."""
        name = (plan.job.namespace, plan.job.name)
        earlier_runs = (record.state.run for record in self.records.values() if record.full_name == name)
        run = 1 + max(earlier_runs, default=0)
        record = Record(plan, self._next_number(), first_state(plan, who, self.now, run))
        self.records[record.state.ref.uid] = record
        self._add_event(record, "Submitted", f"{plan.job.workers} workers, {plan.world} ranks, by {who.user}")
        if plan.waits_for:
            self._hold(record)
        else:
            self._enqueue(record)
        return record.state.ref

    def _enqueue(self, record: Record) -> None:
        record.delayed_until = None
        record.update(phase=Phase.QUEUED, queued=self.now, reason="", message="", waiting_for="")
        self._add_event(record, "Queued", "Waiting for its turn")
        self._schedule()

    def _hold(self, record: Record) -> None:
        text = dependencies.sentence(record.plan.entries)
        record.delayed_until = math.inf
        record.update(reason=dependencies.WAITING, message=text, waiting_for=text)

    def _release_held(self) -> None:
        """Queue the held jobs whose dependencies have ended well, and fail those of which one has failed."""
        for record in list(self.records.values()):
            # Checked for each: a job that was queued here may have released others in the meantime.
            if not record.is_queued or record.delayed_until != math.inf:
                continue
            others = [(ref, self.records.get(ref.uid)) for ref in record.plan.waits_for]
            states = dependencies.of_entries(
                record.job.after, ((ref, other.state if other else None) for ref, other in others)
            )
            waits, finding = dependencies.judge(record.state.ref.name, states)
            if finding is not None:
                record.delayed_until = None
                self.end(record, Phase.FAILED, dependencies.FAILED, finding.message, findings=(finding,))
            elif not waits:
                self._enqueue(record)

    def _schedule(self) -> None:
        """Start the jobs that can start now."""
        self._release_held()
        while record := queue.next_job(self):
            self._start(record)

    def _start(self, record: Record) -> None:
        record.runs = rank_runs(record.plan, self._script, record.state.attempt)
        workers = workers_in(record.plan, Phase.PENDING)
        record.update(
            phase=Phase.PENDING, workers=workers, ranks=(), started=self.now, released=None, finished=None
        )
        record.update_launcher(LauncherPhase.SCHEDULED, scheduled=self.now)
        self._add_event(record, "GangScheduled", f"all {len(workers)} workers were allocated at once")
        self._call_later(record, _STEP_SECONDS, self._ready)
        if record.job.deadline_seconds is not None:
            self._call_later(record, record.job.deadline_seconds, self._exceed_deadline)

    def _ready(self, record: Record) -> None:
        workers = workers_in(record.plan, Phase.RUNNING)
        record.update(phase=Phase.INITIALIZING, workers=workers)
        record.update_launcher(LauncherPhase.STARTING, started=self.now)
        self._add_event(record, "WorkersReady", f"Launcher discovered {len(workers)} workers")
        self._call_later(record, _STEP_SECONDS, self._prove_world)

    def _prove_world(self, record: Record) -> None:
        record.update(ranks=census(record.plan))
        record.update_launcher(LauncherPhase.READY, ready=self.now)
        if record.job.census:
            self._add_event(record, "WorldProved", "MPI initialization completed")
        self._call_later(record, _STEP_SECONDS, self._run)

    def _run(self, record: Record) -> None:
        record.update(phase=Phase.RUNNING, running=self.now)
        record.update_launcher(LauncherPhase.RUNNING, running=self.now)
        self._add_event(record, "Running", f"{record.plan.world} ranks are running")
        self._add_samples(record)
        for rank in record.state.ranks:
            run = record.runs[rank.rank]
            for offset, text in run.lines:
                self._call_later(record, offset, partial(self._add_line, rank, text))
            if run.ends is not None:
                self._call_later(record, run.ends, partial(self._end_rank, rank, run.exit_code))

    # while it runs

    def _add_line(self, rank: RankState, text: str, record: Record) -> None:
        # Time stamps grow even while the virtual time stands still: readers order and resume by them.
        last = record.lines[-1].time if record.lines else 0
        stamp = max(int(self.now * 1e6) * 1000, last + 1)
        line = LogLine(
            stamp, text.encode(), Role.RANK, "stdout", rank.worker, rank.rank, record.state.attempt
        )
        record.lines.append(line)

    def _end_rank(self, rank: RankState, code: int, record: Record) -> None:
        """End one rank: the job succeeds with the last one, and fails with the first non-zero exit code."""
        record.set_exit_code(rank.rank, code)
        if code:
            self._fail_rank(record, rank, code)
        elif all(other.exit_code == 0 for other in record.state.ranks):
            self.end(record, Phase.SUCCEEDED, "Succeeded", f"all {record.plan.world} ranks exited with 0", 0)

    def _fail_rank(self, record: Record, rank: RankState, code: int) -> None:
        cause = f"worker {rank.worker} failed: rank {rank.rank} ended with exit code {code}"
        finding = Finding("WORKER_FAILED", cause, worker=rank.worker, rank=rank.rank)
        for other in record.state.ranks:
            if other.exit_code is None:
                record.set_exit_code(other.rank, _KILLED)
        self._fail(record, finding, f"1/{record.job.workers} workers failed", code)

    def _exceed_deadline(self, record: Record) -> None:
        limit = record.job.deadline_seconds
        finding = Finding("DEADLINE_EXCEEDED", f"the job had not ended at its deadline of {limit:g} s")
        self._fail(record, finding, finding.message, _KILLED, retry=False)

    def _fail(self, record: Record, finding: Finding, message: str, code: int, retry: bool = True) -> None:
        attempt, allowed = record.state.attempt, record.state.attempts_allowed
        self.end(record, Phase.FAILED, finding.code.title().replace("_", ""), message, code, (finding,))
        if retry and attempt < allowed and retry_cause.is_retryable(record.state, record.job.retry):
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
        self._add_event(record, "Retrying", text)
        self._call_later(record, delay, self._enqueue)

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
        """End or suspend a job: cancel its timers, free its resources and record the reason."""
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
        self._add_event(record, phase.value, findings[0].message if findings else message, findings)
        if phase.final and record.job.ttl_seconds is not None:
            self._call_later(record, record.job.ttl_seconds, self._expire)
        self._schedule()

    def _ended_workers(
        self, record: Record, phase: Phase, findings: tuple[Finding, ...]
    ) -> tuple[WorkerState, ...]:
        if not record.state.workers or phase is Phase.SUSPENDED:
            return ()
        causes = {finding.worker: finding for finding in findings}
        # If one worker made the job fail, the others were only ended with it.
        ended = Phase.CANCELLED if phase is Phase.FAILED and None not in causes else phase
        return tuple(
            msgspec.structs.replace(worker, phase=phase, message=causes[worker.index].message)
            if worker.index in causes
            else worker
            for worker in workers_in(record.plan, ended)
        )

    def resume(self, record: Record) -> None:
        """Queue a suspended job again, as its next attempt if it had started."""
        # Being suspended is no failure: it uses up none of the attempts that the job allows.
        started = int(record.state.started is not None)
        attempt, allowed = record.state.attempt + started, record.state.attempts_allowed + started
        times = {"started": None, "finished": None}
        record.attempts += [record.state] if started else []
        record.update(attempt=attempt, attempts_allowed=allowed, launcher=None, workers=(), ranks=(), **times)
        self._add_event(record, "Resumed", f"queued again as attempt {record.state.attempt}")
        self._enqueue(record)

    def scale(self, record: Record, workers: int) -> None:
        before, record.plan = record.job.workers, planning.scale_plan(record.plan, workers)
        states = workers_in(record.plan, record.state.phase) if record.state.workers else ()
        record.update(workers_wanted=workers, workers=states)
        self._add_event(record, "Scaled", f"scaled from {before} to {workers} workers")

    def remove(self, record: Record) -> None:
        record.generation += 1
        del self.records[record.state.ref.uid]
        self._schedule()

    def _expire(self, record: Record) -> None:
        # A retry in the meantime has set another end time, or none.
        kept = self.now - (record.state.finished or self.now)
        if record.state.phase.final and kept >= (record.job.ttl_seconds or 0.0):
            self.remove(record)

    def _add_event(
        self, record: Record, reason: str, message: str, findings: tuple[Finding, ...] = ()
    ) -> None:
        severity = Severity.ERROR if findings else Severity.NOTICE
        cause = findings[0] if findings else None
        record.events.append(
            Event(
                self.now,
                reason,
                message,
                severity,
                record.state.attempt,
                cause.worker if cause else None,
                cause.rank if cause else None,
                len(record.events) + 1,
            )
        )

    def _add_samples(self, record: Record) -> None:
        if record.state.phase is not Phase.RUNNING:
            return
        for worker in record.plan.workers:
            resources = record.job.part_of(worker.index).job.resources
            memory = resources.memory_bytes // 2
            record.samples.append(
                Sample(self.now, worker.index, resources.cores * 0.9, memory, record.state.attempt)
            )
