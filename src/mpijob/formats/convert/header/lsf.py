"""The header of an LSF script: `#BSUB` lines as fields of a job, with a report."""

from __future__ import annotations

import re

from mpijob.formats.convert.header import lines, mail, slurm, units
from mpijob.formats.convert.header.request import DEADLINE, LOGS, Request, name_of, take_name
from mpijob.formats.convert.header.size import Asked
from mpijob.formats.convert.header.slurm_options import PLACE, directives

_DIRECTIVE = re.compile(r"#BSUB\b\s*(.*)")
_FLAGS = frozenset({"x", "B", "N", "H", "r", "I", "Is", "Ip", "K", "XF"})
_NAME = re.compile(r"([^\[\]]*)(?:\[([^\]]*)\](?:%(\d+))?)?")
ARRAY = "LSB_JOBINDEX"


def head(text: str) -> Request:
    """Return what the directives ask for."""
    request = Request(system="LSF", components=[Asked()])
    for line in lines.header(text):
        if match := _DIRECTIVE.match(line.text):
            request.notes.line = line.number
            _directive(request, list(directives(match[1])))
    request.notes.line = 0
    lines.report_late(request, text, "#BSUB")
    return request


def _directive(request: Request, words: list[str]) -> None:
    at = 0
    while at < len(words):
        option = words[at].removeprefix("-")
        at += 1
        value = ""
        if option not in _FLAGS and at < len(words):
            value = words[at]
            at += 1
        _take(request, option, value)


def _take(request: Request, option: str, value: str) -> None:
    field = f"-{option}"
    if option == "n":
        _ranks(request, field, value)
    elif option == "R":
        _requirement(request, field, value)
    elif option == "J":
        _name(request, field, value)
    elif option == "W":
        _time(request, field, value)
    elif option == "M":
        _memory(request, field, value)
    elif option == "gpu":
        _gpus(request, field, value)
    elif option == "q":
        slurm.take_queue(request, field, value)
    elif option in ("P", "G"):
        slurm.take_account(request, "-P", value)
    elif option == "w":
        _dependency(request, field, value)
    else:
        note, todo = _GONE.get(option, ("unknown option", "check whether the job needs it"))
        request.notes.dropped(field, value, note, todo)


def _ranks(request: Request, field: str, value: str) -> None:
    number = units.whole(value.rpartition(",")[2])
    if not number:
        request.notes.dropped(field, value, "not a whole number", "set ranks", blocks=True)
        return
    request.ask(ranks=number)
    request.notes.exact(field, value, "ranks")


def _requirement(request: Request, field: str, value: str) -> None:
    ptile = re.search(r"span\[ptile=(\d{1,5})\]", value)
    if ptile:
        request.ask(per_node=int(ptile[1]))
        request.notes.exact(field, ptile[0], "slots")
    elif "span[hosts=1]" in value:
        request.ask(nodes=1)
        request.notes.exact(field, "span[hosts=1]", "workers: 1")
    rest = re.sub(r"span\[[^\]]*\]", "", value).strip()
    if rest:
        request.notes.dropped(field, rest, "host requirements apply only to LSF", PLACE)


def _name(request: Request, field: str, value: str) -> None:
    match = _NAME.fullmatch(value)
    if match is None or not match[1]:
        request.notes.dropped(field, value, "not a valid name", "set name")
        return
    take_name(request, field, match[1])
    if match[2] is not None:
        slurm.take_array(request, field, f"{match[2]}%{match[3]}" if match[3] else match[2], ARRAY)


def _dependency(request: Request, field: str, value: str) -> None:
    names = re.findall(r"done\(\s*\"?([A-Za-z][^\"()]*)\"?\s*\)", value)
    if names and not re.search(r"\|\||!|(?:ended|exit|started|post_done|numdone)\(", value):
        request.fields["after"] = tuple(name_of(name) for name in names)
        request.notes.exact(field, value, "after", "jobs are identified by name")
        return
    why = "only conditions done(NAME), joined by &&, are converted"
    todo = "set after: any:NAME for ended, failed:NAME for exit"
    request.notes.dropped(field, value, why, todo)


def _time(request: Request, field: str, value: str) -> None:
    hours, colon, minutes = value.partition("/")[0].partition(":")
    found = units.seconds(f"{hours}:{minutes}:00" if colon else hours)
    if found:
        request.fields["deadline_seconds"] = found
        request.notes.changed(field, value, f"deadline_seconds: {found:g}", DEADLINE)
    else:
        request.notes.dropped(field, value, "not a time", "set deadline_seconds")


def _memory(request: Request, field: str, value: str) -> None:
    size = units.memory(value, "") if re.search(r"[A-Za-z]", value) else None
    if size is None:
        note = "its unit depends on the site (LSF_UNIT_FOR_LIMITS)"
        request.notes.dropped(field, value, note, "set resources.memory to what one worker needs")
        return
    request.ask(memory_per_core=size)
    note = "multiplied by the cores of a worker: LSF limits a process, mpijob limits a worker"
    request.notes.changed(field, value, "resources.memory", note)


def _gpus(request: Request, field: str, value: str) -> None:
    number = re.search(r"num=(\d{1,3})", value)
    if number is None:
        request.notes.dropped(field, value, "not a number of GPUs", "set resources.gpu")
        return
    request.ask(gpus_per_node=int(number[1]))
    request.notes.exact(field, value, "resources.gpu")


_GONE = {
    "o": (LOGS, "nothing, or mpijob logs NAME > FILE"),
    "e": (LOGS, "nothing, or mpijob logs NAME > FILE"),
    "oo": (LOGS, "nothing, or mpijob logs NAME > FILE"),
    "eo": (LOGS, "nothing, or mpijob logs NAME > FILE"),
    "B": ("no mail is sent", mail.NO_ADDRESS),
    "N": ("no mail is sent", mail.NO_ADDRESS),
    "u": ("no mail is sent", mail.NO_ADDRESS),
    "x": ("other jobs may share the nodes", "request all cores of a node with resources.cpu"),
    "m": ("host names of LSF are not valid elsewhere", PLACE),
    "H": ("jobs start when capacity is free", "run mpijob suspend NAME after creating the job"),
    "L": ("the first line of the script names its shell", "nothing"),
    "cwd": ("a job starts in its own directory, with a copy of the uploaded files", "set code.path"),
}
