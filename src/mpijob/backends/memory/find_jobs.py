"""Find simulated jobs, and derive what is shown of them; the caller holds the backend's lock."""

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

# By uid: the version that a watcher was sent last, and its state.
KnownStates = dict[str, tuple[int, JobState]]


def newest_of_each_name(engine: Engine) -> list[Record]:
    """Return the newest job of each name, newest first."""
    # Records are in the order of submission: the last one of a name stays.
    newest_of = {record.full_name: record for record in engine.records.values()}
    return sorted(newest_of.values(), key=lambda record: -record.number)


def sorted_records(engine: Engine, *, runs: bool) -> list[Record]:
    """Return the newest job of each name, or every job, newest first."""
    if not runs:
        return newest_of_each_name(engine)
    return sorted(engine.records.values(), key=lambda record: -record.number)


def newest(engine: Engine, ref: JobRef) -> Record | None:
    name = (ref.namespace, ref.name)
    return next((record for record in newest_of_each_name(engine) if record.full_name == name), None)


def dependencies(engine: Engine, job: MPIJob) -> tuple[Dependency, ...]:
    """Return the jobs that this one waits for, the newest of each name, with their states."""
    refs = [JobRef(job.namespace, name) for name in names(job.after)]
    found = ((ref, newest(engine, ref)) for ref in refs)
    return of_entries(job.after, ((ref, record.state if record else None) for ref, record in found))


def find(engine: Engine, ref: JobRef) -> Record:
    """Return the job with this uid, or, without a uid, the newest with this name; raise NotFound."""
    record = engine.records.get(ref.uid) if ref.uid else newest(engine, ref)
    if record is None or record.full_name != (ref.namespace, ref.name or record.job.name):
        raise no_such_job(ref)
    return record


def records_to_delete(engine: Engine, ref: JobRef) -> list[Record]:
    """Return the jobs that are deleted with this one: with the newest of a name, all earlier ones."""
    found = find(engine, ref)
    if found is not newest(engine, ref):
        return [found]
    return [record for record in engine.records.values() if record.full_name == found.full_name]


def is_deleted(engine: Engine, record: Record) -> bool:
    return record.state.ref.uid not in engine.records


def is_log_complete(engine: Engine, record: Record) -> bool:
    return record.state.phase.final or record.state.phase is Phase.SUSPENDED or is_deleted(engine, record)


def facts(engine: Engine, namespace: str) -> Facts:
    records = list(engine.records.values())
    quota = engine.quotas.get(namespace)
    mine = [record for record in records if record.job.namespace == namespace]
    return Facts(
        place="memory",
        capacity=engine.capacity,
        free=engine.capacity.minus(queue.held_amounts(records)),
        quota=queue.with_usage(quota, records) if quota else None,
        taken_names=frozenset(record.job.name for record in mine if not record.state.phase.final),
        waiting_jobs=len(queue.order(records)),
        families={"mpich": "simulated", "openmpi": "simulated", "intel": "simulated"},
    )


def wait_fields(engine: Engine, job: MPIJob) -> dict[str, Any]:
    """Return the fields of `Facts` that forecast the start of a job submitted now."""
    forecast = queue.forecast_new(engine, job)
    return {
        "wait_estimate_seconds": forecast.seconds,
        "wait_range_seconds": forecast.span,
        "wait_basis": forecast.basis,
    }


def view(engine: Engine, record: Record) -> JobState:
    """Return the state as shown: of a waiting job with its position, its forecast, and what it waits for."""
    # A delayed job is not in the order of the queue; its message already says what it waits for.
    if not record.is_queued or record.delayed_until is not None:
        return record.state
    if queue.is_throttled(record, engine.records.values()):
        text = admission.group_sentence(record.job)
        return msgspec.structs.replace(record.state, waiting_for=text, message=text)
    forecast = queue.forecasts(engine)[record.state.ref.uid]
    job_facts = msgspec.structs.replace(
        facts(engine, record.job.namespace), waiting_jobs=(forecast.position or 1) - 1
    )
    text = admission.waiting_sentence(record.job, job_facts)
    return msgspec.structs.replace(record.state.forecast(forecast), waiting_for=text, message=text)


def find_changes(engine: Engine, scope: Scope, known: KnownStates) -> list[JobState]:
    """Return the states that differ from the known ones, the oldest job first, and update `known`.

    A deleted job is returned once, as Deleting.
    """
    changes: list[JobState] = []
    for record in reversed(newest_of_each_name(engine)):
        uid = record.state.ref.uid
        is_known = uid in known and known[uid][0] == record.version
        if not is_known and scope_filter.matches(record.state, scope):
            changes.append(view(engine, record))
            known[uid] = (record.version, record.state)
    for uid in [uid for uid in known if uid not in engine.records]:
        changes.append(msgspec.structs.replace(known.pop(uid)[1], phase=Phase.DELETING))
    return changes


def sleeping_stack(record: Record, rank: RankState) -> RankStack:
    program = (record.job.argv or ("",))[0]
    return RankStack(
        rank=rank.rank, worker=rank.worker, program=program, means=Means.PROC, state="S", threads=1
    )


def mpi_profiles(engine: Engine, record: Record) -> tuple[RankProfile, ...]:
    """Return an invented profile for each rank of a job that has started."""
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
            rank=rank.rank, world=world, worker=rank.worker, started=state.running, seconds=seconds,
            mpi_seconds=0.2 * seconds, calls=calls, ended=state.finished is not None, library="simulated",
            peers=(MpiPeer((rank.rank + 1) % world, 100 * 1000, 100, waited_seconds=0.05 * seconds),),
        )
        for rank in state.ranks
    )  # fmt: skip


def accounts(engine: Engine, query: AccountQuery) -> tuple[Account, ...]:
    """Return the matching accounts, newest first, at most one more than the query's limit."""
    all_accounts = [
        build.account(
            record.state, record.job, record.plan.needs, [*tally(record.samples).values()], now=engine.now
        )
        for record in engine.records.values()
    ]
    matching = [account for account in all_accounts if account_store.matches(account, query)]
    return tuple(sorted(matching, key=account_store.sort_key, reverse=True)[: query.limit + 1])
