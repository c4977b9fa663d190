"""Handlers that read jobs: the list, one job, its log, events, diagnosis and files."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response

from mpijob.accounting.reports import Report
from mpijob.api.errors import Refused
from mpijob.api.live import file_stream, list_query, overview_rows, rows
from mpijob.api.request_context import JSON, RequestContext
from mpijob.api.schemas.job_schemas import (
    Artifacts,
    Events,
    FactsAnswer,
    FieldHelp,
    Fields,
    JobDetail,
    JobRow,
    NodePlaces,
    Runs,
)
from mpijob.api.schemas.overview_schemas import Overview
from mpijob.api.schemas.query_schemas import Links
from mpijob.client.admin.guide import GUIDE, Guide
from mpijob.client.base import Format
from mpijob.client.convert import convert_jobs
from mpijob.client.observe.bundle import plain
from mpijob.client.submit import drafts
from mpijob.client.submit.drafts import FIELDS as described
from mpijob.diagnosis.report import Diagnosis
from mpijob.errors import InvalidJob, NotAllowed, NotFound
from mpijob.model import Event, Facts, JobRef, JobState, MPIJob, Phase
from mpijob.model.spec import quantity
from mpijob.model.status.accounts import AccountPage
from mpijob.model.status.mpi_profile import MpiProfile
from mpijob.observation.redaction import masking
from mpijob.outbound.policy import TooLarge

T = TypeVar("T")
# Waiting jobs that the overview shows with their reasons.
_WAITING = 20
_MOST_RUNS = 100


async def list_jobs(context: RequestContext) -> Response:
    """Return one page of the list; 304 if the client has it."""
    job_index, query = context.room.job_index, context.query
    if job_index.trouble is not None and not job_index.rows:
        raise job_index.trouble
    scopes = await context.scopes()
    asked = (query, None if context.guest is None else sorted(scopes))
    # The tag contains the user's scopes: users with the same permissions share cached pages, others never do.
    mark = hashlib.blake2b(msgspec.json.encode(asked), digest_size=8).hexdigest()
    tag = f'W/"{job_index.rev}-{mark}"'
    headers = {"etag": tag, "cache-control": "private, no-cache"}
    if context.request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    made = context.room.pages.get(tag)
    if made is None:
        page = list_query.page(
            job_index.rows_in(scopes), query, rev=job_index.rev, now=time.time(), seen=job_index.seen
        )
        made = context.room.pages.put(tag, msgspec.json.encode(page))
    return Response(made, media_type=JSON, headers=headers)


async def get_job(context: RequestContext) -> JobDetail:
    state = await context.client.state(context.ref, attempt=context.query.attempt)
    spec = await context.client.spec(state.ref)
    return JobDetail(
        row=rows.row(state),
        state=state,
        spec=masking.masked_job(spec),
        yaml=drafts.shown(spec),
        commands=_commands(state.ref, context.client.namespace),
    )


def _commands(ref: JobRef, home: str) -> dict[str, str]:
    """Return the command lines for the actions of the page."""
    where = "" if ref.namespace == home else f" -n {ref.namespace}"
    verbs = ("describe", "logs", "events", "cancel", "retry", "export", "delete")
    return {verb: f"mpijob {verb} {ref.name}{where}" for verb in verbs}


async def export(context: RequestContext) -> Response:
    """Return a job's configuration as a file, as a job file or as a manifest."""
    ref, form = context.ref, context.query.format
    own: Format = "json" if form == "json" else "yaml"
    text = (drafts.write if context.query.values else drafts.shown)(await _spec(context), own)
    ending: str = own
    if form not in ("yaml", "json"):
        (made,) = await asyncio.to_thread(convert_jobs.convert, text, to=form)
        if not made.texts:
            raise InvalidJob(f"{ref.name} cannot be written as {form}: {'; '.join(made.blockers)}")
        text, ending = "---\n".join(made.texts), made.ending.lstrip(".")
    headers = {"content-disposition": f'attachment; filename="{ref.name}.{ending}"'}
    return Response(text, media_type="text/plain; charset=utf-8", headers=headers)


async def _spec(context: RequestContext) -> MPIJob:
    """Return the spec; raise NotFound for an attempt that the job does not have."""
    if context.query.attempt is not None:
        await context.client.state(context.ref, attempt=context.query.attempt)
    return await context.client.spec(context.ref)


async def runs(context: RequestContext) -> Runs:
    found = await context.client.runs(JobRef(context.ref.namespace, context.ref.name))
    return Runs(tuple([rows.run_row(run, await _attempts(context, run)) for run in found[:_MOST_RUNS]]))


async def _attempts(context: RequestContext, run: JobState) -> tuple[JobState, ...]:
    if run.attempt == 1:
        return (run,)
    try:
        return await context.client.attempts(run.ref)
    # Deleted meanwhile.
    except NotFound:
        return (run,)


async def events(context: RequestContext) -> Events:
    found: tuple[Event, ...] = await _all(context.client.events(context.ref, attempt=context.query.attempt))
    return Events(found)


async def why(context: RequestContext) -> Diagnosis:
    return await context.client.diagnose(context.ref, attempt=context.query.attempt)


