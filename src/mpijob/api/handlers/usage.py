"""Handlers for usage, cost, training metrics and progress."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from mpijob.accounting import costs
from mpijob.accounting.estimates import Estimate
from mpijob.api.handlers.cluster import address
from mpijob.api.request_context import RequestContext
from mpijob.api.schemas.job_schemas import JobAccount, JobProgress, ProgressList
from mpijob.client import AsyncClient
from mpijob.errors import MpiJobError
from mpijob.model import JobRef
from mpijob.model.status.accounts import Account
from mpijob.observation.metrics import usage
from mpijob.observation.metrics.event_files import EventScalars
from mpijob.observation.metrics.training import Curves
from mpijob.observation.metrics.usage import Usage
from mpijob.settings import RateSetting

_PROGRESS_LINES = 100
_SAME_NAME = 50


async def metrics(context: RequestContext) -> Usage:
    """Return usage of the workers over time: as a band, and of each worker if requested."""
    query, spec = context.query, await context.client.spec(context.ref)
    samples = await context.client.metrics(context.ref, attempt=query.attempt)
    return usage.bands(
        samples, points=query.points, limit=spec.resources.asked, each_worker=query.each_worker
    )


async def curves(context: RequestContext) -> Curves:
    query = context.query
    return await context.client.curves(
        context.ref, rank=query.rank, points=query.points, attempt=query.attempt
    )


async def scalars(context: RequestContext) -> EventScalars:
    # Reading them takes seconds of CPU time: few at a time for each user.
    async with context.act():
        return await context.client.scalars(
            context.ref, points=context.query.points, attempt=context.query.attempt
        )


async def account(context: RequestContext) -> JobAccount:
    """Return usage and cost of a job, with an estimate from earlier runs of its program."""
    client = context.client
    state = await client.state(context.ref)
    used, rate = await asyncio.gather(_account(client, state.ref), _rate(client, state.ref.namespace))
    cost = None
    if used is not None and rate is not None and rate != costs.FREE:
        cost = costs.charge(rate, used.core_hours, used.gib_hours, used.gpu_hours)
    currency = "" if rate is None else rate.currency
    return JobAccount(used, cost, currency, await _estimate(client, state.ref))


async def _account(client: AsyncClient, ref: JobRef) -> Account | None:
    page = await client.accounts(namespace=ref.namespace, names=(ref.name,), limit=_SAME_NAME)
    return next((one for one in page.items if one.ref.key == ref.key), None)


async def _rate(client: AsyncClient, namespace: str) -> RateSetting | None:
    """Return the rates of a namespace; None if the user may not read them."""
    with suppress(MpiJobError):
        return costs.rate(await client.rates(), namespace)
    return None


async def _estimate(client: AsyncClient, ref: JobRef) -> Estimate | None:
    """Return the estimate, None if files that the job needs are gone."""
    with suppress(MpiJobError):
        return await client.estimate(await client.spec(ref))
    return None


async def progress(context: RequestContext) -> ProgressList:
    """Return the progress of several jobs, without those that report none or may not be read."""
    refs = [address(text) for text in dict.fromkeys(context.query.job)]
    readable = {
        namespace: await _may_read(context, namespace) for namespace in {ref.namespace for ref in refs}
    }
    found = await asyncio.gather(*(_progress(context, ref) for ref in refs if readable[ref.namespace]))
    return ProgressList(tuple(one for one in found if one is not None))


async def _may_read(context: RequestContext, namespace: str) -> bool:
    with suppress(MpiJobError):
        await context.check(namespace, logs=True)
        return True
    return False


async def _progress(context: RequestContext, ref: JobRef) -> JobProgress | None:
    row = context.room.job_index.row_of(ref)
    if row is None or row.started is None:
        return None
    return await context.room.progress.of(row, lambda: _read_progress(context.client, ref))


async def _read_progress(client: AsyncClient, ref: JobRef) -> JobProgress | None:
    """Read the last lines of rank 0: the list must not read a whole log for each row."""
    try:
        found = await client.curves(ref, rank=0, points=1, tail=_PROGRESS_LINES)
    # Deleted meanwhile, or the log cannot be read now.
    except MpiJobError:
        return None
    if found.progress is None and found.step is None and found.epoch is None:
        return None
    return JobProgress(
        job=f"{ref.namespace}/{ref.name}", progress=found.progress, step=found.step, steps=found.steps,
        epoch=found.epoch, epochs=found.epochs, eta=found.eta,
    )  # fmt: skip
