"""Handlers about the place: permissions, queues, budgets, failure patterns, migration, feedback."""

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
# Waiting jobs that are listed for each queue.
_AHEAD = 20


async def rights(context: RequestContext) -> Rights:
    namespace = context.query.namespace or context.client.namespace
    facts, me = await _facts(context, namespace), await context.client.whoami()
    why = {verb: decision.missing_permission(verb, me, namespace) for verb in _VERBS if verb not in facts.may}
    return Rights(namespace=namespace, may=tuple(verb for verb in _VERBS if verb in facts.may), why=why)


async def queues(context: RequestContext) -> Queues:
    namespace = context.query.namespace or context.client.namespace
    await context.check(namespace)
    offered = await run_in_thread(lambda: form_options.choices(context.client.blocking, namespace))
    facts = await _facts(context, namespace)
    rows = [row for row in await context.rows() if row.namespace == namespace]
    texts_by_queue = {one.name: one.text for one in offered.queues} | {
        row.queue: "" for row in rows if row.queue and row.queue not in {one.name for one in offered.queues}
    }
    page = await context.client.list(namespace=namespace, phases=(Phase.QUEUED,), limit=200)
    waiting = overview_rows.waiting(page.items)
    return Queues(
        namespace=namespace,
        items=tuple(
            _queue(name, namespace, text, rows, [one for one in waiting if one.row.queue == name])
            # A place without queues has one without a name.
            for name, text in sorted((texts_by_queue or {"": ""}).items())
        ),
        lines=_lines(facts),
    )


async def wait_accuracy(context: RequestContext) -> AccuracyReport:
    namespace = context.query.namespace or context.client.namespace
    await context.check(namespace)
    return await context.client.wait_accuracy(context.query.days * 86400.0, namespace=namespace)


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
    """Return the hard limits of a namespace and their usage."""
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


async def _facts(context: RequestContext, namespace: str) -> Facts:
    return await context.client.facts(MPIJob(name="any", namespace=namespace, workers=1, command=("true",)))


async def compare(context: RequestContext) -> Comparison:
    jobs = [address(one) for one in dict.fromkeys(context.query.job)]
    for ref in jobs:
        await context.check(ref.namespace)
    found = [await context.named(ref.name, ref.namespace) for ref in jobs]
    return await context.client.compare(*found, attempts=context.query.attempt)


def address(text: str) -> JobRef:
    """Parse `namespace/name`; the name may address a run, as in `train@1`."""
    namespace, slash, name = text.partition("/")
    if not slash or not name:
        raise InvalidJob(f"{text!r} is not an address", hint="write it as namespace/name")
    return JobRef(namespace, name)


async def patterns(context: RequestContext) -> Fleet:
    query = context.query
    return await context.client.patterns(
        query.days * 86400.0, least=query.least, all_namespaces=await context.everywhere()
    )


async def attempts(context: RequestContext) -> AttemptsAnswer:
    return AttemptsAnswer(await context.same_name())


async def budgets(context: RequestContext) -> Budgets:
    found = await context.client.budgets()
    if not await context.everywhere():
        visible = {namespace for namespace, _ in await context.scopes()}
        found = tuple(one for one in found if context.guest is None or one.namespace in visible)
    return Budgets(found)


async def migrating(context: RequestContext) -> Progress:
    cluster = context.client.backend.capability(SupportsKubernetesApi)
    found, moved = await asyncio.to_thread(
        cluster_migration.of_cluster,
        context.client.settings,
        everywhere=await context.everywhere(),
        as_seen_by=None if cluster is None else cluster.api,
    )
    return cluster_migration.progress(found, moved)


async def opinion(context: RequestContext) -> None:
    context.room.opinions.add(context.body.topic, context.body.helpful)


async def opinions(context: RequestContext) -> Opinions:
    if not await context.administrates():
        raise NotAllowed("help feedback requires administrator permissions")
    return Opinions(context.room.opinions.all())
