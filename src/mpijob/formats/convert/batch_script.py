"""A whole batch script, Slurm's or PBS's: its head and its body together, as jobs in the order of their work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from mpijob.errors import InvalidJob
from mpijob.formats.convert.header import pbs, slurm
from mpijob.formats.convert.header.request import OWN_NUMBER, Request, free_name, name_of
from mpijob.formats.convert.header.size import Asked, Shape, shaped
from mpijob.formats.convert.report import Converted
from mpijob.formats.convert.script import build_steps, handover, launch_line, variables
from mpijob.formats.convert.script.body import Body
from mpijob.formats.convert.script.classify import ASSIGNMENT
from mpijob.formats.convert.script.launch_line import Line, Section
from mpijob.formats.convert.script.steps import Step, name_jobs
from mpijob.formats.convert.script.variables import plain_words
from mpijob.formats.convert.shell import parser
from mpijob.formats.convert.shell.constants import filled, mentioned
from mpijob.formats.convert.shell.parser import statements
from mpijob.model import Code, Family, MPIJob, Program

_HEADS = {"Slurm script": slurm.head, "PBS script": pbs.head}
FOLDER, HERE = "folder", "."  # the folder of the script, until somebody says where that is
ALONG = "the script's folder goes along: jobs begin in a copy of it; mpijob artifacts list NAME shows what is new in it"
_SCRIPT, _LARGEST = "rank.sh", 1024 * 1024


def kind(text: str) -> str:
    """Return what kind of batch script a text is; "" when it is none."""
    if re.search(r"^\s*#SBATCH\b", text, re.MULTILINE):
        return "Slurm script"
    if re.search(r"^\s*#PBS\b", text, re.MULTILINE):
        return "PBS script"
    if text.startswith("#!") and re.search(r"^\s*srun\b", text, re.MULTILINE):
        return "Slurm script"
    return ""


def read(text: str, file: str = "", beside: frozenset[str] = frozenset()) -> Converted:
    """Return the jobs of a batch script, with a report on every directive and every line.

    `beside` are the names of what lies in its folder.
    """
    if len(text) > _LARGEST:
        raise InvalidJob(
            f"{file or 'the script'} has more than {_LARGEST} letters", hint="give the batch script alone"
        )
    text = text.replace("\r\n", "\n").replace("\0", "")
    source = kind(text) or "Slurm script"
    request = _HEADS[source](text)
    request.beside = beside
    if not request.name:
        request.name = name_of(re.sub(r"\.\w+$", "", file.rpartition("/")[2]))
    request.known = variables.known(request, request.components[0])
    text = pbs.counted(text, request)
    parser.forget()
    inner = Body(request)
    inner.read(text)
    jobs = _jobs(request, inner.steps, text)
    variables.tell_unset(request, inner.steps, text)
    if not jobs:
        request.notes.dropped(
            "script", "", "there is no line that does work", "write the command into the job", blocks=True
        )
    return Converted(
        source=source, jobs=jobs, entries=tuple(request.notes.entries), file=file, values=request.values,
        after=request.after,
    )  # fmt: skip


def _jobs(request: Request, steps: list[Step], text: str) -> tuple[MPIJob, ...]:
    request.text = text
    if len(steps) > 1:
        request.known |= dict.fromkeys(OWN_NUMBER, request.name)  # one for all of them, as it was
    found: list[MPIJob] = []
    for index, step in enumerate(steps):
        name = request.name if len(steps) == 1 else f"{request.name}-{index + 1}"
        request.notes.line = step.line
        found.append(
            _launched(request, step, name) if step.launches else _once(request, step, name, len(steps) > 1)
        )
    request.notes.line = 0
    if found:
        request.notes.changed(FOLDER, "", f"code.path: {HERE}", ALONG)
    if len(found) > 1:
        _tell_several(request, found, steps)
    if request.waits and found and handover.names_files(found[0], steps[0]):
        request.notes.extend(
            [handover.awaited(_waits(request), request.name, found[0], steps[0], request.beside)]
        )
    name_jobs(request.notes, ["NAME"] if request.values else [job.name for job in found])
    return tuple(_in_order(_of_one_library(found), steps))


def _waits(request: Request) -> str:
    """Return the option by which a script waits for another."""
    return "--dependency" if request.system == "Slurm" else "-W depend"


def _tell_several(request: Request, jobs: list[MPIJob], steps: list[Step]) -> None:
    request.notes.entries.insert(0, handover.told(request.name, jobs, steps, request.beside))
    if request.values:
        note = "a job waits for another by its name, and each of an array has a name of its own"
        todo = "let the ranks run one script with all lines, or make the jobs of each number yourself, with --after"
        request.notes.dropped("array", "", note, todo, blocks=True)


def _of_one_library(jobs: list[MPIJob]) -> list[MPIJob]:
    """Return the jobs with the MPI library that one of them needs: what one builds, another runs."""
    named = {job.mpi for job in jobs if job.mpi is not Family.AUTO}
    return [job.replace(mpi=next(iter(named))) for job in jobs] if len(named) == 1 else jobs


def _in_order(jobs: list[MPIJob], steps: list[Step]) -> Iterator[MPIJob]:
    """Yield the jobs, each after those that the script had waited for; what it put aside runs side by side."""
    before: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()
    for job, step in zip(jobs, steps, strict=True):
        if step.aside:
            aside += (job.name,)
            yield job.replace(after=before)
        else:
            yield job.replace(after=aside or before)
            before, aside = (job.name,), ()


def _once(request: Request, step: Step, name: str, several: bool) -> MPIJob:
    """Return the job for lines that no launcher starts: they run once, as they did."""
    shape = _merged(request)
    note = "no launcher starts it, so it runs once: one rank"
    for line, text in step.parts:
        request.notes.at(line).changed("script", text, f"job {name}" if several else "command", note)
    fields: dict[str, Any] = shape.fields | {"workers": 1, "slots": 1, "ranks": None}
    if not several:
        fields |= {
            "workers": shape.workers,
            "slots": shape.slots,
            "ranks": 1 if shape.workers * shape.slots > 1 else None,
        }
    if shape.workers * shape.slots == 1 or several:
        fields["cores_per_rank"] = shape.cores
    return _job(request, step, name, fields, step.text, _single(step, request))


def _single(step: Step, request: Request) -> tuple[str, ...] | None:
    """Return the words of lines that are one plain command."""
    found = statements(step.text)
    if len(found) != 1 or len(found[0].commands) != 1 or found[0].commands[0].redirects:
        return None
    words = found[0].commands[0].words
    return None if ASSIGNMENT.match(words[0]) else plain_words(words, request.known | step.env)


def _launched(request: Request, step: Step, name: str) -> MPIJob:
    line = launch_line.read(step.words, request, step.env)
    line.request.fields = step.onto(line.request.fields)
    shape = _merged(line.request)
    words = tuple(word for one in line.sections for word in one.words)
    for variable in sorted(variables.unknown(words, request)):
        note = f"only {request.system} knows it"
        request.notes.dropped(
            f"${variable}", "", note, "write the value into the command or env", blocks=True
        )
    if shape.guessed:
        request.notes.changed("--ntasks", line.request.components[-1].ranks, "workers, slots", shape.guessed,
                              "nothing, or set workers and slots as you want them")  # fmt: skip
    if len(line.sections) > 1 or len(request.components) > 1:
        return _several(line, shape, step, name)
    return _one(line, shape, step, name)


def _merged(request: Request) -> Shape:
    """Return one shape for all components: their workers together, each as large as the largest."""
    shapes = [shaped(one) for one in request.components]
    if len(shapes) == 1:
        return shapes[0]
    largest = max(
        shapes, key=lambda one: (one.resources.gpu, one.resources.memory_bytes, one.resources.cores)
    )
    slots, cores = max(one.slots for one in shapes), max(one.cores for one in shapes)
    cpu = str(max(int(one.resources.cores) for one in shapes))
    return msgspec.structs.replace(
        largest, workers=sum(one.workers for one in shapes), slots=slots, ranks=None, cores=cores,
        resources=largest.resources.replace(cpu=cpu),
    )  # fmt: skip


def _one(line: Line, shape: Shape, step: Step, name: str) -> MPIJob:
    words = line.sections[0].words
    if not words:
        line.request.notes.dropped(
            "script", " ".join(step.words), "no program is named", "write the command", blocks=True
        )
    values = line.request.known | step.env
    text = " ".join(words)
    return _job(
        line.request, step, name, shape.fields, f"exec {filled(text, values)}", plain_words(words, values)
    )


def _job(
    request: Request, step: Step, name: str, fields: dict[str, Any], text: str, words: tuple[str, ...] | None
) -> MPIJob:
    """Return a job that runs words, or a script of its own where a shell has to look at them first."""
    env = dict(request.fields.get("env", {})) | step.env
    setting = [one for one in step.setting if not one.startswith("# ")]
    rest = {key: value for key, value in request.fields.items() if key != "env"}
    if words and not setting:
        code = Code(path=HERE, files=step.files)
        return MPIJob(name=name, command=words, code=code, env=env, **fields, **rest)
    file = free_name(_SCRIPT, request)
    code = Code(path=HERE, files={**step.files, file: _script(request, step, text)})
    return MPIJob(name=name, command=("bash", file), code=code, env=env, **fields, **rest)


def _script(request: Request, step: Step, text: str) -> str:
    lines = [*build_steps.written(step.prepared), *step.setting, text]
    used = mentioned("\n".join(line for line in lines if not line.startswith("# ")))
    known = [variables.set_unless(key, value) for key, value in request.known.items() if key in used]
    return "\n".join(["#!/bin/bash", *variables.like(request, used, request.text), *known, *lines]) + "\n"


def _several(line: Line, shape: Shape, step: Step, name: str) -> MPIJob:
    """Return the job of several programs in one world."""
    request = line.request
    env = dict(request.fields.get("env", {})) | step.env
    files: dict[str, str] = dict(step.files)
    programs = []
    for index, section in enumerate(line.sections):
        words = plain_words(section.words, request.known | step.env)
        if words is None or any(not one.startswith("# ") for one in step.setting):
            file = free_name(f"rank-{index}.sh", request)
            files[file] = _script(request, step, "exec " + " ".join(section.words))
            words = ("bash", file)
        programs.append(Program(ranks=_ranks(request.components, section, index), command=words))
    rest = {key: value for key, value in request.fields.items() if key != "env"}
    fields = shape.fields | {"ranks": None}
    wide = -(-sum(one.ranks for one in programs) // shape.workers)
    fields["slots"] = max(shape.slots, wide)
    if len(programs) == 1:
        request.notes.dropped(
            "hetjob", "", "only one component has a launch line", "look at the launch line", blocks=True
        )
    code = Code(path=HERE, files=files)
    return MPIJob(name=name, programs=tuple(programs), code=code, env=env, **fields, **rest)


def _ranks(components: list[Asked], section: Section, index: int) -> int:
    if section.ranks is not None:
        return max(1, section.ranks)
    at = section.component if section.component is not None else index
    if at < len(components):
        own = shaped(components[at])
        return components[at].ranks or own.workers * own.slots
    return 1
