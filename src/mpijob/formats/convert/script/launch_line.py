"""One line that starts ranks (srun, mpirun, mpiexec, horovodrun, aprun, ibrun), as programs and launch options.

Our own launch line takes its place, so every option is translated, and what cannot be is told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mpijob.formats.convert.header import slurm, slurm_options, units
from mpijob.formats.convert.header.request import STARTER, Request, given_by
from mpijob.formats.convert.header.size import shaped
from mpijob.formats.convert.script import multi_prog
from mpijob.formats.convert.shell.constants import constant, filled
from mpijob.model import Family, Launch
from mpijob.model.spec.command_options import HOROVODRUN, MPIRUN, Grammar
from mpijob.model.spec.enums import BIND_TO, MAP_BY

SRUN = frozenset({"srun"})
MPIRUNS = frozenset(
    {"mpirun", "mpiexec", "orterun", "prterun", "mpiexec.hydra", "mpirun_rsh", "aprun", "ibrun", "horovodrun"}
    | {"mpirun.openmpi", "mpiexec.openmpi", "mpirun.mpich", "mpiexec.mpich"}
)
LAUNCHERS = SRUN | MPIRUNS
_OPENMPI = units.listed("rank-by npersocket prtemca pmixmca gmca omca")
_NAMES = {
    "np": "ranks",
    "n": "ranks",
    "c": "ranks",
    "num-proc": "ranks",
    "N": "per_node",
    "npernode": "per_node",
}
_NAMES |= {"ppn": "per_node", "perhost": "per_node", "d": "cores"}
_HOSTS = {name.lstrip("-") for name in MPIRUN.hosts}
_QUIET = {
    "allow-run-as-root": "ranks run as an ordinary user, or as root where the engine allows it",
    "tag-output": "mpijob logs tells which rank wrote a line, always",
    "timestamp-output": "mpijob logs --timestamps shows when",
    "prepend-rank": "mpijob logs tells which rank wrote a line, always",
    "l": "mpijob logs tells which rank wrote a line, always",
    "genvall": "every variable of the job reaches every rank",
    "envall": "every variable of the job reaches every rank",
    "verbose": "mpijob describe and mpijob events tell what happens",
    "v": "mpijob describe and mpijob events tell what happens",
}
_STARTERS = units.listed("bootstrap launcher launcher-exec bootstrap-exec rmk plm prefix launch-agent iface")
_AGENTS = re.compile(
    r"(plm_(rsh|ssh)_agent|(orte|prte)_default_hostfile|plm|ras|orte_keep_fqdn_hostnames|plm_rsh_args)$"
)


class Section(msgspec.Struct, frozen=True):
    """One program of the world: its words as written, and its ranks where the line says them."""

    words: tuple[str, ...]
    ranks: int | None = None
    component: int | None = None
    table: bool = False


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What a launch line says: its programs, and the request with what its options change."""

    sections: tuple[Section, ...]
    request: Request


def base(word: str) -> str:
    """Return the name of a program without its directory or quotes."""
    return word.strip("'\"").rpartition("/")[2]


def read(words: Sequence[str], before: Request, env: Mapping[str, str] | None = None) -> Line:
    """Return what a launch line says, on top of what was asked for before; `env` are variables that the script sets."""
    request = Request(
        system=before.system,
        name=before.name,
        fields=dict(before.fields),
        components=list(before.components),
        values=before.values,
        after=before.after,
        known=before.known,
        files=before.files,
        text=before.text,
        beside=before.beside,
        notes=before.notes,
    )
    launcher = base(words[0])
    parts = _parts(words[1:])
    values = {**before.known, **(env or {})}
    reader = _srun if launcher in SRUN else _mpirun
    sections = tuple(reader(request, launcher, part, values, alone=len(parts) == 1) for part in parts)
    if len(sections) == 1 and (listed := _listed(sections[0], request)):
        sections = listed
    return Line(sections=sections, request=request)


