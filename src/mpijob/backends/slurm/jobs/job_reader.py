"""Reads jobs: their files, the cached output of squeue, and the accounting for jobs that squeue no longer
shows.

Jobs that were submitted with plain sbatch have no directory; `plain_jobs` reads them.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import msgspec

from mpijob.backends import scope_filter
from mpijob.backends.attempts.replay import Attempt
from mpijob.backends.common_errors import no_such_job
from mpijob.backends.slurm.client import SlurmClient
from mpijob.backends.slurm.jobs import derive, plain_jobs
from mpijob.backends.slurm.jobs.derive import Seen, Standing
from mpijob.backends.slurm.jobs.job_files import JobDirectories, JobFiles, Place
from mpijob.backends.slurm.jobs.poll import Poll, Snapshot
from mpijob.backends.slurm.jobs.wait_estimate import WaitEstimates
from mpijob.errors import BackendError, Finding, MpiJobError, NotFound, Severity
from mpijob.formats.slurm import batch_script, job_states, queries, srun_reports
from mpijob.formats.slurm.job_states import JobState as SlurmState
from mpijob.formats.slurm.queries import Row, Rows
from mpijob.model import Exit, JobRef, JobState, LogLine, Page, Phase, Scope
from mpijob.model.spec import dependencies
from mpijob.observation.logs import cri
from mpijob.observation.state.phase import Reason

_SAID_BYTES, _REPORT_BYTES = 16 << 10, 1 << 20
# From what other ranks notice of a lost rank until its own end is in the journal.
_TEARDOWN_SECONDS = 1.0
# The lines of a script's log that are searched for a cause.
_LINES = 2000
_ENDS_SECONDS = 10.0
# The accounting may know a new job this much later than squeue.
_FORGOTTEN_SECONDS = 10.0


class JobReader:
    """Reads jobs; caches accounting records."""

    def __init__(self, client: SlurmClient, jobs: JobDirectories, poll: Poll, rules: str) -> None:
        self.client, self.jobs, self.poll, self._rules = client, jobs, poll, rules
        self.waits = WaitEstimates(client, poll, jobs)
        self._accounted: dict[str, tuple[float, Row | None]] = {}

    # -- one job ----------------------------------------------------------------------------------
    def find(self, ref: JobRef) -> Place:
        """Return the directory of a job of ours; raise NotFound."""
        place = self.jobs.find(ref)
        if place is None:
            raise no_such_job(ref)
        return place

    def files(self, ref: JobRef) -> JobFiles:
        """Return the files of a job of ours; raise NotFound."""
        return self.jobs.files(self.find(ref))

    def ours(self, ref: JobRef) -> JobFiles | None:
        """Return the files of a job of ours, None for one of plain sbatch; raise NotFound for any other."""
        place = self.jobs.find(ref)
        if place is not None:
            return self.jobs.files(place)
        self.plain(ref)
        return None

    def get(self, ref: JobRef) -> JobState:
        """Return a job's state; raise NotFound."""
        place = self.jobs.find(ref)
        if place is not None:
            files = self.jobs.files(place)
            return self._with_forecasts([(files.number, self.state(files))])[0]
        row = self.plain(ref)
        state = self._with_forecasts([(row.number, plain_jobs.state(row))])[0]
        return state if row.ending is None else self._with_exit_code(state, row.number)

    def _with_forecasts(self, found: Iterable[tuple[str, JobState]]) -> list[JobState]:
        """Return the states, given with their Slurm IDs; those of waiting jobs with their start times."""
        states = [*found]
        waiting = [number for number, state in states if number and state.phase is Phase.QUEUED]
        forecasts = self.waits.of(self.poll.snapshot().rows, waiting, time.time()) if waiting else {}
        return [state.forecast(forecasts[key]) if key in forecasts else state for key, state in states]

    def attempts(self, ref: JobRef) -> tuple[JobState, ...]:
        """Return the last state of each attempt, and the current state."""
        now = self.get(ref)
        place = self.jobs.find(now.ref)
        if place is None:
            return (now,)
        files = self.jobs.files(place)
        numbers = [number for number in files.attempts() if number < now.attempt]
        return (*(self._earlier(files, number) for number in numbers), now)

    def _earlier(self, files: JobFiles, number: int) -> JobState:
        attempt = files.attempt(number)
        seen = Seen(files, attempt, None, answered=True, now=time.time(), said=_tail(files, number))
        state, standing = derive.earlier(seen)
        return self._explained(seen, state, standing) if state.phase is Phase.FAILED else state

    def ended(self, ref: JobRef) -> JobState:
        """Return the state of a job that was just cancelled, once Slurm reports its end."""
        end = time.monotonic() + _ENDS_SECONDS
        while not (state := self.get(ref)).phase.final and time.monotonic() < end:
            self.poll.snapshot(since=time.time())
        return state

    def plain(self, ref: JobRef) -> Row:
        """Return the row of a plain sbatch job; raise NotFound."""
        number = plain_jobs.number_of(ref)
        if number is None:
            raise no_such_job(ref)
        snapshot = self.poll.snapshot()
        row = snapshot.rows.get(number) or self.client.job(number) or self._forgotten(number, 0.0)
        if row is not None and (batch_script.read_comment(row.comment) or not plain_jobs.named(row, ref)):
            # A job of ours that was deleted, or another name.
            row = None
        if row is None:
            raise snapshot.error or no_such_job(ref)
        return row

    def state(self, files: JobFiles, *, findings: bool = True) -> JobState:
        """Return the state of a job of ours, with the causes if it failed."""
        if (settled := files.settled()) is not None and (
            settled.findings or not findings or settled.phase is not Phase.FAILED
        ):
            return settled
        if files.plan.job.script:
            return self._of_script(files, findings=findings)
        seen = self.seen(files)
        state, standing = derive.state(seen)
        if standing.result.reason in (Reason.DEPENDENCY_FAILED, Reason.WAITING_FOR_JOBS):
            state = self._dependent(files, state)
        elif findings and state.phase is Phase.FAILED:
            state = self._explained(seen, state, standing)
        if standing.settled and state.phase.final and findings:
            files.settle(state)
        return state

    def seen(self, files: JobFiles) -> Seen:
        """Return everything that is known of a job now."""
        numbers = files.attempts()
        attempt = files.attempt(numbers[-1]) if numbers else None
        over = attempt is not None and attempt.ended_by_itself and attempt.retry_seconds is None
        # Slurm may have requeued it as it ended.
        over = over and not files.suspended
        snapshot = Snapshot(0.0, Rows()) if over and attempt and not attempt.code else self.poll.snapshot()
        if not files.number and (
            found := [key for key, uid in snapshot.rows.ours() if uid == files.place.uid]
        ):
            # The submit was killed, or got no response, before it could store the ID.
            files.take_number(found[0])
        row = snapshot.rows.get(files.number) if files.number else None
        if row is None and files.number and snapshot.answered and not over:
            row = self._forgotten(files.number, files.place.created)
        fresh = snapshot.answered and snapshot.error is None and snapshot.time > files.place.created + 1
        said = _tail(files, attempt.number) if attempt is not None and attempt.stop_reason == "term" else b""
        silent = snapshot.error.message if snapshot.error else ""
        return Seen(files, attempt, row, fresh, time.time(), silent, said)

    def _of_script(self, files: JobFiles, *, findings: bool) -> JobState:
        # A script has no journals: Slurm's row and its log are all there is.
        seen = self.seen(files)
        if seen.row is None:
            return derive.state(seen)[0]
        state = plain_jobs.of_ours(seen.row, files)
        if state.reason == Reason.DEPENDENCY_FAILED.value or (
            files.plan.waits_for and seen.row.reason == "Dependency" and not state.phase.final
        ):
            return self._dependent(files, state)
        if not state.phase.final:
            return state
        state = self._with_exit_code(state, files.number)
        if findings:
            steps = queries.steps(self.client.accounting([files.number], steps=True))
            state = msgspec.structs.replace(state, steps=steps)
            if state.phase is Phase.FAILED:
                state = _because(state, self._causes(state, files, self._last_lines(files, state.attempt)))
            files.settle(state)
        return state

    def _with_exit_code(self, state: JobState, number: str) -> JobState:
        # sacct and squeue lose the highest bit of the exit code; `scontrol show job` has all of it.
        try:
            fields = self.client.show_job(number)
        except MpiJobError:
            return state
        if "ExitCode" not in fields:
            return state
        return msgspec.structs.replace(state, launcher_exit_code=job_states.exit_code(fields["ExitCode"])[0])

    def _last_lines(self, files: JobFiles, attempt: int) -> tuple[LogLine, ...]:
        from mpijob.backends.slurm.jobs import logs as script_logs

        try:
            outputs = script_logs.outputs(self.client, files.number, files, attempt)
            lines = [line for output in outputs for line in output.read(last=True)]
        except (MpiJobError, OSError):
            return ()
        return tuple(sorted(lines, key=lambda line: line.time)[-_LINES:])

    def _causes(
        self, state: JobState, files: JobFiles, logs: tuple[LogLine, ...] = ()
    ) -> tuple[Finding, ...]:
        """Return why a job failed whose ranks are unknown: by Slurm's reason and the script's output."""
        # Imported late: the rules are loaded only for a failure.
        from mpijob.backends import site_rule_loader
        from mpijob.backends.attempts.findings import explained
        from mpijob.diagnosis.evidence import Evidence

        code = state.launcher_exit_code
        seen = Evidence(
            spec=files.plan.job, reason="" if state.reason == Reason.LAUNCHER_FAILED.value else state.reason,
            message=state.message, phase=state.phase, logs=logs, launcher=Exit(code) if code else None,
        )  # fmt: skip
        return explained(seen, site_rule_loader.load_if_valid(self._rules))

    def _forgotten(self, number: str, created: float) -> Row | None:
        """Return the last try of a job from the accounting; read again after a while only."""
        now = time.time()
        when, row = self._accounted.get(number, (0.0, None))
        if row is not None or now - when < _FORGOTTEN_SECONDS or now - created < 2.0:
            return row
        try:
            tries = [row for row in self.client.accounting([number]) if row.number == number]
        except MpiJobError:
            tries = []
        row = tries[-1] if tries and tries[-1].ending is not None else None
        self._accounted[number] = (now, row)
        return row

    def _dependent(self, files: JobFiles, state: JobState) -> JobState:
        """Return the state of a job that waits for others, or cannot start because of one."""
        plan = files.plan
        try:
            others = [(ref, self.other(ref)) for ref in plan.waits_for]
        except BackendError:
            # Known when Slurm responds again.
            return state
        known = dependencies.of_entries(plan.job.after, others)
        waits, finding = dependencies.judge(state.ref.name, known)
        if finding is None:
            return dependencies.waiting(state, waits, "waiting for its turn")
        return dependencies.refused(state, finding, time.time())

    def other(self, ref: JobRef) -> JobState | None:
        """Return the state of a job that another one waits for; None if it does not exist."""
        try:
            return self.get(ref)
        except NotFound:
            return None

    def _explained(self, seen: Seen, state: JobState, standing: Standing) -> JobState:
        # Imported late: the rules are loaded only for a failure.
        from mpijob.backends.attempts import evidence

        files, attempt = seen.files, seen.attempt
        if attempt is None or attempt.number != standing.attempt:
            return msgspec.structs.replace(state, findings=self._causes(state, files))
        known = evidence.Attempt(
            files.plan, attempt.number, files.logs(attempt.number), files.work, self._rules,
            follows=_take_reports(files, attempt, evidence.PEER_LOST),
        )  # fmt: skip
        for sample in files.samples():
            if sample.attempt == attempt.number:
                peak = attempt.state.peak_bytes.get(sample.worker, 0)
                attempt.state.peak_bytes[sample.worker] = max(peak, sample.memory_bytes)
        found = evidence.findings_for(known, attempt.state, standing.result, attempt.started)
        attempt.state.culprit = found[0].worker if found else None
        return _because(derive.with_ranks(state, files, attempt), found)

    # -- many jobs --------------------------------------------------------------------------------
    def page(self, scope: Scope) -> Page:
        """Return one page, newest first: the newest job of each name (or all runs), and plain sbatch jobs."""
        snapshot = self.poll.snapshot()
        known = [
            job for job in self._listed(snapshot, runs=scope.runs) if scope_filter.matches_ref(job.ref, scope)
        ]
        if scope_filter.needs_state(scope):
            known = [job for job in known if scope_filter.matches(job.state(), scope)]
        page, following = scope_filter.paginate(known, scope, lambda job: job.order)
        states = self._with_forecasts((job.number, job.state()) for job in page)
        items = tuple(msgspec.structs.replace(state, ranks=()) for state in states)
        notices = (_silent(snapshot.error),) if snapshot.error else ()
        return Page(items, following, len(known), notices)

    def _listed(self, snapshot: Snapshot, *, runs: bool) -> list[Listed]:
        """Return the jobs of a list, newest first; their own files are not read yet."""
        newest: dict[tuple[str, str, int], Place] = {}
        for place in self.jobs.all():
            newest.setdefault((place.namespace, place.name, place.number if runs else 0), place)
        ours = dict(snapshot.rows.ours())
        numbers = {uid: number for number, uid in ours.items()}
        found = []
        for place in newest.values():
            number = numbers.get(place.uid, "")
            state = partial(self._brief, place, number, snapshot)
            found.append(Listed(place.created_us, place.ref, number, state))
        for number in snapshot.rows.keys() - ours.keys():
            row = snapshot.rows[number]
            state = partial(plain_jobs.state, row)
            found.append(Listed(plain_jobs.order(row), plain_jobs.ref(row), number, state))
        return sorted(found, key=lambda job: job.order, reverse=True)

    def _brief(self, place: Place, number: str, snapshot: Snapshot) -> JobState:
        # A list of many waiting jobs must not read each one's directory on a shared file system.
        row = snapshot.rows.get(number) if number else None
        told = batch_script.read_comment(row.comment) if row and _waits_only(row) else None
        # The row may be two seconds old, and the job started since.
        if row and told and not told.more and self.jobs.untouched(place):
            return derive.queued(place, row, told)
        try:
            return self.state(self.jobs.files(place, logs=False), findings=False)
        except (NotFound, BackendError) as error:
            if isinstance(error, BackendError) and error.passing:
                raise
            return derive.unreadable(place, error)


