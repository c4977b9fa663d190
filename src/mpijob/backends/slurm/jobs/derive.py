"""Where a job of ours stands: its own journals first, Slurm's word beside them; neither alone is believed.

What the launcher wrote about an end that nobody wanted from outside is the whole truth, whatever Slurm says of it later
(its exit codes are not to be relied on). An end that Slurm wanted has Slurm's reason. Pure: files and answers are read
by `job_reader`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from mpijob.backends.attempts.replay import Attempt
from mpijob.backends.slurm.jobs.job_files import JobFiles, Place
from mpijob.formats.launch.allocation import NOT_SHARED, NOT_WRITABLE
from mpijob.formats.slurm import job_states, pending_reasons
from mpijob.formats.slurm.batch_script import Comment
from mpijob.formats.slurm.job_states import JobState as SlurmState
from mpijob.formats.slurm.pending_reasons import Outlook
from mpijob.formats.slurm.queries import Row
from mpijob.model import JobState, Phase, Plan, WorkerState
from mpijob.model.spec import dependencies
from mpijob.observation.state import phase as phases
from mpijob.observation.state.phase import PhaseResult, Reason

_LOST = (SlurmState.NODE_FAIL, SlurmState.BOOT_FAIL, SlurmState.PREEMPTED)
_WHY_ENDED = re.compile(rb"CANCELLED AT \S+?(?: DUE TO (?P<why>[A-Z ]+))?(?:,| \*\*\*|$)")
_ENDS = {
    b"TIME LIMIT": SlurmState.TIMEOUT,
    b"NODE FAILURE": SlurmState.NODE_FAIL,
    b"PREEMPTION": SlurmState.PREEMPTED,
    b"JOB REQUEUE": SlurmState.REQUEUED,
}
REASONS = {
    SlurmState.TIMEOUT: Reason.TIME_LIMIT,
    SlurmState.DEADLINE: Reason.TIME_LIMIT,
    SlurmState.NODE_FAIL: Reason.NODE_FAILED,
    SlurmState.BOOT_FAIL: Reason.NODE_FAILED,
    SlurmState.OUT_OF_MEMORY: Reason.MEMORY_EXCEEDED,
    SlurmState.PREEMPTED: Reason.SLURM_PREEMPTED,
    SlurmState.REQUEUED: Reason.SLURM_REQUEUED,
    SlurmState.CANCELLED: Reason.CANCELLED,
    SlurmState.REVOKED: Reason.CANCELLED,
    SlurmState.FAILED: Reason.LAUNCHER_FAILED,
}
_ACT_SECONDS = 30.0  # an act is written down once Slurm has carried it out
_REASONS = {Outlook.USER: Reason.HELD, Outlook.NEVER: Reason.NEVER_STARTS}
_UNKNOWN = "Slurm does not know job {} any more, and neither its journal nor the accounting says how it ended"


class Seen(NamedTuple):
    """What is known of one job: its last attempt, Slurm's row (None: it has none for it), and whether Slurm answers.

    `silent` is why Slurm does not answer; `said` is the end of the launcher's log, where Slurm says why it ends a job.
    """

    files: JobFiles
    attempt: Attempt | None
    row: Row | None
    answered: bool
    now: float
    silent: str = ""
    said: bytes = b""


class Standing(NamedTuple):
    """Where the job stands, and whether nothing more will be learnt about that."""

    result: PhaseResult
    settled: bool = False
    attempt: int = 1


def state(seen: Seen) -> tuple[JobState, Standing]:
    """Return the job's state, without findings, and its standing."""
    return _state(seen, _standing(seen))


def earlier(seen: Seen) -> tuple[JobState, Standing]:
    """Return how an attempt ended that was not the job's last."""
    attempt, plan = seen.attempt, seen.files.plan
    assert attempt is not None
    if attempt.orderly:
        result = phases.derive(attempt.state.observe(ended=True, ranks_watched=_watched(plan)))
        return _state(seen, Standing(result, True, attempt.number))
    acts = [act for act in seen.files.acts if act.verb == "suspended" and act.time >= attempt.started]
    if acts and (attempt.ended is None or acts[0].time <= attempt.ended + _ACT_SECONDS):
        result = phases.derive(phases.Observation(queued=True, suspend_requested=True))
        return _state(seen, Standing(result, True, attempt.number))
    return _state(seen, _by_slurm(seen, attempt, _why_ended(seen) or SlurmState.REQUEUED))


