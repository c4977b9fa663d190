"""A launcher's command: mpirun and its options become fields, and a shell command becomes a script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec

from mpijob.formats.convert.header import units
from mpijob.formats.convert.header.request import Request
from mpijob.formats.convert.header.size import Asked, shaped
from mpijob.formats.convert.report import Notes
from mpijob.model import Family, Launch, MPIJob, Program
from mpijob.model.spec.command import SHELLS, own_launcher, shell_text
from mpijob.model.spec.command_options import HOROVODRUN, MPIRUN, Grammar
from mpijob.model.spec.enums import BIND_TO, MAP_BY

_SCRIPT = "launcher.sh"
_STARTER = "mpijob chooses how ranks are started"
_LAUNCHERS = frozenset(
    {"mpirun", "mpiexec", "orterun", "prterun", "mpiexec.hydra", "mpirun_rsh", "aprun", "ibrun", "horovodrun"}
    | {"mpirun.openmpi", "mpiexec.openmpi", "mpirun.mpich", "mpiexec.mpich"}
)
_LAUNCHER = re.compile(r"(?<![\w.-])(?:srun|" + "|".join(map(re.escape, sorted(_LAUNCHERS))) + r")(?![\w.-])")
_OPENMPI = units.listed("rank-by npersocket prtemca pmixmca gmca omca")
_COUNTS = {"np": "ranks", "n": "ranks", "c": "ranks", "num-proc": "ranks", "d": "cores"}
_COUNTS |= dict.fromkeys(("N", "npernode", "ppn", "perhost"), "per_node")
_HOSTS = {name.lstrip("-") for name in MPIRUN.hosts}
# Options that need no field of a job, with the reason for the report.
_QUIET = {
    "allow-run-as-root": "ranks run as an ordinary user, or as root where the engine allows it",
    "tag-output": "mpijob logs always shows which rank wrote a line",
    "timestamp-output": "mpijob logs --timestamps shows the time",
    "prepend-rank": "mpijob logs always shows which rank wrote a line",
    "l": "mpijob logs always shows which rank wrote a line",
    "genvall": "every rank gets all variables of the job",
    "envall": "every rank gets all variables of the job",
    "verbose": "mpijob describe and mpijob events show what happens",
    "v": "mpijob describe and mpijob events show what happens",
}
_STARTING = units.listed("bootstrap launcher launcher-exec bootstrap-exec rmk plm prefix launch-agent iface")
_AGENTS = re.compile(
    r"(plm_(rsh|ssh)_agent|(orte|prte)_default_hostfile|plm|ras|orte_keep_fqdn_hostnames|plm_rsh_args)$"
)


class _Section(msgspec.Struct, frozen=True):
    """One program of the world: its words, and its ranks if the line states them."""

    words: tuple[str, ...]
    ranks: int | None = None


def unwrapped(job: MPIJob, notes: Notes, field: str, *, once: bool = True) -> MPIJob:
    """Return the job with the program itself as its command, or with a shell text that starts ranks as its script.

    `once` says that a command without a launcher runs once there, and not as every rank.
    """
    if job.programs or not job.argv:
        return job
    if _base(job.argv[0]) in _LAUNCHERS:
        return _launched(job, notes)
    text = shell_text(job.argv[1:]) if _base(job.argv[0]) in SHELLS else ""
    if _LAUNCHER.search(text):
        return _scripted(job, text, notes, field)
    own = own_launcher(job.argv)
    if own is not None:
        notes.exact(field, own.program, "command", "it starts the ranks itself, on the job's workers")
        return job
    if not once:
        return job
    note = "the command has no MPI launcher: the original runs it once, in the launcher; mpijob runs it as one rank"
    todo = "nothing, or remove ranks to run it as every rank, or set the program to start"
    notes.changed(field, shlex.join(job.argv), "ranks: 1", note, todo)
    return job.replace(ranks=1)


def _base(word: str) -> str:
    return word.rpartition("/")[2]


def _scripted(job: MPIJob, text: str, notes: Notes, field: str) -> MPIJob:
    """Return the job of a shell text, which runs once in the launcher, with its options and arguments."""
    # The shell's own options (`-e`, `-o pipefail`) decide whether a failed command fails the job: the script keeps
    # them.
    shell, *options = job.argv[: job.argv.index(text)]
    named = [value for option, value in pairwise(options) if option == "-o"]
    letters = "".join(
        option[1:] for option in options if re.fullmatch("-[a-zA-Z]+", option) and option != "-o"
    )
    flags = letters.replace("c", "", 1)
    where = shell if shell.startswith("/") else f"/bin/{shell}"
    first = f"#!{where}{f' -{flags}' if flags else ''}\n" + "".join(f"set -o {name}\n" for name in named)
    # The word after the text is the shell's $0.
    args = job.argv[job.argv.index(text) + 2 :]
    notes.changed(
        field, text, f"script: {_SCRIPT}", "it runs once, in the launcher; each mpirun in it becomes a step"
    )
    code = job.code.replace(files={**job.code.files, _SCRIPT: f"{first}{text}\n"})
    return job.replace(command=(), args=args, script=_SCRIPT, code=code)


def _launched(job: MPIJob, notes: Notes) -> MPIJob:
    launcher = _base(job.argv[0])
    fields = {"env": dict(job.env), "launch": job.launch, "mpi": job.mpi}
    asked = Asked(nodes=job.workers, per_node=job.slots, cores=job.cores_per_rank)
    request = Request(system="MPIJob", name=job.name, components=[asked], fields=fields, notes=notes)
    parts = _sections(job.argv[1:])
    sections = [_section(request, launcher, part, alone=len(parts) == 1) for part in parts]
    if not all(section.words for section in sections):
        return job
    if len(sections) > 1:
        programs = tuple(Program(ranks=section.ranks or 1, command=section.words) for section in sections)
        return job.replace(programs=programs, command=(), args=(), **request.fields)
    room = _enough_slots(job, request.components[-1].ranks, notes)
    return job.replace(command=sections[0].words, args=(), **request.fields, **room)


def _enough_slots(job: MPIJob, ranks: int | None, notes: Notes) -> dict[str, Any]:
    """Return ranks and slots such that all ranks have a slot."""
    room = job.workers * job.slots
    if ranks is None or ranks == room:
        return {"ranks": None}
    if ranks < room:
        return {"ranks": ranks}
    slots = -(-ranks // job.workers)
    note = (
        f"{ranks} ranks do not fit into {job.workers} workers with {job.slots} slots: {slots} slots are set"
    )
    notes.changed("slots", job.slots, "slots", note)
    return {"slots": slots, "ranks": None if ranks == slots * job.workers else ranks}


def _sections(words: Sequence[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == ":":
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _section(request: Request, launcher: str, words: list[str], *, alone: bool) -> _Section:
    grammar = HOROVODRUN if launcher == "horovodrun" else MPIRUN
    ranks = None
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        option, values, count = _option(words, at, grammar)
        field = f"{launcher} {words[at].partition('=')[0]}"
        if _COUNTS.get(option) == "ranks" and not alone:
            ranks = units.whole(values[0] if values else "")
            request.notes.exact(field, values[0] if values else "", "programs.ranks")
        else:
            _take(request, field, option, values, words[at : at + count])
        at += count
    return _Section(tuple(words[at:]), ranks)


def _option(words: list[str], at: int, grammar: Grammar) -> tuple[str, list[str], int]:
    written, equals, value = words[at].partition("=")
    # `--option=value` is one word; with one dash the equals sign belongs to a value (`-x NAME=value`).
    if equals and written.startswith("--"):
        return written.lstrip("-"), [value], 1
    known = grammar.ranks | grammar.hosts | {"-d", "-ppn", "-perhost", "-N", "-npernode"}
    written = words[at]
    count = grammar.values.get(written, 1 if written in known else 0)
    return written.lstrip("-"), words[at + 1 : at + 1 + count], 1 + count


def _take(request: Request, field: str, option: str, values: list[str], written: list[str]) -> None:
    value = " ".join(values)
    launch: Launch = request.fields.get("launch", Launch())
    if option in _COUNTS:
        _count(request, field, option, value)
    elif option in _HOSTS:
        request.notes.exact(field, value, "", "mpijob creates the host list itself")
    elif option in ("x", "genv", "env", "genvlist", "envlist"):
        _variable(request, field, option, values)
    elif option in ("mca", "prtemca", "pmixmca", "gmca", "omca") and len(values) == 2:
        _setting(request, field, values, launch)
    elif option in ("map-by", "bind-to", "rankfile", "rf") and values:
        _layout(request, field, option, value, launch)
    elif option in _QUIET:
        request.notes.exact(field, value, "", _QUIET[option])
    elif option in _STARTING:
        request.notes.changed(field, value, "", _STARTER)
    else:
        request.fields["launch"] = launch.replace(flags=(*launch.flags, *written))
        request.notes.changed(
            field,
            value,
            "launch.flags",
            "passed to the MPI launcher unchanged; other MPI libraries may not support it",
        )
        if option in _OPENMPI:
            _needs_openmpi(request, field)


def _needs_openmpi(request: Request, field: str) -> None:
    if request.fields.get("mpi") is not Family.OPENMPI:
        request.fields["mpi"] = Family.OPENMPI
        note = "only Open MPI has this option, so Open MPI is used; its compilers also come first on PATH"
        request.notes.changed(field, "", "mpi: openmpi", note, "nothing, or remove both to let mpijob choose")


def _count(request: Request, field: str, option: str, value: str) -> None:
    number = units.whole(value)
    if number is None or number < 1:
        request.notes.dropped(field, value, "not a number", "write the number", blocks=True)
        return
    key = _COUNTS[option]
    request.ask(**{key: number})
    request.notes.exact(field, value, {"ranks": "ranks", "per_node": "slots", "cores": "cores_per_rank"}[key])


def _variable(request: Request, field: str, option: str, values: list[str]) -> None:
    name, equals, value = values[0].partition("=") if values else ("", "", "")
    if option in ("genv", "env") and len(values) == 2:
        name, equals, value = values[0], "=", values[1]
    if equals:
        request.env(name, value)
        request.notes.exact(field, f"{name}={value}", f"env.{name}")
    else:
        request.notes.exact(field, " ".join(values), "", "every rank gets all variables of the job")


def _setting(request: Request, field: str, values: list[str], launch: Launch) -> None:
    key, value = values
    if _AGENTS.match(key):
        request.notes.changed(field, f"{key} {value}", "", _STARTER)
        return
    request.fields["launch"] = launch.replace(settings=dict(launch.settings) | {key: value})
    request.notes.exact(field, f"{key} {value}", f"launch.settings.{key}")
    _needs_openmpi(request, field)


def _layout(request: Request, field: str, option: str, value: str, launch: Launch) -> None:
    key = {"map-by": "map_by", "bind-to": "bind_to"}.get(option, "rankfile")
    each = re.fullmatch(r"ppr:([1-9]\d{0,4}):node", value) if key == "map_by" else None
    if each is not None and _fills(request, int(each[1])):
        request.notes.exact(field, value, "slots", "slots set the ranks of each worker for every MPI library")
        return
    changes: dict[str, Any] = {key: value}
    request.fields["launch"] = launch.replace(**changes)
    request.notes.exact(field, value, f"launch.{key}")
    if value not in {"map_by": MAP_BY, "bind_to": BIND_TO}.get(key, {}).get("mpich", (value,)):
        _needs_openmpi(request, field)


def _fills(request: Request, each: int) -> bool:
    """Return whether a number of ranks for each node equals the slots of a worker."""
    asked = request.components[-1]
    if asked.per_node is None and (asked.nodes is None or asked.ranks is None):
        request.ask(per_node=each)
    return shaped(request.components[-1]).slots == each
