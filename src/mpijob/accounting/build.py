"""One job's account, from where it stood, what was asked for and what was measured."""

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
    """Return the account of a job as it stands at this moment; `needs` is what it holds while it runs."""
    held = _held_seconds(state, tallies, now)
    first = state.findings[0] if state.findings and state.phase is Phase.FAILED else None
    used = [one for one in tallies if one.samples]
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
        exit_code=exit_code(state), reason=state.reason, cause=first.code if first else "",
        message=first.message if first else state.message,
        cores=needs.cores, memory_bytes=needs.memory_bytes, gpus=needs.gpus,
        worker_memory_bytes=0 if job is None else job.resources.asked.memory_bytes,
        core_hours=needs.cores * hours, gib_hours=needs.memory_bytes / GIB * hours, gpu_hours=needs.gpus * hours,
        measured=bool(used),
        core_hours_used=sum(one.cpu_seconds for one in used) / HOUR,
        gib_hours_used=sum(one.byte_seconds for one in used) / HOUR / GIB,
        gpu_hours_used=sum(one.gpu_seconds for one in used) / HOUR,
        peak_bytes=max((one.peak_bytes for one in used), default=0),
        steps=state.steps, priority=state.priority, deadline_seconds=None if job is None else job.deadline_seconds,
    )  # fmt: skip


def steps(one: Account) -> tuple[Account, ...]:
    """Return an account for each step of a script, named as sacct does: JOB.0. What is held is the job's alone."""
    return tuple(
        Account(
            ref=JobRef(one.ref.namespace, f"{one.ref.name}.{step.number}", one.ref.uid), phase=_phase(step, one),
            owner=one.owner, queue=one.queue, engine=one.engine, mpi=one.mpi, image=one.image, attempt=one.attempt,
            workers=len(step.workers) or one.workers, ranks=step.ranks, nodes=one.nodes,
            created=step.started, started=step.started, running=step.started, ended=step.finished,
            held_seconds=(step.finished or one.ended or step.started) - step.started, exit_code=step.exit_code,
            message=step.command, measured=step.peak_bytes > 0, peak_bytes=step.peak_bytes,
        )
        for step in one.steps
    )  # fmt: skip


def _phase(step: StepState, job: Account) -> Phase:
    if step.exit_code is None:
        return job.phase
    return Phase.FAILED if step.exit_code else Phase.SUCCEEDED


def program(job: MPIJob) -> str:
    """Return what jobs that run the same program have in common: the command without its numbers, and the image."""
    text = "\0".join([_NUMBER.sub("#", word) for word in job.words] + [job.image.partition("@")[0]])
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def exit_code(state: JobState) -> int | None:
    """Return how the job ended as a shell tells it: the code of the rank that failed first, else the launcher's."""
    own = [one for one in state.ranks if one.exit_code and not one.followed]
    blamed = [one for one in own if _is_blamed(one, state)]
    workers = [one for one in state.workers if one.exit_code]
    first = next(iter(blamed or own), None) if state.findings or not state.launcher_exit_code else None
    codes = (first and first.exit_code, state.launcher_exit_code, *(one.exit_code for one in workers))
    return next((code for code in codes if code), state.launcher_exit_code)


def _is_blamed(rank: RankState, state: JobState) -> bool:
    if not state.findings:
        return False
    cause = state.findings[0]
    return rank.rank == cause.rank if cause.rank is not None else rank.worker == cause.worker


def _held_seconds(state: JobState, tallies: Iterable[Tally], now: float) -> float:
    """Return how long the job held its room: the last attempt by its times, earlier ones by what was measured."""
    spans: dict[int, float] = {}
    for one in tallies:
        if one.attempt < state.attempt:
            spans[one.attempt] = max(spans.get(one.attempt, 0.0), one.last - one.first)
    return (state.duration_seconds(now) or 0.0) + sum(spans.values())