def _state(seen: Seen, standing: Standing) -> tuple[JobState, Standing]:
    files, plan, result, attempt = seen.files, seen.files.plan, standing.result, seen.attempt
    job, began = plan.job, attempt is not None and attempt.number == standing.attempt
    ended = _finished(seen) if result.phase.final else None
    facts = attempt.state if attempt is not None and began else None
    exit = facts.launcher if facts else None
    queued = files.last_act("resumed")
    found = JobState(
        ref=files.place.ref,
        phase=result.phase,
        kind="SlurmJob",
        engine="slurm",
        mpi=plan.mpi,
        owner=job.owner or (seen.row.user if seen.row else "") or plan.env.get("USER", ""),
        labels=dict(job.labels),
        description=job.description,
        image=job.image,
        queue=job.queue,
        priority=job.priority_number,
        run=files.place.number,
        reason=result.reason.value,
        message=result.message,
        waiting_for=result.message if result.phase in (Phase.QUEUED, Phase.SUSPENDED) else "",
        estimated=plan.forecast(files.place.created_us / 1e6),
        attempt=standing.attempt,
        attempts_allowed=job.retry.limit + standing.attempt - files.retries,
        world=plan.world,
        workers_wanted=job.workers,
        created=files.place.created_us / 1e6,
        queued=queued.time if queued else files.place.created_us / 1e6,
        started=attempt.started if attempt and began else None,
        running=attempt.proved or (attempt.started if not job.census else None)
        if attempt and began
        else None,
        released=_released(seen, result),
        finished=ended,
        launcher_exit_code=exit.status if exit else None,
    )
    if facts is None:
        return found, standing
    if result.phase.final:
        facts.ending = True
    workers = facts.worker_states(result.phase, lambda index: _gpus(attempt, index))
    hosts = attempt.hosts if attempt else ()
    ranks = facts.rank_states()
    placed = tuple(_placed(worker, hosts, plan) for worker in workers)
    log = files.host.path(files.place.folder, f"a{standing.attempt}", "logs", "launcher.log")
    launcher = facts.launcher_state(result.phase, node=hosts[0] if hosts else "", log=log)
    return msgspec.structs.replace(found, launcher=launcher, workers=placed, ranks=ranks), standing


