"""The header of a PBS or Torque script: `#PBS` lines as fields of a job, with a report."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mpijob.formats.convert.header import lines, mail, slurm, units
from mpijob.formats.convert.header.request import (
    DEADLINE,
    INHERITED,
    LOGS,
    NAMED,
    Request,
    take_name,
    take_variables,
)
from mpijob.formats.convert.header.size import Asked
from mpijob.formats.convert.header.slurm_options import PLACE, directives
from mpijob.model import Retry
from mpijob.model.spec.enums import did_you_mean

ARRAY = "PBS_ARRAY_INDEX"
_DIRECTIVE = re.compile(r"#PBS\b\s*(.*)")
_COUNTS = {
    "mpiprocs": ("per_node", "slots"),
    "ppn": ("per_node", "slots"),
    "ncpus": ("cores_per_node", "resources.cpu"),
    "ngpus": ("gpus_per_node", "resources.gpu"),
    "gpus": ("gpus_per_node", "resources.gpu"),
    "ompthreads": ("cores", "cores_per_rank"),
}
_WHOLE = ("walltime", "select", "nodes", "place", "mem", "pmem", "vmem", "pvmem", "procs")
_OTHERS = (
    "arch", "host", "vnode", "software", "file", "scratch", "feature", "cput", "pcput", "nice", "other", "qos",
    "min_walltime", "max_walltime", "accelerator", "accelerator_model", "nodect", "aoe", "eoe", "vntype", "model",
    "exclusive", "shared", "gpu_type", "cpu_type", "highmem", "bigmem", "gmem", "gpu_mem", "infiniband", "ib",
)  # fmt: skip
_MISSPELT = re.compile(r"#\s?P(?!BS\b)[A-Z]{2,4}\s+-")
_FLAGS = frozenset({"V", "z", "h", "X", "I", "f", "x"})


def head(text: str) -> Request:
    """Return what the directives ask for; they end at the first command."""
    request = Request(system="PBS", components=[Asked()])
    for line in lines.header(text):
        request.notes.line = line.number
        if match := _DIRECTIVE.match(line.text.lstrip()):
            _directive(request, list(directives(match[1])))
        elif _MISSPELT.match(line.text):
            note = "a directive starts with #PBS; this line is a comment, also for PBS"
            request.notes.dropped(line.text, "", note, "write #PBS, or remove the line", blocks=True)
    request.notes.line = 0
    lines.report_late(request, text, "#PBS")
    mail.finish(request, mail.PBS)
    return request


def _directive(request: Request, words: list[str]) -> None:
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not re.fullmatch(r"-[A-Za-z].*", word):
            request.notes.dropped("#PBS", word, "not an option", "check the line")
            continue
        letter, value = word[1], word[2:]
        if not value and letter not in _FLAGS and at < len(words):
            value = words[at]
            at += 1
        _take(request, letter, value)


def _take(request: Request, letter: str, value: str) -> None:
    field = f"-{letter}"
    if letter == "l":
        _resources(request, value)
    elif letter == "N":
        take_name(request, field, value)
    elif letter == "q":
        slurm.take_queue(request, field, value)
    elif letter in ("A", "P"):
        slurm.take_account(request, field, value)
    elif letter in ("J", "t"):
        slurm.take_array(request, field, value, ARRAY if letter == "J" else "PBS_ARRAYID")
    elif letter == "v":
        take_variables(request, field, value, INHERITED)
    elif letter == "V":
        request.notes.changed(field, "", "", INHERITED, NAMED)
    elif letter == "W" and value.startswith("depend"):
        slurm.take_dependency(request, field, value)
    elif letter == "m":
        mail.take_moments(request, field, value)
    elif letter == "M":
        mail.take_address(request, field, value)
    elif letter == "r":
        _rerun(request, field, value)
    elif letter in _GONE:
        note, todo = _GONE[letter]
        request.notes.dropped(field, value, note, todo)
    else:
        request.notes.dropped(
            f"{field} {value}".strip(), "", "unknown option", "check whether the job needs it"
        )


def _resources(request: Request, value: str) -> None:
    if value.startswith(("select=", "nodes=")):
        head, *rest = re.split(r",(?=\w+=)", value)
        _chunks(request, head)
    else:
        rest = value.split(",")
    for part in rest:
        _resource(request, *part.partition("=")[::2])


def _chunks(request: Request, text: str) -> None:
    word, _, value = text.partition("=")
    for index, chunk in enumerate(value.split("+")):
        if index:
            request.components.append(Asked())
            note = f"these chunks become the group 'chunk-{index}', in the same MPI world"
            request.notes.changed(f"-l {word}", chunk, "groups", note)
        count, *settings = chunk.split(":")
        number = units.whole(count)
        if number is None:
            request.notes.dropped(
                f"-l {word}", count, "machines cannot be selected by name", "set workers", blocks=True
            )
            continue
        request.ask(nodes=number)
        request.notes.exact(f"-l {word}", count, request.of("workers"), "one worker for each chunk")
        for setting in settings:
            _setting(request, f"-l {word}", *setting.partition("=")[::2])


def _setting(request: Request, field: str, name: str, value: str) -> None:
    number, size = units.whole(value), units.memory(value, "")
    if name in _COUNTS and number:
        key, ours = _COUNTS[name]
        request.ask(**{key: number})
        request.notes.exact(f"{field}:{name}", value, request.of(ours))
    elif name == "mem" and size:
        request.ask(memory=size)
        note = "the limit of a chunk becomes the limit of a worker"
        request.notes.exact(f"{field}:mem", value, request.of("resources.memory"), note)
    elif not _misspelt(request, f"{field}:{name}", name, value, (*_COUNTS, "mem", *_OTHERS)):
        request.notes.dropped(f"{field}:{name}", value, "node properties apply only to PBS", PLACE)


def _resource(request: Request, name: str, value: str) -> None:
    field = f"-l {name}"
    if name == "walltime":
        found = units.seconds(value if ":" in value else f"0:{value}")
        if found:
            request.fields["deadline_seconds"] = found
            request.notes.changed(field, value, f"deadline_seconds: {found:g}", DEADLINE)
        else:
            request.notes.dropped(field, value, "not a time", "set deadline_seconds")
    elif name in ("ncpus", "mpiprocs", "ngpus", "ompthreads"):
        _setting(request, "-l", name, value)
    elif name in ("mem", "pmem", "vmem", "pvmem"):
        _memory(request, field, name, value)
    elif name == "place":
        request.notes.dropped(
            field,
            value,
            "placement of chunks applies only to PBS",
            "set placement.topology: spread or packed-node",
        )
    elif not _misspelt(request, field, name, value, (*_COUNTS, *_WHOLE, *_OTHERS)):
        request.notes.dropped(field, value, "unknown resource", "check whether the job needs it")


def _misspelt(request: Request, field: str, name: str, value: str, known: Sequence[str]) -> bool:
    """Report a resource that is nearly one of PBS's as blocking, and return whether it is."""
    meant = "" if name in known or not value else did_you_mean(name, known, cutoff=0.75)
    if meant:
        note = f"PBS has no such resource; did you mean {meant}?"
        request.notes.dropped(field, value, note, f"write {meant}, or remove it", blocks=True)
    return bool(meant)


