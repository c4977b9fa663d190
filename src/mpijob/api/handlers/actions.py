"""The verbs that act, and what comes before acting: reading a draft and planning it."""

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


async def read_draft(ask: RequestContext) -> Response:
    """Return a draft as it is understood; what is wrong with it is told all at once."""
    return await ask.parsed_answer("reading")


async def plan(ask: RequestContext) -> PlanAnswer:
    """Return exactly what would run; nothing is started."""
    found = masking.masked_plan(await ask.client.plan(await drafted(ask)))
    return PlanAnswer(found, _summary(found))


async def fit(ask: RequestContext) -> Fit:
    """Return whether a job would start now, wait, or never run here."""
    return await ask.client.fit(await drafted(ask))


async def create(ask: RequestContext) -> JobRow:
    """Start a job, or queue it."""
    return _shown(ask, (await ask.client.submit(await drafted(ask))).last)


async def cancel(ask: RequestContext) -> JobRow:
    """Ask a job to end; its record stays."""
    return await _acted(ask, "cancel", ask.ref)


async def suspend(ask: RequestContext) -> JobRow:
    """End a job's processes and keep it to be resumed."""
    return await _acted(ask, "suspend", ask.ref)


async def resume(ask: RequestContext) -> JobRow:
    """Queue a suspended job again."""
    return await _acted(ask, "resume", ask.ref)


async def scale(ask: RequestContext) -> JobRow:
    """Give an elastic job another number of workers."""
    return _shown(ask, await ask.client.scale(ask.ref, ask.body.workers))


async def retry(ask: RequestContext) -> JobRow:
    """Run a job that has ended again, with the same configuration or with a numbered fix."""
    return _shown(ask, (await ask.client.retry(ask.ref, with_fix=ask.body.with_fix)).last)


async def stacks(ask: RequestContext) -> StackReport:
    """Look where the ranks stand now; whoever may not enter the workers may not look."""
    async with ask.act():
        return await ask.client.stacks(ask.ref)


async def clone(ask: RequestContext) -> JobRow:
    """Create a changed copy."""
    body = ask.body
    async with ask.act():  # what is replaced is ended first
        copy = await ask.client.clone(
            ask.ref, body.name or None, changes=body.changes, with_fix=body.with_fix, replace=body.replace
        )
    return _shown(ask, copy.last)


async def delete(ask: RequestContext) -> None:
    """End a job if needed and remove it; its record stays for a while."""
    await _removed(ask, ask.ref)


async def bulk(ask: RequestContext) -> BulkAnswer:
    """Do the same to several jobs; the answer says for each whether it worked."""
    return BulkAnswer(tuple([await _one(ask, name) for name in dict.fromkeys(ask.body.jobs)]))


async def _one(ask: RequestContext, address: str) -> Done:
    namespace, slash, name = address.partition("/")
    try:
        if not slash or not name:
            raise InvalidJob(f"{address!r} is not an address", hint="write it as namespace/name")
        ref = JobRef(namespace, name)
        await ask.check(namespace)
        await (_removed(ask, ref) if ask.body.action == "delete" else _acted(ask, ask.body.action, ref))
    except (MpiJobError, errors.Refused) as error:
        return Done(address, errors.told(error)[1])
    return Done(address, None)


async def _acted(ask: RequestContext, action: str, ref: JobRef) -> JobRow:
    client = ask.client
    if action == "retry":
        return _shown(ask, (await client.retry(ref)).last)
    verbs = {"cancel": client.cancel, "suspend": client.suspend, "resume": client.resume}
    async with ask.act():
        return _shown(ask, await verbs[action](ref))


async def _removed(ask: RequestContext, ref: JobRef) -> None:
    ref = (await ask.client.state(ref)).ref  # with its uid: an earlier job of that name may come to light
    async with ask.act():
        await ask.client.delete(ref)
    ask.room.board.forget(ref)


def _shown(ask: RequestContext, state: JobState) -> JobRow:
    """Return where a job stands after an act; the list has it at once, too."""
    ask.room.board.see(state)
    return rows.row(state)


async def drafted(ask: RequestContext) -> MPIJob:
    """Return the job of a draft; refuse one with everything that is wrong in it."""
    return await ask.parsed("job", MPIJob)


def _summary(plan: Plan) -> str:
    """Return the plan in one sentence."""
    needs = [f"{quantity.as_count(plan.needs.cores)} cores", quantity.as_bytes(plan.needs.memory_bytes)]
    needs += [f"{plan.needs.gpus} GPUs"] if plan.needs.gpus else []
    shape = f"1 launcher + {len(plan.workers)} workers = {plan.world} ranks"
    mpi = " ".join(part for part in (plan.family.value, plan.family_version) if part)
    return f"{shape} with {mpi}; needs {', '.join(needs)}; {'starts now' if plan.starts_now else 'waits for resources'}"
