"""Finding jobs among all that are kept, and showing them; the caller holds the backend's lock."""

from __future__ import annotations

from typing import Any

import msgspec

from mpijob import admission
from mpijob.accounting import build
from mpijob.accounting.aggregate import tally
from mpijob.backends import scope_filter
from mpijob.backends.common_errors import no_such_job
from mpijob.backends.memory import queue
from mpijob.backends.memory.engine import Engine
from mpijob.backends.memory.record import Record
from mpijob.history import account_store
from mpijob.model import Facts, JobRef, JobState, MPIJob, Phase, RankState, Scope
from mpijob.model.spec.dependencies import Dependency, names, of_entries
from mpijob.model.status.accounts import Account, AccountQuery
from mpijob.model.status.mpi_profile import CallKind, MpiCall, MpiPeer, RankProfile
from mpijob.model.status.stacks import Means, RankStack

Seen = dict[str, tuple[int, JobState]]


def newest_of_each_name(engine: Engine) -> list[Record]:
    """Return the newest job of each name, newest first."""
    newest_of = {(r.state.ref.namespace, r.state.ref.name): r for r in engine.records.values()}
    return sorted(newest_of.values(), key=lambda record: -record.number)


def sorted_records(engine: Engine, *, runs: bool) -> list[Record]:
    """Return the newest job of each name, or every job, newest first."""
    if not runs:
        return newest_of_each_name(engine)
    return sorted(engine.records.values(), key=lambda record: -record.number)


def newest(engine: Engine, ref: JobRef) -> Record | None:
    """Return the newest job of that name, if there is any."""
    return next((record for record in newest_of_each_name(engine) if _same_name(record.state.ref, ref)), None)


def dependencies(engine: Engine, job: MPIJob) -> tuple[Dependency, ...]:
    """Return where the jobs stand that one waits for: the newest of each name."""
    refs = [JobRef(job.namespace, name) for name in names(job.after)]
    found = ((ref, newest(engine, ref)) for ref in refs)
    return of_entries(job.after, ((ref, record.state if record else None) for ref, record in found))


def find(engine: Engine, ref: JobRef) -> Record:
    """Return the job of that uid, or without a uid the newest of that name; raise NotFound."""
    found = engine.records.get(ref.uid) if ref.uid else newest(engine, ref)
    if found is None or found.state.ref.namespace != ref.namespace:
        raise no_such_job(ref)
    if ref.name and found.state.ref.name != ref.name:
        raise no_such_job(ref)
    return found


def records_to_delete(engine: Engine, ref: JobRef) -> list[Record]:
    """Return what goes with a job: an earlier one goes alone, the newest takes the earlier ones along."""
    found = find(engine, ref)
    if found is not newest(engine, ref):
        return [found]
    return [record for record in engine.records.values() if _same_name(record.state.ref, ref)]


def is_deleted(engine: Engine, record: Record) -> bool:
    """Return whether the job was deleted."""
    return record.state.ref.uid not in engine.records


def is_log_complete(engine: Engine, record: Record) -> bool:
    """Return whether nothing more will be said: the job has ended, is suspended, or was deleted."""
    return record.state.phase.final or record.state.phase is Phase.SUSPENDED or is_deleted(engine, record)


def facts(engine: Engine, namespace: str) -> Facts:
    """Return what the place says about itself, for jobs of one namespace."""
    records = list(engine.records.values())
    quota = engine.quotas.get(namespace)
    mine = [record.state for record in records if record.state.ref.namespace == namespace]
    return Facts(
        place="memory",
        capacity=engine.capacity,
        free=engine.capacity.minus(queue.held_amounts(records)),
        quota=queue.with_usage(quota, records) if quota else None,
        taken_names=frozenset(state.ref.name for state in mine if not state.phase.final),
        waiting_jobs=len(queue.order(records)),
        families={"mpich": "simulated", "openmpi": "simulated", "intel": "simulated"},
    )


