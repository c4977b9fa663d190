"""Advice on a script that runs unchanged: never a reason to refuse it.

This module does not parse shell; it searches for words. It looks at files of this machine only if the
script's directory is known: a text that another user sent must reveal nothing about this machine.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from mpijob.formats.convert.header.units import listed
from mpijob.formats.convert.report import FieldEntry, FieldOutcome
from mpijob.model.spec.command import shell_commands

_MOST_NAMED = 5
_SINGLE_QUOTED = re.compile(r"'[^']*'")
_MODULES = re.compile(r"(?:^|[;&|]\s*)(?:module\s+(?:load|add|swap|switch|use)|ml)\s+\S")
_SUBMITS = re.compile(r"(?:^|[;&|`(]\s*)(?:sbatch|qsub|bsub)\s")
_CONTAINER = re.compile(r"\b(?:apptainer|singularity)\s+(?:-\S+\s+)*(?:exec|run)\b")
_ARGUMENT = re.compile(r"\$(?:[1-9@*]|\{[1-9@*])")
_FUNCTION = re.compile(r"^\s*(?:function\s+)?[A-Za-z_][\w-]*\s*\(\)|^\s*function\s", re.MULTILINE)
_LICENCE = re.compile(r"\b\w*(?:LICENSE_FILE|LICENSE_SERVER|LM_LICENSE|_LICENSE)\w*|\blmutil\b")
_SCRATCH = re.compile(
    r"\$\{?(?:SLURM_TMPDIR|PBS_JOBFS|JOBFS|LOCAL_SCRATCH|LOCALSCRATCH|TMPDIR)\b"
    r"|(?<![\w./}])/(?:tmp|scratch|lscratch|localscratch|local|dev/shm)/"
)
_PATH = re.compile(r"(?<![\w./~$}\\-])/(?:[\w.+-]+/?)+")
_NAME = re.compile(r"[A-Za-z][\w.+-]*")
_SYSTEM = ("/dev/", "/proc/", "/sys/", "/tmp")  # noqa: S108 - a name to look for
_BUILTINS = listed(
    ". : [ [[ alias bg bind break builtin case cd continue declare dirs do done echo elif else enable esac eval exec "
    "exit export false fc fg fi for function getopts hash help history if in jobs kill let local logout mapfile popd "
    "printf pushd pwd read readarray readonly return select set shift shopt source suspend test then time times trap "
    "true type typeset ulimit umask unalias unset until wait while { } ! ;; coproc"
)
# Commands that step.sh defines for scripts.
PROGRAMS = listed(
    "mpirun mpiexec mpirun.openmpi mpiexec.openmpi orterun prterun mpirun.mpich mpiexec.mpich mpiexec.hydra "
    "mpirun.hydra srun aprun ibrun prun scontrol squeue scancel sacct sbatch qsub bsub salloc module ml hostname "
    "apptainer singularity"
)


class _Line(NamedTuple):
    number: int
    text: str


def found(text: str, args: tuple[str, ...], folder: str) -> list[FieldEntry]:
    """Return advice on a script with these arguments; `folder` is its directory, "" if unknown."""
    looks = [_dos(text)]
    body = list(_body(text))
    looks += [_first(body, *one) for one in _WORDS]
    if not args:
        looks.append(_arguments(text, body))
    if folder:
        looks += [_interpreter(text), _paths(body, folder), _programs(text, folder)]
    return [entry for entry in looks if entry is not None]


def _body(text: str) -> Iterator[_Line]:
    """Yield the lines without comments and empty ones."""
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield _Line(number, stripped)


def _entry(field: str, value: str, line: int, note: str, todo: str, *, dropped: bool = False) -> FieldEntry:
    fate = FieldOutcome.DROPPED if dropped else FieldOutcome.CHANGED
    return FieldEntry(field, fate, value, "", note, todo, line)


_WORDS: tuple[tuple[re.Pattern[str], bool, str, str], ...] = (
    (
        _MODULES,
        True,
        "environment modules are not available: installed programs and libraries are used",
        "add them to PATH; on a cluster, install them in the image",
    ),
    (
        _SUBMITS,
        True,
        "a job cannot submit another by sbatch, qsub or bsub",
        "run that script yourself: mpijob run SCRIPT --after NAME",
    ),
    (
        _CONTAINER,
        False,
        "if apptainer is not installed, as in pods, the program after the image runs directly",
        "on a cluster set image to that container image in a registry",
    ),
    (
        _LICENCE,
        False,
        "it needs a license; on a cluster the job must reach the license server",
        "nothing, or set network.egress to the server's address and port",
    ),
    (
        _SCRATCH,
        False,
        "a directory of one node: on a cluster each worker has its own, and it is deleted with the worker",
        "nothing, or mount a volume that all workers see",
    ),
)


def _first(
    body: Iterable[_Line], pattern: re.Pattern[str], dropped: bool, note: str, todo: str
) -> FieldEntry | None:
    """Return the advice for the first line that matches."""
    for line in body:
        if pattern.search(line.text):
            return _entry("script", line.text, line.number, note, todo, dropped=dropped)
    return None


def _dos(text: str) -> FieldEntry | None:
    if "\r\n" not in text:
        return None
    note = "its lines have Windows line endings (CRLF), which shells and sbatch do not accept"
    return _entry("line ends", "", 1, note, "convert them: dos2unix SCRIPT")


def _arguments(text: str, body: Iterable[_Line]) -> FieldEntry | None:
    at_will = "nothing, or " if _FUNCTION.search(text) else ""
    note = "the script takes arguments, and none are given"
    todo = f"{at_will}write them: args in the job file, or after -- on the command line"
    for line in body:
        if match := _ARGUMENT.search(_SINGLE_QUOTED.sub("", line.text)):
            return _entry(match[0], line.text, line.number, note, todo)
    return None


def _interpreter(text: str) -> FieldEntry | None:
    words = text.split("\n", 1)[0].removeprefix("#!").split() if text.startswith("#!") else []
    if words[:1] in (["/usr/bin/env"], ["/bin/env"]):
        words = [word for word in words[1:] if not word.startswith("-")]
    if not words or shutil.which(words[0]):
        return None
    note = "the script's interpreter is not on this machine"
    return _entry("#!", words[0], 1, note, "install it on this machine; on a cluster, in the image")


def _paths(body: Iterable[_Line], folder: str) -> FieldEntry | None:
    def missing(line: _Line) -> Iterator[str]:
        for match in _PATH.finditer(line.text):
            if not match[0].startswith(_SYSTEM) and not os.path.exists(os.path.join(folder, match[0])):
                yield match[0]

    note = "there is no such path on this machine"
    return _listed("path", body, missing, note, "change it in the script, or mount a volume at this path")


def _programs(text: str, folder: str) -> FieldEntry | None:
    """Return advice on programs that are not installed, as far as the words of a POSIX shell show."""
    if "csh" in text.split("\n", 1)[0]:
        return None
    functions = {match[0].split("(")[0].split()[-1] for match in _FUNCTION.finditer(text)}

    def missing(line: _Line) -> Iterator[str]:
        for words in shell_commands(line.text):
            name = words[0]
            known = name in _BUILTINS or name in PROGRAMS or name in functions
            # One word may be a label of `case`.
            alone = len(words) == 1
            here = known or alone or os.path.exists(os.path.join(folder, name)) or shutil.which(name)
            if _NAME.fullmatch(name) and not here:
                yield name

    # Quoted texts and here-documents are no commands: their lines are skipped.
    plain = (
        line for line in _outside_documents(text) if line.text.count("'") % 2 == line.text.count('"') % 2 == 0
    )
    note = "there is no such program on this machine"
    return _listed(
        "program", plain, missing, note, "nothing, or install it on this machine; on a cluster, in the image"
    )


def _outside_documents(text: str) -> Iterator[_Line]:
    end, continued = "", False
    for line in _body(text):
        if end:
            end = "" if line.text == end else end
            continue
        if match := re.search(r"<<-?\s*[\"'\\]?([A-Za-z_]\w*)", line.text):
            end = match[1]
        if not continued:
            yield line
        continued = line.text.endswith("\\")


def _listed(
    field: str, body: Iterable[_Line], missing: Callable[[_Line], Iterator[str]], note: str, todo: str
) -> FieldEntry | None:
    """Return one entry for everything that is missing, at the first line that names some of it."""
    names: dict[str, int] = {}
    for line in body:
        for name in missing(line):
            names.setdefault(name, line.number)
    if not names:
        return None
    shown = [*names][:_MOST_NAMED]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return _entry(field, ", ".join(shown) + more, min(names.values()), note, todo)