async def links(context: RequestContext) -> Links:
    return Links(await context.client.links(context.ref))


async def accounts(context: RequestContext) -> AccountPage:
    return await context.client.accounts(
        **(await _accounts(context)), limit=context.query.limit, after=context.query.after
    )


async def report(context: RequestContext) -> Report:
    return await context.client.usage_report(tuple(context.query.by.split(",")), **(await _accounts(context)))


async def _accounts(context: RequestContext) -> dict[str, Any]:
    query = context.query
    everywhere = not query.namespace and await context.everywhere()
    if not everywhere:
        await context.check(query.namespace or context.client.namespace)
    return {
        "namespace": query.namespace or None,
        "all_namespaces": everywhere,
        "owners": query.owner,
        "phases": query.status,
        "selector": query.label,
        "since": query.since,
        "until": query.until,
    }


async def profile(context: RequestContext) -> MpiProfile:
    return await context.client.profile(context.ref, step=context.query.step)


async def nodes(context: RequestContext) -> NodePlaces:
    # One request for each node.
    async with context.act():
        return NodePlaces(await context.client.nodes(context.ref))


async def artifacts(context: RequestContext) -> Artifacts:
    # A store that does not respond must not use up the threads: few at a time for each user.
    async with context.act():
        return Artifacts(await context.client.artifacts(context.ref, attempt=context.query.attempt))


async def facts(context: RequestContext) -> FactsAnswer:
    found = await context.client.facts()
    return FactsAnswer(found, _room(found))


async def overview(context: RequestContext) -> Overview:
    found = await context.client.facts()
    rows = await context.rows()
    waiting = sorted((row for row in rows if row.phase is Phase.QUEUED), key=lambda row: row.created)
    queued = await asyncio.gather(*(_with_wait_reason(context, row) for row in waiting[:_WAITING]))
    states = [one for one in queued if one is not None]
    # In a thread: for very many jobs it takes a second, in which the event loop must serve others.
    return await asyncio.to_thread(overview_rows.overview, rows, states, found, _room(found), now=time.time())


async def _with_wait_reason(context: RequestContext, row: JobRow) -> JobState | None:
    """Return a waiting job with its reason, which the list does not have."""
    try:
        return await context.client.state(JobRef(row.namespace, row.name))
    except (NotFound, NotAllowed):
        return None


async def fields(context: RequestContext) -> Fields:
    """Return the help texts of all fields of a job."""
    help_texts = {path: FieldHelp(one.text, one.example, one.words) for path, one in described.items()}
    return Fields(help_texts)


async def guide(context: RequestContext) -> Guide:
    return GUIDE


async def fetch(context: RequestContext) -> Response:
    """Return an output file of a job."""
    if context.guest is not None:
        return await _streamed(context)

    async def fetched(place: Path) -> Path:
        found = await context.client.fetch(context.ref, place, (context.query.path,))
        if len(found) != 1 or found[0] != place / context.query.path:
            raise NotFound(
                f"{context.query.path!r} is not an artifact of the job",
                hint="…/artifacts lists the files, one by one",
            )
        return found[0]

    return await _handed_over(fetched, "application/octet-stream")


async def bundle(context: RequestContext) -> Response:
    async def packed(place: Path) -> Path:
        made = await context.client.bundle(context.ref, place / f"{plain(context.ref.name)}-bundle.tar.gz")
        return Path(made.path)

    return await _handed_over(packed, "application/gzip")


async def _handed_over(make: Callable[[Path], Awaitable[Path]], media: str) -> Response:
    """Return a file that is created for this response and removed after it."""
    place = tempfile.mkdtemp(prefix="mpijob-ui-")
    away = BackgroundTask(shutil.rmtree, place, ignore_errors=True)
    try:
        path = await make(Path(place))
    except BaseException:
        await away()
        raise
    return FileResponse(path, media_type=media, filename=path.name, background=away)


async def _streamed(context: RequestContext) -> Response:
    """Stream a file while it is fetched: a server of many users stores no copy."""
    path = context.query.path
    try:
        return await file_stream.streamed(
            lambda pipe: context.client.fetch_file(context.ref, path, pipe),
            path.rpartition("/")[2],
            context.act(),
        )
    except TooLarge as error:
        hint = f"fetch it with: mpijob artifacts fetch {context.ref.name} {path}"
        raise Refused(413, error.message, hint, "USAGE") from error


def _room(facts: Facts) -> str:
    if not facts.room_known:
        return f"{facts.place}: free capacity is unknown"
    free, all_of_it = facts.free, facts.capacity
    parts = [
        f"{quantity.as_count(free.cores)} of {quantity.as_count(all_of_it.cores)} cores",
        f"{quantity.as_bytes(free.memory_bytes)} of {quantity.as_bytes(all_of_it.memory_bytes)}",
    ]
    parts += [f"{free.gpus} of {all_of_it.gpus} GPUs"] if all_of_it.gpus else []
    return f"{facts.place}: {', '.join(parts)} free"


async def _all(stream: AsyncIterator[T]) -> tuple[T, ...]:
    return tuple([item async for item in stream])
