"""Accounts of existing and deleted jobs: usage, cost, estimates.

The engine has the existing jobs, the record the deleted ones; a job in both is taken from the engine.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from mpijob import admission
from mpijob.accounting import build, costs, estimates, reports, right_sizing
from mpijob.accounting.aggregate import tally
from mpijob.backends.capabilities import SupportsDefaultImage, SupportsRates
from mpijob.client.observe import one_attempt
from mpijob.errors import BackendError, Finding, Severity
from mpijob.history import account_store
from mpijob.model import Phase
from mpijob.model.status.accounts import Account, AccountPage, AccountQuery

if TYPE_CHECKING:
    from mpijob.accounting.costs import Budget
    from mpijob.accounting.estimates import Estimate
    from mpijob.accounting.reports import Report
    from mpijob.accounting.right_sizing import SizingReport
    from mpijob.backends.protocol import Backend
    from mpijob.model import JobKey, JobRef, JobState, MPIJob, Plan, Sample
    from mpijob.settings import RateSetting, Settings

_ALL = 1_000_000
# Earlier runs that an estimate is computed from.
_RUNS = 200


def query(
    namespace: str,
    *,
    names: Iterable[str] = (),
    owners: Iterable[str] = (),
    phases: Iterable[Phase | str] = (),
    **chosen: Any,
) -> AccountQuery:
    """Return the query for these filters."""
    words = tuple(Phase(phase).value for phase in phases)
    return AccountQuery(namespace=namespace, names=tuple(names), owners=tuple(owners), phases=words, **chosen)


def page(backend: Backend, wanted: AccountQuery) -> AccountPage:
    """Return one page of accounts, newest first."""
    found: list[Account] = []
    for one in _all(backend, wanted):
        found.append(one)
        if len(found) > wanted.limit:
            break
    more = len(found) > wanted.limit
    return AccountPage(
        tuple(found[: wanted.limit]), account_store.cursor(found[wanted.limit - 1]) if more else ""
    )


def _all(backend: Backend, wanted: AccountQuery) -> Iterator[Account]:
    here = backend.accounts(wanted)
    past = backend.history()
    known = {one.ref.key for one in here}
    gone = () if past is None else (one for one in past.accounts(wanted) if one.ref.key not in known)
    return heapq.merge(here, gone, key=account_store.sort_key, reverse=True)


def of(backend: Backend, refs: Sequence[JobRef]) -> dict[JobKey, Account]:
    """Return the accounts of these jobs."""
    found: dict[JobKey, Account] = {}
    # By namespace: few users may list all namespaces at once.
    for namespace in sorted({ref.namespace for ref in refs}):
        here = {ref.key: ref.name for ref in refs if ref.namespace == namespace}
        wanted = AccountQuery(namespace=namespace, names=tuple(here.values()), limit=_ALL)
        found |= {one.ref.key: one for one in _all(backend, wanted) if one.ref.key in here}
    return found


def of_attempts(ref: JobRef, reads: Backend, wanted: Sequence[int]) -> tuple[Account, ...]:
    """Return the accounts of all attempts, or of these; raise NotFound for one that the job does not have."""
    job, samples = reads.spec(ref), reads.samples(ref)
    states = reads.attempts(ref)
    chosen = [one_attempt.state_of(ref, reads, number) for number in wanted] if wanted else [*states]
    return tuple(_of_attempt(state, job, samples) for state in chosen)


def _of_attempt(state: JobState, job: MPIJob, samples: Sequence[Sample]) -> Account:
    used = tally(one for one in samples if one.attempt == state.attempt)
    now = state.finished or time.time()
    return build.account(state, job, admission.needs(job), [*used.values()], now=now)


def report(backend: Backend, settings: Settings, wanted: AccountQuery, by: Sequence[str]) -> Report:
    """Return totals of the jobs that ended in a period, grouped."""
    reports.check_grouping(by)
    wanted = msgspec.structs.replace(wanted, by_end=True, limit=_ALL)
    found = _all(backend, wanted)
    return reports.report(found, by, rates(backend, settings), since=wanted.since, until=wanted.until)


def rates(backend: Backend, settings: Settings) -> Mapping[str, RateSetting]:
    """Return the rates of the cluster, else those of the settings."""
    known = backend.capability(SupportsRates)
    try:
        return settings.rates if known is None else {**settings.rates, **known.rates()}
    # The record can be read without its cluster.
    except BackendError:
        return settings.rates


def budgets(backend: Backend, settings: Settings, now: float | None = None) -> tuple[Budget, ...]:
    """Return the state of the budgets of this month."""
    now = time.time() if now is None else now
    found: list[Account] = []
    for namespace in settings.budgets:
        wanted = AccountQuery(namespace=namespace, since=now - 32 * 86400.0, by_end=True, limit=_ALL)
        found += _all(backend, wanted)
    return costs.budgets(found, settings.budgets, rates(backend, settings), now)


def estimate(backend: Backend, settings: Settings, job: MPIJob) -> Estimate | None:
    """Estimate duration and cost of a job from earlier runs of its program in its namespace."""
    wanted = AccountQuery(
        namespace=job.namespace, program=_program(backend, job), phases=(Phase.SUCCEEDED.value,), limit=_RUNS
    )
    found = (page(backend, wanted)).items
    rate = costs.rate(rates(backend, settings) if found else {}, job.namespace)
    return estimates.estimate(found, ranks=job.world, needs=admission.needs(job), rate=rate)


def _program(backend: Backend, job: MPIJob) -> str:
    """Return the fingerprint of a job's program in the image that it would get."""
    known = backend.capability(SupportsDefaultImage)
    return build.program(job.replace(image=job.image or (known.default_image if known is not None else "")))


def advise(backend: Backend, job: MPIJob) -> SizingReport:
    """Recommend resources from earlier runs of the job's program."""
    program = _program(backend, job)
    finals = tuple(phase.value for phase in Phase if phase.final)
    wanted = AccountQuery(namespace=job.namespace, program=program, phases=finals, limit=_RUNS)
    return right_sizing.recommend(job, program, (page(backend, wanted)).items)


def with_estimate(backend: Backend, settings: Settings, plan: Plan) -> Plan:
    """Return the plan with a notice about duration and cost of earlier runs."""
    found = estimate(backend, settings, plan.job)
    if found is None:
        return plan
    notice = Finding(
        "EXPECTED", f"{estimates.format_estimate(found)}; from {found.basis}", severity=Severity.NOTICE
    )
    return msgspec.structs.replace(plan, notices=(*plan.notices, notice))
