"""Build the account of a job from its state, its spec and what was measured.

An account counts what was held and what was used: a GPU that a job holds is available to nobody else, so its
cost follows what was held (docs/decisions/0031).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

from mpijob.model import Amounts, JobRef, JobState, MPIJob, Phase, RankState, StepState
from mpijob.model.status.accounts import GIB, HOUR, Account, Tally

_NOTHING = Amounts()
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def account(
    state: JobState,
    job: MPIJob | None = None,
    needs: Amounts = _NOTHING,
    tallies: Sequence[Tally] = (),
    *,
    now: float,
) -> Account:
    """Return the account of a job at this time; `needs` are the resources it holds while it runs."""
    held = _held_time(state, tallies, now)
    cause = state.findings[0] if state.findings and state.phase is Phase.FAILED else None
    measured = [tally for tally in tallies if tally.samples]
    hours = held / HOUR
    return Account(
        ref=state.ref, phase=state.phase, owner=state.owner, queue=state.queue, engine=state.engine,
        mpi=state.mpi, image=state.image, program="" if job is None else program(job),
        labels=dict(state.labels or (job.labels if job else {})), cost_labels=dict(job.cost) if job else {},
        attempt=state.attempt, workers=state.workers_wanted, ranks=state.world,
        nodes=tuple(sorted({worker.node for worker in state.workers if worker.node})),
        created=state.created, started=state.started, running=state.running,
        ended=(state.finished if state.phase.final else None) or state.deleted, deleted=state.deleted,
        queued_seconds=state.queued_seconds(now), held_seconds=held,
        exit_code=exit_code(state), reason=state.reason, cause=cause.code if cause else "",
        message=cause.message if cause else state.message,
        cores=needs.cores, memory_bytes=needs.memory_bytes, gpus=needs.gpus,
        worker_memory_bytes=0 if job is None or job.groups else job.resources.asked.memory_bytes,
        core_hours=needs.cores * hours, gib_hours=needs.memory_bytes / GIB * hours, gpu_hours=needs.gpus * hours,
        measured=bool(measured),
        core_hours_used=sum(tally.cpu_seconds for tally in measured) / HOUR,
        gib_hours_used=sum(tally.byte_seconds for tally in measured) / HOUR / GIB,
        gpu_hours_used=sum(tally.gpu_seconds for tally in measured) / HOUR,
        peak_bytes=max((tally.peak_bytes for tally in measured), default=0),
        steps=state.steps, priority=state.priority, deadline_seconds=None if job is None else job.deadline_seconds,
    )  # fmt: skip


def step_accounts(job: Account) -> tuple[Account, ...]:
    """Return an account for each step of a script, named as in sacct (JOB.0). The job alone holds resources."""
    return tuple(
        Account(
            ref=JobRef(job.ref.namespace, f"{job.ref.name}.{step.number}", job.ref.uid), phase=_phase(step, job),
            owner=job.owner, queue=job.queue, engine=job.engine, mpi=job.mpi, image=job.image, attempt=job.attempt,
            workers=len(step.workers) or job.workers, ranks=step.ranks, nodes=job.nodes,
            created=step.started, started=step.started, running=step.started, ended=step.finished,
            held_seconds=(step.finished or job.ended or step.started) - step.started, exit_code=step.exit_code,
            message=step.command, measured=step.peak_bytes > 0, peak_bytes=step.peak_bytes,
        )
        for step in job.steps
    )  # fmt: skip


def _phase(step: StepState, job: Account) -> Phase:
    if step.exit_code is None:
        return job.phase
    return Phase.FAILED if step.exit_code else Phase.SUCCEEDED


def program(job: MPIJob) -> str:
    """Return an id that jobs running the same program share: of the command without its numbers, and the image."""
    # Numbers are typically sizes and seeds: runs that differ only in them are runs of the same program.
    text = "\0".join([_NUMBER.sub("#", word) for word in job.words] + [job.image.partition("@")[0]])
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def exit_code(state: JobState) -> int | None:
    """Return the exit code as a shell would report it: of the rank that failed first, else the launcher's."""
    # Other ranks often fail only because of the first one, and the launcher reports a code of its own.
    failed = [item for item in state.ranks if item.exit_code and not item.followed]
    blamed = [item for item in failed if _matches_cause(item, state)]
    workers = [item for item in state.workers if item.exit_code]
    first = next(iter(blamed or failed), None) if state.findings or not state.launcher_exit_code else None
    codes = (first and first.exit_code, state.launcher_exit_code, *(item.exit_code for item in workers))
    return next((code for code in codes if code), state.launcher_exit_code)


def _matches_cause(rank: RankState, state: JobState) -> bool:
    if not state.findings:
        return False
    cause = state.findings[0]
    return rank.rank == cause.rank if cause.rank is not None else rank.worker == cause.worker


def _held_time(state: JobState, tallies: Iterable[Tally], now: float) -> float:
    # The last attempt counts by its times; of earlier attempts only the samples are left.
    seconds_by_attempt: dict[int, float] = {}
    for tally in tallies:
        if tally.attempt < state.attempt:
            seconds_by_attempt[tally.attempt] = max(
                seconds_by_attempt.get(tally.attempt, 0.0), tally.last - tally.first
            )
    return (state.duration_seconds(now) or 0.0) + sum(seconds_by_attempt.values())
