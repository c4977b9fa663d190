"""The verbs around a job that is being written: its text, templates, choices, advice, texts of other kinds."""

from __future__ import annotations

import asyncio
import shlex

import msgspec

from mpijob.api import verbs_acting
from mpijob.api.answers import TemplateRow
from mpijob.api.asking import Ask
from mpijob.api.sheets import Advised, Conversions, Edited
from mpijob.client import choosing, converting, drafts
from mpijob.errors import InvalidJob, Unsupported
from mpijob.model.choices import Choices


async def edit(ask: Ask) -> Edited:
    """Return a job file after a form's change, with every note and unknown field kept; or only read it."""
    most = ask.client.settings.max_workers
    return await asyncio.to_thread(_edited, ask.body.yaml, ask.body.job, ask.body.changes, most)


def _edited(text: str, job: dict[str, object] | None, changes: dict[str, object], most: int) -> Edited:
    try:
        if job is not None:
            text = drafts.rewrite(text, job)
        if changes:
            text = drafts.change(text, changes)
    except InvalidJob as error:
        seen = drafts.look(text, max_workers=most)
        findings = tuple(dict.fromkeys((*error.findings, *seen.findings)))
        return _told(drafts.Sheet(text=text, job=seen.job, findings=findings, unknown=seen.unknown))
    return _told(drafts.look(text, max_workers=most))


def _told(sheet: drafts.Sheet) -> Edited:
    return Edited(
        yaml=sheet.text,
        job=sheet.job,
        command_line=shlex.join(sheet.job.command) if sheet.job else "",
        findings=sheet.findings,
        unknown=sheet.unknown,
    )


async def choices(ask: Ask) -> Choices:
    """Return what a namespace offers: projects, images, queues, volumes, data connections."""
    found = await choosing.choices(ask.client, ask.query.namespace)
    if ask.guest is None:
        return found
    return msgspec.structs.replace(found, projects=await ask.room.projects.of(ask.guest))


async def advice(ask: Ask) -> Advised:
    """Return what earlier runs of the program say."""
    job = ask.client.localized(verbs_acting.drafted(ask.body))
    await ask.check(job.namespace)
    return Advised(counsel=await ask.client.advise(job), estimate=await ask.client.estimate(job))


async def convert(ask: Ask) -> Conversions:
    """Return what a text of another kind holds, converted."""
    body = ask.body
    made = await asyncio.to_thread(converting.convert, body.text, to=body.to, image=body.image, moved=None)
    return Conversions(made)


async def save_template(ask: Ask) -> TemplateRow:
    """Keep a job as an own template."""
    _refuse_on_a_server(ask)
    shelf, body = ask.client.templates, ask.body
    job = drafts.read(body.yaml)
    made = shelf.save(body.name, job, overwrite=body.overwrite)
    if body.share:
        made = shelf.share(body.name, overwrite=body.overwrite)
    return TemplateRow(made.name, made.origin.value, made.description, drafts.write(job))


async def delete_template(ask: Ask) -> None:
    """Remove an own template."""
    _refuse_on_a_server(ask)
    ask.client.templates.delete(ask.request.path_params["template"])


def _refuse_on_a_server(ask: Ask) -> None:
    if ask.guest is not None:
        raise Unsupported(
            "own templates are kept on your own machine, not on this server",
            hint="run: mpijob template save NAME --file job.yaml",
        )
