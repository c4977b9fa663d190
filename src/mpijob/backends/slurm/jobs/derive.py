"""Where a job of ours stands: its own journals first, Slurm's word beside them; neither alone is believed.

What the launcher wrote about an end that nobody wanted from outside is the whole truth, whatever Slurm says of it later
(its exit codes are not to be relied on). An end that Slurm wanted has Slurm's reason. Pure: files and answers are read
by `job_reader`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from mpijob.backends.attempts.replay import Attempt
from mpijob.backends.slurm.jobs.job_files import JobFiles, Place
from mpijob.errors import MpiJobError, NotFound
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

# States in which Slurm requeues a job by itself if it may.
_LOST = (SlurmState.NODE_FAIL, SlurmState.BOOT_FAIL, SlurmState.PREEMPTED)
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
# Slurm forgets a job after MinJobAge (300 s by default); one that it does not know by then stays unknown.
_LATE_SECONDS = 300.0
# The owner's action is noted once Slurm has carried it out.
_ACT_SECONDS = 30.0
_WAITS = {Outlook.USER: Reason.HELD, Outlook.NEVER: Reason.NEVER_STARTS}
_RESTS = phases.derive(phases.Observation(queued=True, suspend_requested=True))
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
    attempt = seen.attempt
    assert attempt is not None
    if attempt.ended_by_itself:
        return _state(seen, Standing(_ended(seen, attempt), True, attempt.number))
    acts = [act for act in seen.files.acts if act.verb == "suspended" and act.time >= attempt.started]
    if acts and (attempt.ended is None or acts[0].time <= attempt.ended + _ACT_SECONDS):
        return _state(seen, Standing(_RESTS, True, attempt.number))
    return _state(seen, _by_slurm(seen, attempt, _why_ended(seen) or SlurmState.REQUEUED))


def _state(seen: Seen, standing: Standing) -> tuple[JobState, Standing]:
    files, plan, result = seen.files, seen.files.plan, standing.result
    resumed, owner = files.last_act("resumed"), seen.row.user if seen.row else ""
    first = plan.first_state(owner or plan.env.get("USER", ""), files.place.created, files.place.number)
    found = msgspec.structs.replace(
        first,
        kind="SlurmJob",
        phase=result.phase,
        reason=result.reason.value,
        message=result.message,
        waiting_for=result.message if result.phase in (Phase.QUEUED, Phase.SUSPENDED) else "",
        attempt=standing.attempt,
        attempts_allowed=plan.job.retry.limit + standing.attempt - files.retries,
        queued=resumed.time if resumed else first.queued,
        released=_released(seen, result),
        finished=_finished(seen) if result.phase.final else None,
    )
    if seen.attempt is not None and seen.attempt.number == standing.attempt:
        found = with_ranks(found, files, seen.attempt)
    return found, standing


def with_ranks(state: JobState, files: JobFiles, attempt: Attempt) -> JobState:
    """Return a state with what the attempt's journals tell of its launcher, workers and ranks."""
    facts, hosts, job = attempt.state, attempt.hosts, files.plan.job
    if state.phase.final:
        facts.ending = True
    workers = facts.worker_states(state.phase, lambda index: _gpus(attempt, index))
    log = files.host.path(files.place.folder, f"a{attempt.number}", "logs", "launcher.log")
    return msgspec.structs.replace(
        state,
        started=attempt.started,
        running=attempt.proved or (None if job.census else attempt.started),
        launcher_exit_code=facts.launcher.status if facts.launcher else None,
        launcher=facts.launcher_state(state.phase, node=hosts[0] if hosts else "", log=log),
        workers=tuple(_placed(worker, attempt.places) for worker in workers),
        ranks=facts.rank_states(),
    )


def _placed(worker: WorkerState, places: tuple[str, ...]) -> WorkerState:
    return msgspec.structs.replace(worker, node=places[worker.index] if worker.index < len(places) else "")


def _gpus(attempt: Attempt, worker: int) -> tuple[str, ...]:
    ranks = attempt.state.ranks.values()
    return tuple(dict.fromkeys(gpu for rank in ranks if rank.worker == worker for gpu in rank.gpus))