def wait_fields(engine: Engine, job: MPIJob) -> dict[str, Any]:
    """Return when a job would start that is submitted now, as the fields of facts."""
    found = queue.forecast_new(job, engine.records.values(), engine.capacity, engine.quotas, engine.now)
    return {
        "wait_estimate_seconds": found.seconds,
        "wait_range_seconds": found.span,
        "wait_basis": found.basis,
    }


def view(engine: Engine, record: Record) -> JobState:
    """Return the state as shown: a waiting job knows its place and what it waits for."""
    if not record.is_queued or record.delayed_until is not None:
        return record.state
    if queue.is_throttled(record, engine.records.values()):
        text = admission.group_sentence(record.job)
        return msgspec.structs.replace(record.state, waiting_for=text, message=text)
    told = queue.forecasts(engine.records.values(), engine.capacity, engine.quotas, engine.now)
    found = told[record.state.ref.uid]
    known = msgspec.structs.replace(
        facts(engine, record.state.ref.namespace), waiting_jobs=(found.position or 1) - 1
    )
    text = admission.waiting_sentence(record.job, known)
    return msgspec.structs.replace(record.state.forecast(found), waiting_for=text, message=text)


def find_changes(engine: Engine, scope: Scope, seen: Seen) -> list[JobState]:
    """Return what a watcher has not seen yet, oldest job first; a deleted job is told once as Deleting."""
    fresh: list[JobState] = []
    for record in reversed(newest_of_each_name(engine)):
        uid = record.state.ref.uid
        told = uid in seen and seen[uid][0] == record.version
        if not told and scope_filter.matches(record.state, scope):
            fresh.append(view(engine, record))
            seen[uid] = (record.version, record.state)
    for uid in [uid for uid in seen if uid not in engine.records]:
        fresh.append(msgspec.structs.replace(seen.pop(uid)[1], phase=Phase.DELETING))
    return fresh


def sleeping_stack(record: Record, rank: RankState) -> RankStack:
    """Return the stack of a played rank."""
    program = (record.job.argv or ("",))[0]
    return RankStack(
        rank=rank.rank, worker=rank.worker, program=program, means=Means.PROC, state="S", threads=1
    )


def mpi_profiles(engine: Engine, record: Record) -> tuple[RankProfile, ...]:
    """Return a profile of each rank that was played: sums over all, and messages to the next rank."""
    state, world = record.state, record.plan.world
    if not record.job.profile_mpi or state.running is None:
        return ()
    seconds = max(0.0, (engine.now if state.finished is None else state.finished) - state.running)
    calls = (
        MpiCall("MPI_Allreduce", CallKind.COLLECTIVE, 100, 0.15 * seconds, 100 * 8000),
        MpiCall("MPI_Sendrecv", CallKind.POINT_TO_POINT, 100, 0.05 * seconds, 100 * 1000),
    )
    return tuple(
        RankProfile(
            rank=one.rank, world=world, worker=one.worker, started=state.running, seconds=seconds,
            mpi_seconds=0.2 * seconds, calls=calls, ended=state.finished is not None, library="simulated",
            peers=(MpiPeer((one.rank + 1) % world, 100 * 1000, 100, waited_seconds=0.05 * seconds),),
        )
        for one in state.ranks
    )  # fmt: skip


def _same_name(one: JobRef, other: JobRef) -> bool:
    return (one.namespace, one.name) == (other.namespace, other.name)


def accounts(engine: Engine, query: AccountQuery) -> tuple[Account, ...]:
    """Return the accounts that are wanted, newest first."""
    made = [
        build.account(
            record.state, record.job, record.plan.needs, [*tally(record.samples).values()], now=engine.now
        )
        for record in engine.records.values()
    ]
    wanted = [one for one in made if account_store.matches(one, query)]
    return tuple(sorted(wanted, key=account_store.sort_key, reverse=True)[: query.limit + 1])
