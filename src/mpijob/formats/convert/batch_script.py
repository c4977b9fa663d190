"""Slurm, PBS and LSF batch scripts, and plain shell scripts, as jobs: the header becomes fields.

The script itself runs once, unchanged, in the launcher; each launcher in it starts a step
(formats/launch/scripts/step.sh).
"""

from __future__ import annotations

import os
import re
from typing import Any

import msgspec

from mpijob.errors import InvalidJob
from mpijob.formats.convert.header import lines, lsf, pbs, slurm
from mpijob.formats.convert.header.request import Request, name_of
from mpijob.formats.convert.header.size import Asked, shaped
from mpijob.formats.convert.report import UNASKED, Converted, FieldEntry, FieldOutcome, to_do_first
from mpijob.model import Code, MPIJob, Resources, WorkerGroup
from mpijob.model.spec.quantity import NONE

_HEADERS = {"Slurm script": slurm.head, "PBS script": pbs.head, "LSF script": lsf.head}
_MARKS = {"Slurm script": "SBATCH", "PBS script": "PBS", "LSF script": "BSUB"}
PLAIN = "shell script"
# Placeholder for the script's folder, which the caller replaces.
FOLDER, HERE = "folder", "."
_ALONG = "the script runs in an uploaded copy of its directory; mpijob artifacts list NAME lists new files"
_UNNAMED, _LARGEST = "script.sh", 1024 * 1024
_NAMED = re.compile(r"(mpijob (?:logs|artifacts list|wait|suspend|cancel)) NAME\b")


def kind(text: str) -> str:
    """Return the kind of batch script, "" for any other text."""
    header = "\n".join(line.text.strip() for line in lines.header(text))
    # Not in indented lines after the header: a job file may contain a script.
    for part in (header, text):
        for source, mark in _MARKS.items():
            if re.search(rf"^#{mark}\b", part, re.MULTILINE):
                return source
    return PLAIN if text.startswith("#!") and re.search(r"^\s*srun\b", text, re.MULTILINE) else ""


def read(text: str, file: str = "") -> Converted:
    """Return the job of a script, with a report on its header; without a file name the script's text is embedded."""
    if len(text) > _LARGEST:
        raise InvalidJob(
            f"{file or 'the script'} has more than {_LARGEST} characters", hint="pass only the batch script"
        )
    source = kind(text) or PLAIN
    request = _HEADERS[source](text) if source in _HEADERS else Request(system="Slurm")
    name = os.path.basename(file)
    job = MPIJob(
        name=request.name or name_of(re.sub(r"\.\w+$", "", name)),
        script=name or _UNNAMED,
        code=Code(path=HERE, files={} if name else {_UNNAMED: text}),
        **(_shape(request) if request.components else {"resources": Resources(memory=NONE)}),
        **request.fields,
    )
    if request.components:
        _tell_guess(request)
    request.notes.changed(FOLDER, "", f"code.path: {HERE}", _ALONG)
    name = "NAME" if request.values else job.name
    entries = [_with_name(entry, name) for entry in request.notes.entries]
    return Converted(
        source=source, jobs=(job,), entries=to_do_first([*_unrequested(request), *entries]), file=file,
        values=request.values, after=request.after,
    )  # fmt: skip


def _unrequested(request: Request) -> list[FieldEntry]:
    """Return the resources that the script does not ask for; they begin the report."""
    found: list[tuple[str, str, str]] = []
    if not any(
        component.memory or component.memory_per_core or component.memory_per_gpu
        for component in request.components
    ):
        found.append(("memory", "no request and no limit are set", "set resources.memory"))
    if not request.components:
        found.append(("size", "the job has 4 workers with one slot each", "set workers and slots"))
    elif all(
        component == Asked(nodes=component.nodes, memory=component.memory) for component in request.components
    ):
        found.append(("cpu", "the job gets one core for each worker", "set slots or resources.cpu"))
    return [
        FieldEntry(what, FieldOutcome.CHANGED, UNASKED, "", f"{what} is not requested: {gets}", todo)
        for what, gets, todo in found
    ]


def _tell_guess(request: Request) -> None:
    for asked in request.components:
        if guessed := shaped(asked).guessed:
            todo = "nothing, or set workers and slots yourself"
            request.notes.changed("--ntasks", asked.ranks, "workers, slots", guessed, todo)


def _with_name(entry: FieldEntry, name: str) -> FieldEntry:
    note, todo = (_NAMED.sub(rf"\g<1> {name}", text) for text in (entry.note, entry.todo))
    return msgspec.structs.replace(entry, note=note, todo=todo)


def _shape(request: Request) -> dict[str, Any]:
    """Return the size of the job: the first component is the job's own, the others are groups of workers."""
    first, *others = (shaped(component) for component in request.components)
    kind = "het-group" if request.system == "Slurm" else "chunk"
    if kind == "chunk" and all(
        msgspec.structs.replace(other, workers=first.workers) == first for other in others
    ):
        return first.fields | {"workers": first.workers + sum(other.workers for other in others)}
    if not others:
        return first.fields
    groups = tuple(
        WorkerGroup(name=f"{kind}-{at}", workers=one.workers, slots=one.slots, resources=one.resources)
        for at, one in enumerate(others, start=1)
    )
    workers = first.workers + sum(other.workers for other in others)
    return first.fields | {"workers": workers, "ranks": None, "groups": groups}
