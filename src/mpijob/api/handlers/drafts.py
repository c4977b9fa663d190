"""The verbs around a job that is being written: its text, templates, choices, advice, texts of other kinds."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from mpijob.api.handlers import actions
from mpijob.api.request_context import RequestContext
from mpijob.api.schemas.draft_schemas import Advised, NewTemplate, TemplateQuery
from mpijob.api.schemas.job_schemas import Draft, Reading, TemplateList, TemplateRow
from mpijob.client.submit import drafts, form_options
from mpijob.client.submit.templates import Template, Templates
from mpijob.client.threads import run_in_thread
from mpijob.errors import MpiJobError
from mpijob.model.platform.form_options import Choices


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
    """Return the templates that a job can start from."""
    namespace = ask.query.namespace or ask.client.namespace
    await ask.check(namespace)
    return await run_in_thread(lambda: _listed(_shelf(ask), namespace))


def _listed(shelf: Templates, namespace: str) -> TemplateList:
    found = shelf.shelf(namespace)
    rows = tuple(_row(one, _text(shelf, one, namespace)) for one in found.items)
    return TemplateList(rows, found.may_share, found.notice)


def _text(shelf: Templates, one: Template, namespace: str) -> str:
    try:
        return drafts.write(shelf.show(one.name, namespace))
    except MpiJobError:
        return ""  # its description says that it cannot be read


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
