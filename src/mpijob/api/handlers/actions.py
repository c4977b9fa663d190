"""Handlers that change jobs; and those before it: parsing a draft, planning it."""

from __future__ import annotations

from starlette.responses import Response

from mpijob.api import errors
from mpijob.api.live import rows
from mpijob.api.request_context import RequestContext
from mpijob.api.schemas.job_schemas import BulkAnswer, Done, JobRow, PlanAnswer
from mpijob.errors import InvalidJob, MpiJobError
from mpijob.model import JobRef, JobState, MPIJob, Plan
from mpijob.model.platform.fit import Fit
from mpijob.model.spec import quantity
from mpijob.model.status.stacks import StackReport
from mpijob.observation.redaction import masking


async def read_draft(context: RequestContext) -> Response:
    """Return a draft as it was parsed, with all errors at once."""
    return await context.parsed_answer("reading")


async def plan(context: RequestContext) -> PlanAnswer:
    found = masking.masked_plan(await context.client.plan(await drafted(context)))
    return PlanAnswer(found, _summary(found))


async def fit(context: RequestContext) -> Fit:
    return await context.client.fit(await drafted(context))


async def create(context: RequestContext) -> JobRow:
    return _shown(context, (await context.client.submit(await drafted(context))).last)


async def cancel(context: RequestContext) -> JobRow:
    """Ask a job to end; its record stays."""
    return await _acted(context, "cancel", context.ref)


async def suspend(context: RequestContext) -> JobRow:
    """End a job's processes and keep it to be resumed."""
    return await _acted(context, "suspend", context.ref)


async def resume(context: RequestContext) -> JobRow:
    """Queue a suspended job again."""
    return await _acted(context, "resume", context.ref)


async def scale(context: RequestContext) -> JobRow:
    return _shown(context, await context.client.scale(context.ref, context.body.workers))


async def retry(context: RequestContext) -> JobRow:
    return _shown(context, (await context.client.retry(context.ref, with_fix=context.body.with_fix)).last)


async def stacks(context: RequestContext) -> StackReport:
    async with context.act():
        return await context.client.stacks(context.ref)


async def clone(context: RequestContext) -> JobRow:
    body = context.body
    # A replaced job is cancelled first, which takes time.
    async with context.act():
        copy = await context.client.clone(
            context.ref, body.name or None, changes=body.changes, with_fix=body.with_fix, replace=body.replace
        )
    return _shown(context, copy.last)


async def delete(context: RequestContext) -> None:
    await _removed(context, context.ref)


async def bulk(context: RequestContext) -> BulkAnswer:
    """Run one action for several jobs; the answer has a result for each."""
    return BulkAnswer(tuple([await _one(context, name) for name in dict.fromkeys(context.body.jobs)]))


async def _one(context: RequestContext, address: str) -> Done:
    namespace, slash, name = address.partition("/")
    try:
        if not slash or not name:
            raise InvalidJob(f"{address!r} is not an address", hint="write it as namespace/name")
        ref = JobRef(namespace, name)
        await context.check(namespace)
        await (
            _removed(context, ref)
            if context.body.action == "delete"
            else _acted(context, context.body.action, ref)
        )
    except (MpiJobError, errors.Refused) as error:
        return Done(address, errors.describe(error)[1])
    return Done(address, None)


async def _acted(context: RequestContext, action: str, ref: JobRef) -> JobRow:
    client = context.client
    if action == "retry":
        return _shown(context, (await client.retry(ref)).last)
    verbs = {"cancel": client.cancel, "suspend": client.suspend, "resume": client.resume}
    async with context.act():
        return _shown(context, await verbs[action](ref))


async def _removed(context: RequestContext, ref: JobRef) -> None:
    # With its uid: after the deletion, the name may stand for an earlier run.
    ref = (await context.client.state(ref)).ref
    async with context.act():
        await context.client.delete(ref)
    context.room.job_index.forget(ref)


def _shown(context: RequestContext, state: JobState) -> JobRow:
    """Return the row of a job after an action, and update the list at once."""
    context.room.job_index.see(state)
    return rows.row(state)


async def drafted(context: RequestContext) -> MPIJob:
    """Return the job of a draft; raise InvalidJob with all its errors."""
    return await context.parsed("job", MPIJob)


def _summary(plan: Plan) -> str:
    """Return the plan in one sentence."""
    needs = [f"{quantity.as_count(plan.needs.cores)} cores", quantity.as_bytes(plan.needs.memory_bytes)]
    needs += [f"{plan.needs.gpus} GPUs"] if plan.needs.gpus else []
    shape = f"1 launcher + {len(plan.workers)} workers = {plan.world} ranks"
    mpi = " ".join(part for part in (plan.family.value, plan.family_version) if part)
    return f"{shape} with {mpi}; needs {', '.join(needs)}; {'starts now' if plan.starts_now else 'waits for resources'}"
