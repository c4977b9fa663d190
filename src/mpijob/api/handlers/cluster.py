"""The verbs about the place: its queues and limits, what the user may do there, how jobs fared, opinions on help."""

from __future__ import annotations

import asyncio
from statistics import median

from mpijob.admission import decision
from mpijob.api.live import overview_rows
from mpijob.api.request_context import RequestContext
from mpijob.api.schemas.draft_schemas import AttemptsAnswer, Budgets, Opinions, QueueRow, Queues, Rights
from mpijob.api.schemas.job_schemas import JobRow
from mpijob.api.schemas.overview_schemas import Waiting
from mpijob.backends.kubernetes.capabilities import SupportsKubernetesApi
from mpijob.client.convert import cluster_migration
from mpijob.client.convert.cluster_migration import Progress
from mpijob.client.observe.compare import Comparison
from mpijob.client.submit import form_options
from mpijob.client.threads import run_in_thread
from mpijob.diagnosis.patterns import Fleet
from mpijob.errors import InvalidJob, NotAllowed
from mpijob.model import Facts, JobRef, MPIJob, Phase
from mpijob.model.status.forecast import AccuracyReport
from mpijob.model.status.overview import Line

_VERBS = ("create", "get", "list", "logs", "cancel", "delete", "exec")
_AHEAD = 20


async def rights(ask: RequestContext) -> Rights:
    """Return what the user may do in a namespace, and in words what not."""
    namespace = ask.query.namespace or ask.client.namespace
    facts, me = await _facts(ask, namespace), await ask.client.whoami()
    why = {verb: decision.missing_permission(verb, me, namespace) for verb in _VERBS if verb not in facts.may}
    return Rights(namespace=namespace, may=tuple(verb for verb in _VERBS if verb in facts.may), why=why)


async def queues(ask: RequestContext) -> Queues:
    """Return the queues of a namespace with those who wait there, and its limits."""
    namespace = ask.query.namespace or ask.client.namespace
    await ask.check(namespace)
    offered = await run_in_thread(lambda: form_options.choices(ask.client.blocking, namespace))
    facts = await _facts(ask, namespace)
    rows = [row for row in await ask.rows() if row.namespace == namespace]
    told = {one.name: one.text for one in offered.queues} | {
        row.queue: "" for row in rows if row.queue and row.queue not in {one.name for one in offered.queues}
    }
    page = await ask.client.list(namespace=namespace, phases=(Phase.QUEUED,), limit=200)
    waiting = overview_rows.waiting(page.items)
    return Queues(
        namespace=namespace,
        items=tuple(
            _queue(name, namespace, text, rows, [one for one in waiting if one.row.queue == name])
            for name, text in sorted((told or {"": ""}).items())
        ),
        lines=_lines(facts),
    )


async def wait_accuracy(ask: RequestContext) -> AccuracyReport:
    """Return how good estimates of waiting were, as they were told and as they would be told today."""
    namespace = ask.query.namespace or ask.client.namespace
    await ask.check(namespace)
    return await ask.client.wait_accuracy(ask.query.days * 86400.0, namespace=namespace)


def _queue(name: str, namespace: str, text: str, rows: list[JobRow], ahead: list[Waiting]) -> QueueRow:
    own = [row for row in rows if row.queue == name]
    waits = [row.started - row.created for row in own if row.started is not None]
    return QueueRow(
        name=name,
        namespace=namespace,
        text=text,
        running=sum(row.phase.active and row.phase is not Phase.QUEUED for row in own),
        waiting=sum(row.phase is Phase.QUEUED for row in own),
        waited_seconds=median(waits) if waits else None,
        ahead=tuple(ahead[:_AHEAD]),
    )


def _lines(facts: Facts) -> tuple[Line, ...]:
    """Return the hard limits of a namespace and what is used of them."""
    found = [
        Line(source=f"quota {one.quota}", resource=one.resource, used=one.used, most=one.hard)
        for one in (facts.cluster.ceilings if facts.cluster else ())
    ]
    if (quota := facts.quota) is not None:
        amounts = (
            ("cpu", quota.cores, quota.used.cores),
            ("memory", quota.memory_bytes, quota.used.memory_bytes),
            ("gpu", quota.gpus, quota.used.gpus),
            ("jobs", quota.jobs, quota.jobs_running),
        )
        found += [
            Line(source=f"quota of {quota.namespace}", resource=name, used=float(used), most=float(most))
            for name, most, used in amounts
            if most is not None
        ]
    return tuple(found)


async def _facts(ask: RequestContext, namespace: str) -> Facts:
    return await ask.client.facts(MPIJob(name="any", namespace=namespace, workers=1, command=("true",)))


async def compare(ask: RequestContext) -> Comparison:
    """Return how jobs differ: configuration, phase, duration, result, what they used."""
    jobs = [address(one) for one in dict.fromkeys(ask.query.job)]
    for ref in jobs:
        await ask.check(ref.namespace)
    found = [await ask.named(ref.name, ref.namespace) for ref in jobs]
    return await ask.client.compare(*found, attempts=ask.query.attempt)


def address(text: str) -> JobRef:
    """Return the job that `namespace/name` means, or which run of it."""
    namespace, slash, name = text.partition("/")
    if not slash or not name:
        raise InvalidJob(f"{text!r} is not an address", hint="write it as namespace/name")
    return JobRef(namespace, name)


async def patterns(ask: RequestContext) -> Fleet:
    """Return what the jobs that failed lately have in common."""
    query = ask.query
    return await ask.client.patterns(
        query.days * 86400.0, least=query.least, all_namespaces=await ask.everywhere()
    )


async def attempts(ask: RequestContext) -> AttemptsAnswer:
    """Return the jobs that had this name, the newest first."""
    return AttemptsAnswer(await ask.same_name())


async def budgets(ask: RequestContext) -> Budgets:
    """Return how namespaces stand against their budgets."""
    found = await ask.client.budgets()
    if not await ask.everywhere():
        visible = {namespace for namespace, _ in await ask.scopes()}
        found = tuple(one for one in found if ask.guest is None or one.namespace in visible)
    return Budgets(found)


async def migrating(ask: RequestContext) -> Progress:
    """Return how far the MPIJobs of old are on their way here."""
    cluster = ask.client.backend.capability(SupportsKubernetesApi)
    found, moved = await asyncio.to_thread(
        cluster_migration.of_cluster,
        ask.client.settings,
        everywhere=await ask.everywhere(),
        as_seen_by=None if cluster is None else cluster.api,
    )
    return cluster_migration.progress(found, moved)


async def opinion(ask: RequestContext) -> None:
    """Count whether a piece of help was helpful."""
    ask.room.opinions.add(ask.body.topic, ask.body.helpful)


async def opinions(ask: RequestContext) -> Opinions:
    """Return how helpful the help is said to be, for administrators."""
    if not await ask.administrates():
        raise NotAllowed("help feedback requires administrator permissions")
    return Opinions(ask.room.opinions.all())
