"""The verbs that only look: the list, one job, what it said, what happened, why."""

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
_WAITING = 20  # so many are told in full
_MOST_RUNS = 100


async def list_jobs(ask: RequestContext) -> Response:
    """Answer one page; a page that the asker has already is only confirmed."""
    board, query = ask.room.board, ask.query
    if board.trouble is not None and not board.rows:
        raise board.trouble
    scopes = await ask.scopes()
    asked = (query, None if ask.guest is None else sorted(scopes))
    mark = hashlib.blake2b(msgspec.json.encode(asked), digest_size=8).hexdigest()
    tag = f'W/"{board.rev}-{mark}"'
    headers = {"etag": tag, "cache-control": "private, no-cache"}
    if ask.request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    made = ask.room.pages.get(tag)
    if made is None:
        page = list_query.page(board.rows_in(scopes), query, rev=board.rev, now=time.time(), seen=board.seen)
        made = ask.room.pages.put(tag, msgspec.json.encode(page))
    return Response(made, media_type=JSON, headers=headers)


async def get_job(ask: RequestContext) -> JobDetail:
    """Return everything known of one job."""
    state = await ask.client.state(ask.ref, attempt=ask.query.attempt)
    spec = await ask.client.spec(state.ref)
    return JobDetail(
        row=rows.row(state),
        state=state,
        spec=masking.masked_job(spec),
        yaml=drafts.shown(spec),
        commands=_commands(state.ref, ask.client.namespace),
    )


def _commands(ref: JobRef, home: str) -> dict[str, str]:
    """Return the command lines that do what the page does."""
    where = "" if ref.namespace == home else f" -n {ref.namespace}"
    verbs = ("describe", "logs", "events", "cancel", "retry", "export", "delete")
    return {verb: f"mpijob {verb} {ref.name}{where}" for verb in verbs}


async def export(ask: RequestContext) -> Response:
    """Hand over a job's configuration as a file, in our form or in one that `oc create -f` takes."""
    ref, form = ask.ref, ask.query.format
    own: Format = "json" if form == "json" else "yaml"
    text = (drafts.write if ask.query.values else drafts.shown)(await _spec(ask), own)
    ending: str = own
    if form not in ("yaml", "json"):
        (made,) = await asyncio.to_thread(convert_jobs.convert, text, to=form)
        if not made.texts:
            raise InvalidJob(f"{ref.name} cannot be written as {form}: {'; '.join(made.blockers)}")
        text, ending = "---\n".join(made.texts), made.ending.lstrip(".")
    headers = {"content-disposition": f'attachment; filename="{ref.name}.{ending}"'}
    return Response(text, media_type="text/plain; charset=utf-8", headers=headers)


async def _spec(ask: RequestContext) -> MPIJob:
    """Return what was asked for; refuse an attempt that the job does not have."""
    if ask.query.attempt is not None:
        await ask.client.state(ask.ref, attempt=ask.query.attempt)
    return await ask.client.spec(ask.ref)


async def runs(ask: RequestContext) -> Runs:
    """Return every job that has or had the name of the address, with its attempts."""
    found = await ask.client.runs(JobRef(ask.ref.namespace, ask.ref.name))
    return Runs(tuple([rows.run_row(run, await _attempts(ask, run)) for run in found[:_MOST_RUNS]]))


async def _attempts(ask: RequestContext, run: JobState) -> tuple[JobState, ...]:
    if run.attempt == 1:
        return (run,)
    try:
        return await ask.client.attempts(run.ref)
    except NotFound:  # it went meanwhile
        return (run,)


async def events(ask: RequestContext) -> Events:
    """Return what happened to a job."""
    found: tuple[Event, ...] = await _all(ask.client.events(ask.ref, attempt=ask.query.attempt))
    return Events(found)


async def why(ask: RequestContext) -> Diagnosis:
    """Return why a job stands where it stands: causes, timeline, checklist, numbered fixes."""
    return await ask.client.diagnose(ask.ref, attempt=ask.query.attempt)


async def links(ask: RequestContext) -> Links:
    """Return where its training is seen elsewhere."""
    return Links(await ask.client.links(ask.ref))


async def accounts(ask: RequestContext) -> AccountPage:
    """Return what ran, as the question chooses."""
    return await ask.client.accounts(**(await _accounts(ask)), limit=ask.query.limit, after=ask.query.after)


