"""The verbs around a job that is being written: its text, templates, choices, advice, texts of other kinds."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.responses import Response

from mpijob.api.handlers import actions
from mpijob.api.request_context import RequestContext
from mpijob.api.schemas.draft_schemas import Advised, NewTemplate
from mpijob.api.schemas.job_schemas import Draft, Reading, TemplateList, TemplateRow
from mpijob.client import AsyncClient
from mpijob.client.submit import drafts as job_files
from mpijob.client.submit import form_options
from mpijob.client.submit.templates import Template, Templates
from mpijob.client.threads import run_in_thread
from mpijob.errors import MpiJobError, Unsupported
from mpijob.model import Facts, MPIJob
from mpijob.model.platform.form_options import Choices
from mpijob.settings import CLUSTER


async def edit(ask: RequestContext) -> Response:
    """Return a job file after a form's change, with every note and unknown field kept; or only read it."""
    return await ask.parsed_answer("edit")


async def choices(ask: RequestContext) -> Choices:
    """Return what a namespace offers: projects, images, queues, volumes, data connections."""
    found = await run_in_thread(lambda: form_options.choices(ask.client.blocking, ask.query.namespace))
    if ask.guest is None:
        return found
    return msgspec.structs.replace(found, projects=await ask.room.projects.of(ask.guest))


async def advice(ask: RequestContext) -> Advised:
    """Return what earlier runs of the program say."""
    job = ask.client.localized(await actions.drafted(ask))
    await ask.check(job.namespace)
    return Advised(counsel=await ask.client.advise(job), estimate=await ask.client.estimate(job))


async def convert(ask: RequestContext) -> Response:
    """Return what a text of another kind holds, converted."""
    return await ask.parsed_answer("convert")


async def templates(ask: RequestContext) -> TemplateList:
    """Return the templates that a job can start from, with what each needs and why it could not run here."""
    shelf = ask.client.templates
    facts = await _known_facts(ask.client) if ask.client.settings.engine == CLUSTER else None
    return TemplateList(
        tuple(await asyncio.gather(*(_template(ask.client, shelf, one, facts) for one in shelf.list())))
    )


async def _known_facts(client: AsyncClient) -> Facts | None:
    try:
        return await client.facts()
    except MpiJobError:
        return None


async def _template(
    client: AsyncClient, shelf: Templates, template: Template, facts: Facts | None
) -> TemplateRow:
    row = TemplateRow(template.name, template.origin.value, template.description, "")
    try:
        job = shelf.show(template.name)
    except MpiJobError as error:
        return msgspec.structs.replace(row, blocker=error.message)
    text, blocker = job_files.write(job), await _blocker(client, job, facts)
    gpus = job.resources.gpu * job.workers
    return msgspec.structs.replace(
        row, yaml=text, workers=job.workers, gpus=gpus, image=job.image, blocker=blocker
    )


async def _blocker(client: AsyncClient, job: MPIJob, facts: Facts | None) -> str:
    """Return why a template's job could not run here. One machine plans it; a cluster is asked once for all of them."""
    if client.settings.engine == CLUSTER:
        known = facts is not None and facts.room_known
        gpus = facts.capacity.gpus if facts is not None else 0
        wanted = job.resources.gpu * job.workers
        return f"{wanted} GPUs requested, {gpus} in this cluster" if known and wanted > gpus else ""
    try:
        await client.plan(job)
    except MpiJobError as error:
        return next((one.message for one in getattr(error, "findings", ())), error.message.partition("\n")[0])
    return ""


async def save_template(ask: RequestContext) -> TemplateRow:
    """Keep a job as an own template."""
    _refuse_on_a_server(ask)
    body: NewTemplate = ask.body
    ask.document = msgspec.json.encode(Draft(yaml=body.yaml))
    read = await ask.parsed("reading", Reading)
    return await asyncio.to_thread(_saved, ask.client.templates, body, read)


def _saved(shelf: Templates, body: NewTemplate, read: Reading) -> TemplateRow:
    made = shelf.save(body.name, read.job, overwrite=body.overwrite)
    if body.share:
        made = shelf.share(body.name, overwrite=body.overwrite)
    return TemplateRow(made.name, made.origin.value, made.description, read.yaml)


async def delete_template(ask: RequestContext) -> None:
    """Remove an own template."""
    _refuse_on_a_server(ask)
    ask.client.templates.delete(ask.request.path_params["template"])


def _refuse_on_a_server(ask: RequestContext) -> None:
    if ask.guest is not None:
        raise Unsupported(
            "own templates are kept on your own machine, not on this server",
            hint="run: mpijob template save NAME --file job.yaml",
        )