def _memory(request: Request, field: str, name: str, value: str) -> None:
    size = units.memory(value, "")
    if size is None:
        request.notes.dropped(field, value, "not a size", "set resources.memory")
    elif name == "pmem":
        request.ask(memory_per_core=size)
        request.notes.changed(
            field, value, "resources.memory", "multiplied by the cores of a worker: mpijob limits a worker"
        )
    else:
        todo = "divide it by the number of workers, and set resources.memory"
        request.notes.dropped(field, value, "a limit of the whole job; mpijob limits each worker", todo)


def _rerun(request: Request, field: str, value: str) -> None:
    if value == "y":
        request.fields |= {"retry": Retry(limit=1), "requeue_on_lost_worker": True}
        note = "PBS restarts a job after a node failure; mpijob also retries it once if it fails"
        request.notes.changed(field, value, "retry.limit, requeue_on_lost_worker", note)
    else:
        request.notes.exact(field, value, "", "a job is retried only if retry.limit is set")


_GONE = {
    "o": (LOGS, "nothing, or mpijob logs NAME > FILE"),
    "e": (LOGS, "nothing, or mpijob logs NAME > FILE"),
    "j": (LOGS, "nothing: mpijob logs shows both streams in order"),
    "k": (LOGS, "nothing"),
    "W": ("PBS attributes apply only to PBS", "check whether the job needs it"),
    "a": ("jobs start when capacity is free", "submit the job at that time"),
    "p": ("PBS priorities are not valid elsewhere", "set priority"),
    "S": (
        "the first line of the script names its shell",
        "nothing, or write #! with this shell as the first line",
    ),
    "c": ("the program itself writes checkpoints", "see docs/explanation/local-engine.md, signal"),
    "d": ("a job starts in its own directory, with a copy of the uploaded files", "set code.path"),
    "w": ("a job starts in its own directory, with a copy of the uploaded files", "set code.path"),
    "h": ("jobs start when capacity is free", "run mpijob suspend NAME after creating the job"),
    "I": ("an interactive session is not a batch job", "mpijob alloc"),
}