async def report(ask: RequestContext) -> Report:
    """Return usage and cost by some words."""
    return await ask.client.usage_report(tuple(ask.query.by.split(",")), **(await _accounts(ask)))


async def _accounts(ask: RequestContext) -> dict[str, Any]:
    query = ask.query
    everywhere = not query.namespace and await ask.everywhere()
    if not everywhere:
        await ask.check(query.namespace or ask.client.namespace)
    return {
        "namespace": query.namespace or None,
        "all_namespaces": everywhere,
        "owners": query.owner,
        "phases": query.status,
        "selector": query.label,
        "since": query.since,
        "until": query.until,
    }


async def profile(ask: RequestContext) -> MpiProfile:
    """Return what a job's ranks do with MPI."""
    return await ask.client.profile(ask.ref, step=ask.query.step)


async def nodes(ask: RequestContext) -> NodePlaces:
    """Return in which zone and rack the nodes of a job stand."""
    async with ask.act():  # one request for each node
        return NodePlaces(await ask.client.nodes(ask.ref))


async def artifacts(ask: RequestContext) -> Artifacts:
    """Return the files that a job left."""
    async with ask.act():  # a store that does not answer holds few threads of one visitor
        return Artifacts(await ask.client.artifacts(ask.ref, attempt=ask.query.attempt))


async def facts(ask: RequestContext) -> FactsAnswer:
    """Return what the place has and what is free."""
    found = await ask.client.facts()
    return FactsAnswer(found, _room(found))


async def overview(ask: RequestContext) -> Overview:
    """Return the place at a glance."""
    found = await ask.client.facts()
    rows = await ask.rows()
    waiting = sorted((row for row in rows if row.phase is Phase.QUEUED), key=lambda row: row.created)
    queued = await asyncio.gather(*(_told(ask, row) for row in waiting[:_WAITING]))
    states = [one for one in queued if one is not None]
    return await asyncio.to_thread(  # of very many jobs it takes a second, in which others are served
        overview_rows.overview, rows, states, found, _room(found), now=time.time()
    )


async def _told(ask: RequestContext, row: JobRow) -> JobState | None:
    """Return a job that waits with what it waits for; a list does not say it."""
    try:
        return await ask.client.state(JobRef(row.namespace, row.name))
    except (NotFound, NotAllowed):
        return None


async def fields(ask: RequestContext) -> Fields:
    """Return what every field of a job is for."""
    told = {path: FieldHelp(one.text, one.example, one.words) for path, one in described.items()}
    return Fields(told)


async def guide(ask: RequestContext) -> Guide:
    """Return the questions that lead to a kind of job, and the glossary."""
    return GUIDE


async def fetch(ask: RequestContext) -> Response:
    """Hand over one of the files that a job left."""
    if ask.guest is not None:
        return await _streamed(ask)

    async def fetched(place: Path) -> Path:
        found = await ask.client.fetch(ask.ref, place, (ask.query.path,))
        if len(found) != 1 or found[0] != place / ask.query.path:
            raise NotFound(
                f"{ask.query.path!r} is not an artifact of the job",
                hint="…/artifacts lists the files, one by one",
            )
        return found[0]

    return await _handed_over(fetched, "application/octet-stream")


async def bundle(ask: RequestContext) -> Response:
    """Hand over everything known of a job in one archive, without secrets."""

    async def packed(place: Path) -> Path:
        made = await ask.client.bundle(ask.ref, place / f"{plain(ask.ref.name)}-bundle.tar.gz")
        return Path(made.path)

    return await _handed_over(packed, "application/gzip")


async def _handed_over(make: Callable[[Path], Awaitable[Path]], media: str) -> Response:
    """Answer with a file that is made for this answer and removed after it."""
    place = tempfile.mkdtemp(prefix="mpijob-ui-")
    away = BackgroundTask(shutil.rmtree, place, ignore_errors=True)
    try:
        path = await make(Path(place))
    except BaseException:
        await away()
        raise
    return FileResponse(path, media_type=media, filename=path.name, background=away)


async def _streamed(ask: RequestContext) -> Response:
    """Hand a file over while it is fetched: a server that many share keeps no copy."""
    path = ask.query.path
    try:
        return await file_stream.streamed(
            lambda pipe: ask.client.fetch_file(ask.ref, path, pipe), path.rpartition("/")[2], ask.act()
        )
    except TooLarge as error:
        hint = f"fetch it with: mpijob artifacts fetch {ask.ref.name} {path}"
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