def _standing(seen: Seen) -> Standing:
    files, attempt, row = seen.files, seen.attempt, seen.row
    number = attempt.number if attempt else 1
    cancelled, resumed = files.last_act("cancelled"), files.last_act("resumed")
    completing = row is not None and row.state is SlurmState.COMPLETING
    if row is not None and row.state.waits:
        return _waiting(seen, row, number)
    # The nodes are given back: the journal has an end, or Slurm no longer runs the job.
    given_back = attempt is None or row is None or attempt.ended is not None or completing
    if files.suspended and given_back and not (row and row.ending):
        return Standing(_RESTS, False, number)
    if attempt is None:
        return _not_begun(seen)
    # A resumed job is requeued, and its last journal is that of the attempt before.
    again = resumed is not None and not files.suspended and resumed.time > (attempt.ended or 0.0)
    if attempt.ended_by_itself and not again:
        return _by_itself(seen, attempt, bool(cancelled))
    ending = (row.ending if row else None) or _why_ended(seen)
    # Slurm responds and does not know the job, whose journal has no end.
    if ending is None and row is None and seen.answered and not attempt.ended:
        return _failed(Reason.OUTCOME_UNKNOWN, _UNKNOWN.format(files.number), settled=False, attempt=number)
    # Slurm requeues such a job itself, under the same number.
    requeue = files.plan.job.requeue_on_lost_worker and not (row and row.state.final)
    if ending is SlurmState.REQUEUED or (ending in _LOST and requeue):
        message = f"Slurm puts the job back into the queue: {ending.value}"
        return Standing(PhaseResult(Phase.QUEUED, Reason.SLURM_REQUEUED, message), False, number + 1)
    if cancelled and (ending is not None or attempt.ended or completing):
        return _cancelled("the job was cancelled", bool(row), number)
    if ending is None:
        return Standing(_going(seen, attempt, cancelled=bool(cancelled)), False, number)
    return _by_slurm(seen, attempt, ending)


def _failed(reason: Reason, message: str, *, settled: bool = True, attempt: int = 1) -> Standing:
    return Standing(PhaseResult(Phase.FAILED, reason, message), settled, attempt)


def _cancelled(message: str, settled: bool = True, attempt: int = 1) -> Standing:
    return Standing(PhaseResult(Phase.CANCELLED, Reason.CANCELLED, message), settled, attempt)


def _going(seen: Seen, attempt: Attempt, *, cancelled: bool) -> PhaseResult:
    """Return where a job stands that has not ended."""
    facts = attempt.state
    facts.cancelled = cancelled
    result = phases.derive(facts.observe(ended=False, ranks_watched=_watched(seen.files.plan)))
    if seen.silent and result.phase is Phase.RUNNING:
        return result._replace(message=f"{result.message}; last output of the nodes: {seen.silent}")
    return result


def _ended(seen: Seen, attempt: Attempt) -> PhaseResult:
    """Return how an attempt ended, by what its ranks and its launcher wrote."""
    return phases.derive(attempt.state.observe(ended=True, ranks_watched=_watched(seen.files.plan)))


def _watched(plan: Plan) -> bool:
    return not plan.own_launcher and plan.job.census


def _by_itself(seen: Seen, attempt: Attempt, cancelled: bool) -> Standing:
    """Return how an attempt ended that nobody ended from outside; Slurm may know a cause that it could not see."""
    facts, row = attempt.state, seen.row
    if attempt.retry_seconds is not None:
        left = max(0.0, (attempt.ended or 0.0) + attempt.retry_seconds - seen.now)
        if row is None or row.ending is None:
            result = phases.derive(phases.Observation(queued=True, retry_in_seconds=left))
            return Standing(result, False, attempt.number + 1)
    facts.cancelled = cancelled and bool(attempt.code)
    ending = row.ending if row else None
    # The launcher sees a killed rank only; that memory or a node was the cause is known to Slurm.
    if attempt.code and ending in (SlurmState.OUT_OF_MEMORY, SlurmState.NODE_FAIL) and facts.stopped is None:
        return _by_slurm(seen, attempt, ending)
    return Standing(_ended(seen, attempt), True, attempt.number)


def _by_slurm(seen: Seen, attempt: Attempt, ending: SlurmState) -> Standing:
    """Return how Slurm ended an attempt: its reason is the verdict, unless the job had failed before."""
    row = seen.row
    if ending is SlurmState.COMPLETED or (ending is SlurmState.FAILED and attempt.ended):
        return Standing(_ended(seen, attempt), row is not None, attempt.number)
    said = row.sentence() if row and row.ending is ending else job_states.sentence(ending, seen.files.number)
    reason = REASONS.get(ending, Reason.LAUNCHER_FAILED)
    if ending is SlurmState.CANCELLED:
        return _cancelled(said, row is not None, attempt.number)
    # So that ranks that Slurm killed are not taken for the cause.
    attempt.state.stop(reason, said)
    result = phases.failure(attempt.state.observe(ended=True, ranks_watched=False))
    failed = _failed(reason, said, settled=row is not None, attempt=attempt.number)
    return failed if result is None else failed._replace(result=result)


def _why_ended(seen: Seen) -> SlurmState | None:
    """Return why Slurm ended the last attempt, as its own words in the launcher's log say."""
    # Slurm writes its reason into the launcher's log when it sends SIGTERM.
    if seen.attempt is None or seen.attempt.stop_reason != "term":
        return None
    return job_states.read_log(seen.said)


