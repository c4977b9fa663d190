"""What jobs use, cost and have reached: usage over time, training metrics, cost with its estimate, progress of many."""

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


async def metrics(ask: RequestContext) -> Usage:
    """Return how much the workers used over time: as a band, and of each worker where that is asked for."""
    query, spec = ask.query, await ask.client.spec(ask.ref)
    samples = await ask.client.metrics(ask.ref, attempt=query.attempt)
    return usage.bands(
        samples, points=query.points, limit=spec.resources.asked, each_worker=query.each_worker
    )


async def curves(ask: RequestContext) -> Curves:
    """Return a training's metrics over time, and how far it is."""
    query = ask.query
    return await ask.client.curves(ask.ref, rank=query.rank, points=query.points, attempt=query.attempt)


async def scalars(ask: RequestContext) -> EventScalars:
    """Return the scalars of a job's TensorBoard event files."""
    async with ask.act():  # reading them takes seconds of a processor: few at once for one visitor
        return await ask.client.scalars(ask.ref, points=ask.query.points, attempt=ask.query.attempt)


async def account(ask: RequestContext) -> JobAccount:
    """Return what a job used and cost, and what earlier runs of its program lead to expect."""
    client = ask.client
    state = await client.state(ask.ref)
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
    """Return the rates of a namespace; None where the user may not read them."""
    with suppress(MpiJobError):
        return costs.rate(await client.rates(), namespace)
    return None


async def _estimate(client: AsyncClient, ref: JobRef) -> Estimate | None:
    """Return the estimate for a job that may need files which are gone by now: then there is none."""
    with suppress(MpiJobError):
        return await client.estimate(await client.spec(ref))
    return None


async def progress(ask: RequestContext) -> ProgressList:
    """Return how far several jobs are; one that tells nothing, or may not be read, is left out."""
    refs = [address(text) for text in dict.fromkeys(ask.query.job)]
    readable = {namespace: await _may_read(ask, namespace) for namespace in {ref.namespace for ref in refs}}
    found = await asyncio.gather(*(_progress(ask, ref) for ref in refs if readable[ref.namespace]))
    return ProgressList(tuple(one for one in found if one is not None))


async def _may_read(ask: RequestContext, namespace: str) -> bool:
    with suppress(MpiJobError):
        await ask.check(namespace, logs=True)
        return True
    return False


async def _progress(ask: RequestContext, ref: JobRef) -> JobProgress | None:
    row = ask.room.board.row_of(ref)
    if row is None or row.started is None:
        return None
    return await ask.room.progress.of(row, lambda: _read_progress(ask.client, ref))


async def _read_progress(client: AsyncClient, ref: JobRef) -> JobProgress | None:
    """Read the last lines of rank 0: a list must not cost a whole log for each of its rows."""
    try:
        found = await client.curves(ref, rank=0, points=1, tail=_PROGRESS_LINES)
    except MpiJobError:  # deleted meanwhile, or its log cannot be read now
        return None
    if found.progress is None and found.step is None and found.epoch is None:
        return None
    return JobProgress(
        job=f"{ref.namespace}/{ref.name}", progress=found.progress, step=found.step, steps=found.steps,
        epoch=found.epoch, epochs=found.epochs, eta=found.eta,
    )  # fmt: skip