class Listed(NamedTuple):
    """A job of a list: its order, reference, Slurm ID, and a function that returns its state."""

    order: int
    ref: JobRef
    number: str
    state: Callable[[], JobState]


def _waits_only(row: Row) -> bool:
    return row.state is SlurmState.PENDING and not row.reason.startswith("Dependency")


def _because(state: JobState, found: tuple[Finding, ...]) -> JobState:
    """Return the state of a failed job with its causes; the first is its message."""
    message = found[0].message if found else state.message
    return msgspec.structs.replace(state, findings=found, message=message)


def _silent(error: MpiJobError) -> Finding:
    message = f"{error.message}; showing the last known state"
    return Finding("SLURM_UNREACHABLE", message, error.hint, severity=Severity.WARNING)


def _take_reports(files: JobFiles, attempt: Attempt, lost: re.Pattern[bytes]) -> Callable[[LogLine], bool]:
    """Apply srun's reports to the attempt; return whether a line only follows from the first failure."""
    state = attempt.state
    said = [cri.parse(line) for line in _tail(files, attempt.number, _REPORT_BYTES).splitlines()]
    reports = srun_reports.read(line.text for line in said)
    for rank in reports.out_of_memory & state.ranks.keys():
        worker = state.ranks[rank].worker
        state.oom_kills[worker] = max(1, state.oom_kills.get(worker, 0))
    since = float("inf") if attempt.stop_requested_at is None else attempt.stop_requested_at
    for rank, exit in state.rank_exits.items() if reports.first else ():
        if rank in reports.first:
            since = min(since, exit.time - _TEARDOWN_SECONDS)
        elif not exit.good:
            state.rank_exits[rank] = msgspec.structs.replace(exit, by_us=True)

    def follows(line: LogLine) -> bool:
        if line.time < since * 1e9:
            return False
        if line.rank is None:
            return srun_reports.follows(line.text)
        return bool(reports.first) and line.rank not in reports.first and lost.search(line.text) is not None

    return follows


def _tail(files: JobFiles, number: int, most: int = _SAID_BYTES) -> bytes:
    """Return the end of the launcher's log, where Slurm writes why it ends a job."""
    try:
        with (files.logs(number) / "launcher.log").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - most))
            return file.read()
    except FileNotFoundError:
        return b""