def _listed(section: Section, request: Request) -> tuple[Section, ...]:
    """Return the programs of a table for `srun --multi-prog`, where the script writes the table itself."""
    if not section.table:
        return ()
    name = constant(section.words[0]) if section.words else None
    found = multi_prog.read(request.files[name], request.notes) if name in request.files else ()
    if not found:
        todo = "write the programs and their ranks in the field programs: mpijob explain programs"
        note = "the table of programs is not in the script, or cannot be read"
        request.notes.dropped("srun --multi-prog", name or "", note, todo, blocks=True)
        return ()
    request.notes.exact("srun --multi-prog", name, "programs")
    return tuple(Section(words, ranks) for ranks, words in found)


def _parts(words: Sequence[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == ":":
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _told(words: Sequence[str], known: Mapping[str, str]) -> list[str]:
    """Return words as far as they are known; those that a shell would expand as they are written."""
    found = []
    for word in words:
        full = filled(word, known)
        plain = constant(full)
        found.append(full if plain is None else plain)
    return found


def _srun(
    request: Request, launcher: str, words: list[str], values: Mapping[str, str], *, alone: bool
) -> Section:
    told = _told(words, values)
    found, count = slurm_options.pairs(told)
    ranks, component, table = None, None, False
    for name, value, written in found:
        if name in ("het-group", "pack-group"):
            component = units.whole(value)
            request.notes.exact(f"srun --{name}", value, "programs")
        elif name == "exclusive":
            request.notes.exact("srun --exclusive", value, "", "each job has cores of its own")
        elif name == "multi-prog":
            table = True
        elif name == "pty":
            note = "an interactive session is no batch job"
            request.notes.dropped("srun --pty", "", note, "mpijob alloc", blocks=True)
        elif name == "ntasks" and not alone:
            ranks = units.whole(value)
            request.notes.exact("srun --ntasks", value, "programs.ranks")
        elif "$" in value or "`" in value:
            _unknown(request, f"srun --{name}", value)
        else:
            slurm.take(request, name, value, f"srun {written}")
    return Section(tuple(words[count:]), ranks, component, table)


def _unknown(request: Request, field: str, value: str) -> None:
    note = "its value is known only when the script runs"
    request.notes.dropped(field, value, note, "write the number into the job", blocks=True)


def _mpirun(
    request: Request, launcher: str, words: list[str], known: Mapping[str, str], *, alone: bool
) -> Section:
    told = _told(words, known)
    grammar = HOROVODRUN if launcher == "horovodrun" else MPIRUN
    ranks = None
    at = 0
    while at < len(told) and told[at].startswith("-") and told[at] != "-":
        option, values, count = _option(told, at, grammar)
        field = f"{launcher} {told[at].partition('=')[0]}"
        if _NAMES.get(option) == "ranks" and not alone:
            ranks = units.whole(values[0] if values else "")
            request.notes.exact(field, values[0] if values else "", "programs.ranks")
        else:
            _take(request, field, option, values, told[at : at + count])
        at += count
    return Section(tuple(words[at:]), ranks)


def _option(words: list[str], at: int, grammar: Grammar) -> tuple[str, list[str], int]:
    written, equals, value = words[at].partition("=")
    if equals and written.startswith("--"):
        return written.lstrip("-"), [value], 1
    known = grammar.ranks | grammar.hosts | {"-d", "-ppn", "-perhost", "-N", "-npernode"}
    written = words[at]
    count = grammar.values.get(written, 1 if written in known else 0)
    return written.lstrip("-"), words[at + 1 : at + 1 + count], 1 + count


def _take(request: Request, field: str, option: str, values: list[str], written: list[str]) -> None:
    value = " ".join(values)
    launch: Launch = request.fields.get("launch", Launch())
    if option in _NAMES:
        _count(request, field, option, value)
    elif option in _HOSTS:
        request.notes.exact(field, value, "", "the job makes the list of its workers itself")
    elif option in ("x", "genv", "env", "genvlist", "envlist"):
        _variable(request, field, option, values)
    elif option in ("mca", "prtemca", "pmixmca", "gmca", "omca") and len(values) == 2:
        _setting(request, field, values, launch)
    elif option in ("map-by", "bind-to", "rankfile", "rf") and values:
        _layout(request, field, option, value, launch)
    elif option in _QUIET:
        request.notes.exact(field, value, "", _QUIET[option])
    elif option in _STARTERS:
        request.notes.changed(field, value, "", STARTER)
    else:
        request.fields["launch"] = launch.replace(flags=(*launch.flags, *written))
        request.notes.changed(
            field,
            value,
            "launch.flags",
            "handed to the launcher as it is; another MPI library may not know it",
        )
        if option in _OPENMPI:
            _needs_openmpi(request, field)


def _needs_openmpi(request: Request, field: str) -> None:
    if request.fields.get("mpi") is not Family.OPENMPI:
        request.fields["mpi"] = Family.OPENMPI
        note = "only Open MPI knows this option, so it starts the ranks; its compilers are found first, too"
        request.notes.changed(
            field, "", "mpi: openmpi", note, "nothing, or take both out to let the plan choose"
        )


def _count(request: Request, field: str, option: str, value: str) -> None:
    number = units.whole(value)
    if number is None or number < 1:
        _unknown(request, field, value)
        return
    key = _NAMES[option]
    request.ask(**{key: number})
    request.notes.exact(field, value, {"ranks": "ranks", "per_node": "slots", "cores": "cores_per_rank"}[key])


def _variable(request: Request, field: str, option: str, values: list[str]) -> None:
    name, equals, value = values[0].partition("=") if values else ("", "", "")
    if option in ("genv", "env") and len(values) == 2:
        name, equals, value = values[0], "=", values[1]
    if equals and "$" not in value:
        request.env(name, value)
        request.notes.exact(field, f"{name}={value}", f"env.{name}")
    elif equals:
        note = "its value is known only when the script runs"
        request.notes.dropped(field, f"{name}={value}", note, f"write env: {{{name}: …}}")
    else:
        _handed_on(request, field, values)


def _handed_on(request: Request, field: str, values: list[str]) -> None:
    """Tell of variables that are named alone: those that the script sets reach every rank, others are the shell's."""
    for name in (one for value in values for one in value.split(",") if one):
        given = name in request.fields.get("env", {}) or re.search(rf"\b{re.escape(name)}=", request.text)
        if given or not request.text:
            request.notes.exact(field, name, "", "every variable of the job reaches every rank")
        else:
            note = "the script does not set it: its value is in the shell from which it is submitted"
            request.notes.dropped(field, name, note, given_by(name))


def _setting(request: Request, field: str, values: list[str], launch: Launch) -> None:
    key, value = values
    if _AGENTS.match(key):
        request.notes.changed(field, f"{key} {value}", "", STARTER)
        return
    request.fields["launch"] = launch.replace(settings=dict(launch.settings) | {key: value})
    request.notes.exact(field, f"{key} {value}", f"launch.settings.{key}")
    _needs_openmpi(request, field)


def _layout(request: Request, field: str, option: str, value: str, launch: Launch) -> None:
    key = {"map-by": "map_by", "bind-to": "bind_to"}.get(option, "rankfile")
    each = re.fullmatch(r"ppr:([1-9]\d{0,4}):node", value) if key == "map_by" else None
    if each is not None and _fills(request, int(each[1])):
        request.notes.exact(
            field, value, "slots", "slots say how many ranks each worker has, to every MPI library"
        )
        return
    changes: dict[str, Any] = {key: value}
    request.fields["launch"] = launch.replace(**changes)
    request.notes.exact(field, value, f"launch.{key}")
    if value not in {"map_by": MAP_BY, "bind_to": BIND_TO}.get(key, {}).get("mpich", (value,)):
        _needs_openmpi(request, field)


def _fills(request: Request, each: int) -> bool:
    """Return whether so many ranks on each node are the slots of a worker."""
    asked = request.components[-1]
    if asked.per_node is None and (asked.nodes is None or asked.ranks is None):
        request.ask(per_node=each)
    return shaped(request.components[-1]).slots == each