def _placed(worker: WorkerState, hosts: tuple[str, ...], plan: Plan) -> WorkerState:
    each = -(-plan.job.workers // max(1, len(hosts)))
    at = worker.index // each
    return msgspec.structs.replace(worker, node=hosts[at] if at < len(hosts) else "")


def _gpus(attempt: Attempt | None, worker: int) -> tuple[str, ...]:
    ranks = attempt.state.ranks.values() if attempt else ()
    return tuple(dict.fromkeys(gpu for rank in ranks if rank.worker == worker for gpu in rank.gpus))


def _standing(seen: Seen) -> Standing:
    files, attempt, row = seen.files, seen.attempt, seen.row
    number = attempt.number if attempt else 1
    cancelled, resting = files.last_act("cancelled"), files.last_act("suspended", "resumed")
    if row is not None and row.state.waits:
        return _waiting(seen, number)
    if resting is not None and resting.verb == "suspended" and not (row and row.ending):
        asleep = (
            attempt is None
            or attempt.ended is not None
            or (row is not None and row.state is SlurmState.COMPLETING)
        )
        if asleep or row is None:
            return Standing(
                phases.derive(phases.Observation(queued=True, suspend_requested=True)), False, number
            )
    if attempt is None:
        return _not_begun(seen)
    if attempt.orderly and not (
        resting and resting.verb == "resumed" and resting.time > (attempt.ended or 0.0)
    ):
        return _by_itself(seen, attempt, bool(cancelled))
    ending = (row.ending if row else None) or _why_ended(seen)
    if ending is None and row is None and seen.answered and not attempt.ended:
        return Standing(
            PhaseResult(Phase.FAILED, Reason.OUTCOME_UNKNOWN, _UNKNOWN.format(files.number)), False, number
        )
    again = seen.files.plan.job.requeue_on_lost_worker and not (row and row.state.final)
    if ending is SlurmState.REQUEUED or (ending in _LOST and again):
        back = PhaseResult(
            Phase.QUEUED, Reason.SLURM_REQUEUED, f"Slurm puts the job back into the queue: {ending.value}"
        )
        return Standing(back, False, number + 1)
    if cancelled and (ending is not None or attempt.ended or (row and row.state is SlurmState.COMPLETING)):
        return Standing(
            PhaseResult(Phase.CANCELLED, Reason.CANCELLED, "the job was cancelled"), bool(row), number
        )
    if ending is None:
        return Standing(_going(seen, attempt, cancelled=bool(cancelled)), False, number)
    return _by_slurm(seen, attempt, ending)


def _going(seen: Seen, attempt: Attempt, *, cancelled: bool) -> PhaseResult:
    """Return where a job stands that has not ended."""
    facts = attempt.state
    facts.cancelled = cancelled
    result = phases.derive(facts.observe(ended=False, ranks_watched=_watched(seen.files.plan)))
    if seen.silent and result.phase is Phase.RUNNING:
        return result._replace(message=f"{result.message}; this is what the nodes write: {seen.silent}")
    return result


def _watched(plan: Plan) -> bool:
    return not plan.own_launcher and plan.job.census


def _by_itself(seen: Seen, attempt: Attempt, cancelled: bool) -> Standing:
    """Return how an attempt ended that nobody ended from outside; Slurm may know a cause that it could not see."""
    facts, row = attempt.state, seen.row
    if attempt.retry_seconds is not None:
        left = max(0.0, (attempt.ended or 0.0) + attempt.retry_seconds - seen.now)
        result = phases.derive(phases.Observation(queued=True, retry_in_seconds=left))
        gone = row is not None and row.ending is not None
        if not gone:
            return Standing(result, False, attempt.number + 1)
    facts.cancelled = cancelled and bool(attempt.code)
    ending = row.ending if row else None
    if attempt.code and ending in (SlurmState.OUT_OF_MEMORY, SlurmState.NODE_FAIL) and facts.stopped is None:
        return _by_slurm(seen, attempt, ending)
    result = phases.derive(facts.observe(ended=True, ranks_watched=_watched(seen.files.plan)))
    return Standing(result, True, attempt.number)


def _by_slurm(seen: Seen, attempt: Attempt, ending: SlurmState) -> Standing:
    """Return how Slurm ended an attempt: its reason is the verdict, unless the job had failed before."""
    facts, row = attempt.state, seen.row
    if ending is SlurmState.COMPLETED or (ending is SlurmState.FAILED and attempt.ended):
        result = phases.derive(facts.observe(ended=True, ranks_watched=_watched(seen.files.plan)))
        return Standing(result, row is not None, attempt.number)
    said = row.sentence() if row and row.ending is ending else job_states.sentence(ending, seen.files.number)
    reason = REASONS.get(ending, Reason.LAUNCHER_FAILED)
    if ending is SlurmState.CANCELLED:
        return Standing(PhaseResult(Phase.CANCELLED, reason, said), row is not None, attempt.number)
    facts.stop(reason, said)
    result = phases.failure(facts.observe(ended=True, ranks_watched=False)) or PhaseResult(
        Phase.FAILED, reason, said
    )
    return Standing(result, row is not None, attempt.number)


def _why_ended(seen: Seen) -> SlurmState | None:
    """Return why Slurm ended the last attempt, as its own words in the launcher's log say."""
    if seen.attempt is None or seen.attempt.asked != "term":
        return None
    found = list(_WHY_ENDED.finditer(seen.said))
    if not found:
        return None
    return _ENDS.get((found[-1]["why"] or b"").strip(), SlurmState.CANCELLED)


def _not_begun(seen: Seen) -> Standing:
    """Return where a job stands whose script has not run: nothing of it is in its directory."""
    files, row = seen.files, seen.row
    if files.last_act("cancelled"):
        return Standing(
            PhaseResult(Phase.CANCELLED, Reason.CANCELLED, "the job was cancelled before it had started"),
            True,
        )
    if files.never_submitted:
        why = "it was not submitted to Slurm: the submitting command was killed"
        return Standing(PhaseResult(Phase.FAILED, Reason.START_REFUSED, why), True)
    if row is None and files.plan.waits_for:
        return _dependent(files, 1)
    if row is None:
        late = seen.answered and files.number and seen.now - files.place.created_us / 1e6 > 300
        unknown = PhaseResult(Phase.FAILED, Reason.OUTCOME_UNKNOWN, _UNKNOWN.format(files.number))
        return (
            Standing(unknown) if late else Standing(PhaseResult(Phase.QUEUED, Reason.WAITING, _handed(seen)))
        )
    if row.ending is None:
        return Standing(
            PhaseResult(Phase.PENDING, Reason.STARTING, f"Slurm prepares its nodes {row.nodes}".rstrip())
        )
    code, signal = job_states.exit_code(row.exit)
    if row.ending is SlurmState.CANCELLED and "Dependency" in row.reason:
        return Standing(
            PhaseResult(Phase.FAILED, Reason.DEPENDENCY_FAILED, "a job that it waits for did not succeed"),
            True,
        )
    if row.ending is SlurmState.CANCELLED and _launch_failed(row):
        # after a failed prolog Slurm cancels a job that may not be requeued, as root and without another word
        why = f"Slurm could not start it on {row.nodes} and cancelled it: a prolog failed, or a user cancelled it"
        return Standing(PhaseResult(Phase.FAILED, Reason.START_REFUSED, why), False)
    if row.ending is SlurmState.CANCELLED:
        return Standing(PhaseResult(Phase.CANCELLED, Reason.CANCELLED, row.sentence()), True)
    if (
        signal == job_states.LAUNCH_FAILED
        or code in (NOT_SHARED, NOT_WRITABLE)
        or row.ending is SlurmState.FAILED
    ):
        where = f"node {row.nodes}" if row.node_count == 1 else f"the first of {row.nodes or 'its nodes'}"
        why = f"{where} cannot use the job's directory {files.host.path(files.place.folder)}"
        return Standing(PhaseResult(Phase.FAILED, Reason.DIRECTORY_NOT_SHARED, why), True)
    reason = REASONS.get(row.ending, Reason.START_REFUSED)
    return Standing(PhaseResult(Phase.FAILED, reason, row.sentence()), True)


def _launch_failed(row: Row) -> bool:
    """Whether a job was cancelled in the second in which it had got its nodes."""
    at_once = row.started is not None and row.ended is not None and row.ended - row.started <= 1.0
    return at_once and bool(row.nodes)


def _handed(seen: Seen) -> str:
    return (
        f"Slurm has it as job {seen.files.number}" if seen.files.number else "it is being submitted to Slurm"
    )


def _waiting(seen: Seen, number: int) -> Standing:
    """Return where a job stands that has no nodes (yet, or again)."""
    files, row = seen.files, seen.row
    assert row is not None
    following = number + 1 if seen.attempt else 1
    resting = files.last_act("suspended", "resumed")
    meaning = pending_reasons.explain(row.reason)
    if resting is not None and resting.verb == "suspended":
        result = phases.derive(phases.Observation(queued=True, suspend_requested=True))
        return Standing(result, False, number)
    if files.plan.waits_for and row.reason in ("Dependency", "None", "Priority"):
        return _dependent(files, following)
    place = f"partition {row.partition}: " if row.partition else ""
    reason = {Outlook.USER: Reason.HELD, Outlook.NEVER: Reason.NEVER_STARTS}.get(
        meaning.outlook, Reason.WAITING
    )
    if seen.attempt and reason is Reason.WAITING:
        reason = Reason.SLURM_REQUEUED
    return Standing(
        PhaseResult(Phase.QUEUED, reason, f"{place}{meaning.message} ({row.reason})"), False, following
    )


def _dependent(files: JobFiles, number: int) -> Standing:
    text = dependencies.sentence(files.plan.entries)
    return Standing(PhaseResult(Phase.QUEUED, Reason.WAITING_FOR_JOBS, text), False, number)


def _released(seen: Seen, result: PhaseResult) -> float | None:
    if result.phase is not Phase.SUSPENDED or seen.attempt is None:
        return None
    act = seen.files.last_act("suspended")
    return seen.attempt.ended or (act.time if act else None)


def _finished(seen: Seen) -> float:
    """Return when a job ended: by its journal, by Slurm, by whoever cancelled it."""
    attempt, row = seen.attempt, seen.row
    if attempt is not None and attempt.ended is not None:
        return attempt.ended
    if row is not None and row.ending is not None and row.ended:
        return max(row.ended, attempt.started if attempt else 0.0)
    act = seen.files.last_act("cancelled")
    return (
        max(act.time if act else 0.0, attempt.entries[-1].time if attempt and attempt.entries else 0.0)
        or seen.now
    )


def queued(place: Place, row: Row, told: Comment) -> JobState:
    """Return the state of a job that only waits, from Slurm's row and comment alone."""
    meaning = pending_reasons.explain(row.reason)
    message = f"partition {row.partition}: {meaning.message} ({row.reason})"
    return JobState(
        ref=place.ref, phase=Phase.QUEUED, kind="SlurmJob", engine="slurm", mpi=told.mpi, owner=told.owner or row.user,
        labels=told.labels, queue=told.queue, priority=told.priority,
        reason=_REASONS.get(meaning.outlook, Reason.WAITING).value,
        message=message, waiting_for=message, world=told.n[1], workers_wanted=told.n[0], run=place.number,
        created=place.created_us / 1e6, queued=place.created_us / 1e6,
    )  # fmt: skip
