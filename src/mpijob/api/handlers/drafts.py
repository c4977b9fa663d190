"""Handlers for a job that is being edited: its text, templates, choices, advice, conversion."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.responses import Response

from mpijob.api.handlers import actions
from mpijob.api.request_context import RequestContext
from mpijob.api.schemas.draft_schemas import Advised, NewTemplate, TemplateQuery
from mpijob.api.schemas.job_schemas import Draft, Reading, TemplateList, TemplateRow
from mpijob.client import AsyncClient
from mpijob.client.submit import drafts as job_files
from mpijob.client.submit import form_options
from mpijob.client.submit.templates import Template, Templates
from mpijob.client.threads import run_in_thread
from mpijob.errors import MpiJobError
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


def _shelf(ask: RequestContext) -> Templates:
    """Return the templates of whoever asks; a visitor of a server has no own ones there."""
    shelf = ask.client.templates
    return shelf if ask.guest is None else shelf.shared_alone()


async def templates(ask: RequestContext) -> TemplateList:
    """Return the templates that a job can start from, with what each needs and why it could not run here."""
    namespace = ask.query.namespace or ask.client.namespace
    await ask.check(namespace)
    shelf = _shelf(ask)
    found = await run_in_thread(lambda: shelf.shelf(namespace))
    facts = await _known_facts(ask.client) if ask.client.settings.engine == CLUSTER else None
    rows = await asyncio.gather(*(_listed(ask.client, shelf, one, facts, namespace) for one in found.items))
    return TemplateList(tuple(rows), found.may_share, found.notice)


# Capacity is optional here: templates are listed even if it cannot be read.
async def _known_facts(client: AsyncClient) -> Facts | None:
    try:
        return await client.facts()
    except MpiJobError:
        return None


async def _listed(
    client: AsyncClient, shelf: Templates, template: Template, facts: Facts | None, namespace: str
) -> TemplateRow:
    row = _row(template, "")
    try:
        job = await run_in_thread(lambda: shelf.show(template.name, namespace))
    except MpiJobError as error:
        return msgspec.structs.replace(row, blocker=error.message)
    text, blocker = job_files.write(job), await _blocker(client, job, facts)
    gpus = _gpus(job)
    return msgspec.structs.replace(
        row, yaml=text, workers=job.workers, gpus=gpus, image=job.image, blocker=blocker
    )


def _gpus(job: MPIJob) -> int:
    """Return the GPUs of all workers."""
    return job.asked.gpus - job.launcher.asked.gpus


async def _blocker(client: AsyncClient, job: MPIJob, facts: Facts | None) -> str:
    """Return why a template's job could not run here. One machine plans it; a cluster is asked once for all of them."""
    if client.settings.engine == CLUSTER:
        known = facts is not None and facts.room_known
        gpus = facts.capacity.gpus if facts is not None else 0
        wanted = _gpus(job)
        return f"{wanted} GPUs requested, {gpus} in this cluster" if known and wanted > gpus else ""
    try:
        await client.plan(job)
    except MpiJobError as error:
        return next((one.message for one in getattr(error, "findings", ())), error.message.partition("\n")[0])
    return ""


def _row(one: Template, text: str) -> TemplateRow:
    return TemplateRow(
        one.name, one.origin.value, one.description, text, one.namespace, one.owner, one.changed, one.writable
    )


async def save_template(ask: RequestContext) -> TemplateRow:
    """Keep a job as an own template, or as one of a namespace."""
    body: NewTemplate = ask.body
    namespace = body.namespace or ask.client.namespace
    await ask.check(namespace)
    ask.document = msgspec.json.encode(Draft(yaml=body.yaml))
    read = await ask.parsed("reading", Reading)
    made = await run_in_thread(
        lambda: _shelf(ask).save(
            body.name, read.job, overwrite=body.overwrite, share=body.share, namespace=namespace
        )
    )
    return _row(made, read.yaml)


async def delete_template(ask: RequestContext) -> None:
    """Remove an own template, or one of a namespace."""
    query: TemplateQuery = ask.query
    namespace, name = query.namespace or ask.client.namespace, ask.request.path_params["template"]
    await ask.check(namespace)
    await run_in_thread(lambda: _shelf(ask).delete(name, shared=query.shared, namespace=namespace))