def _not_begun(seen: Seen) -> Standing:
    """Return where a job stands whose script has not run: nothing of it is in its directory."""
    files, row = seen.files, seen.row
    if files.last_act("cancelled"):
        return _cancelled("the job was cancelled before it had started")
    if files.never_submitted:
        return _failed(
            Reason.START_REFUSED, "it was not submitted to Slurm: the submitting command was killed"
        )
    if row is None:
        return _unseen(seen)
    if row.ending is None:
        message = f"Slurm prepares its nodes {row.nodes}".rstrip()
        return Standing(PhaseResult(Phase.PENDING, Reason.STARTING, message))
    if row.ending is SlurmState.CANCELLED:
        return _cancelled_before(row)
    # The batch script's own exit codes for a directory that the node does not have.
    code, signal = job_states.exit_code(row.exit)
    refused = signal == job_states.LAUNCH_FAILED or code in (NOT_SHARED, NOT_WRITABLE)
    if refused or row.ending is SlurmState.FAILED:
        where = f"node {row.nodes}" if row.node_count == 1 else f"the first of {row.nodes or 'its nodes'}"
        why = f"{where} cannot use the job's directory {files.host.path(files.place.folder)}"
        return _failed(Reason.DIRECTORY_NOT_SHARED, why)
    return _failed(REASONS.get(row.ending, Reason.START_REFUSED), row.sentence())


def _unseen(seen: Seen) -> Standing:
    """Return where a job stands of which there is neither a journal nor a word of Slurm's."""
    files = seen.files
    if files.plan.waits_for:
        return _dependent(files, 1)
    if seen.answered and files.number and seen.now - files.place.created > _LATE_SECONDS:
        return _failed(Reason.OUTCOME_UNKNOWN, _UNKNOWN.format(files.number), settled=False)
    told = f"Slurm has it as job {files.number}" if files.number else "it is being submitted to Slurm"
    return Standing(PhaseResult(Phase.QUEUED, Reason.WAITING, told))


def _cancelled_before(row: Row) -> Standing:
    """Return where a job stands that was cancelled before it began, and not by its owner here."""
    if "Dependency" in row.reason:
        return _failed(Reason.DEPENDENCY_FAILED, "a job that it waits for did not succeed")
    at_once = row.started is not None and row.ended is not None and row.ended - row.started <= 1.0
    if at_once and row.nodes:
        # after a failed prolog Slurm cancels a job that may not be requeued, as root and without another word
        why = f"Slurm could not start it on {row.nodes} and cancelled it: a prolog failed, or a user cancelled it"
        return _failed(Reason.START_REFUSED, why, settled=False)
    return _cancelled(row.sentence())


def _waiting(seen: Seen, row: Row, number: int) -> Standing:
    """Return where a job stands that has no nodes (yet, or again)."""
    files, following = seen.files, number + 1 if seen.attempt else 1
    if files.suspended:
        return Standing(_RESTS, False, number)
    if files.plan.waits_for and row.reason in ("Dependency", "None", "Priority"):
        return _dependent(files, following)
    result = pending(row)
    if seen.attempt and result.reason is Reason.WAITING:
        result = result._replace(reason=Reason.SLURM_REQUEUED)
    return Standing(result, False, following)


def pending(row: Row) -> PhaseResult:
    """Return where a job stands that waits in Slurm's queue: why, and whether it will start as it is."""
    meaning = pending_reasons.explain(row.reason)
    place = f"partition {row.partition}: " if row.partition else ""
    reason = _WAITS.get(meaning.outlook, Reason.WAITING)
    return PhaseResult(Phase.QUEUED, reason, f"{place}{meaning.message} ({row.reason})")


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
    noted = attempt.entries[-1].time if attempt and attempt.entries else 0.0
    return max(act.time if act else 0.0, noted) or seen.now


def queued(place: Place, row: Row, told: Comment) -> JobState:
    """Return the state of a job that only waits, from Slurm's row and comment alone."""
    result = pending(row)
    return _listed(
        place, result, mpi=told.mpi, owner=told.owner or row.user, labels=told.labels, queue=told.queue,
        priority=told.priority, waiting_for=result.message, world=told.n[1], workers_wanted=told.n[0],
        description=told.description,
    )  # fmt: skip


def unreadable(place: Place, error: MpiJobError) -> JobState:
    """Return the state of a job whose files are being removed, or are damaged."""
    if isinstance(error, NotFound):
        return _listed(place, phases.derive(phases.Observation(delete_requested=True)))
    return _listed(place, PhaseResult(Phase.FAILED, Reason.OUTCOME_UNKNOWN, error.message))


def _listed(place: Place, result: PhaseResult, **known: Any) -> JobState:
    """Return the state of a job whose own files are not read."""
    return JobState(
        ref=place.ref, phase=result.phase, kind="SlurmJob", engine="slurm", reason=result.reason.value,
        message=result.message, run=place.number, created=place.created, queued=place.created, **known,
    )  # fmt: skip
