"""What the programs of a converted script ask for by themselves: variables that the script does not show.

Those that a batch system sets for each rank are set here too; those of the user's shell are told.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from mpijob.formats.convert.header.request import INHERITED, given_by, unused
from mpijob.formats.convert.report import FieldEntry, FieldOutcome
from mpijob.formats.convert.script import variables
from mpijob.model import MPIJob

_MOST_BYTES = 1 << 20
_SOURCES = (".py", ".sh", ".c", ".cc", ".cpp", ".f90")
_FIRST, _WRAPPER = "#!/bin/bash\n", 'exec "$@"\n'
_ONLY_THERE = (
    "use MPIJOB_RANK, MPIJOB_LOCAL_RANK and MPIJOB_WORLD in the program, or ask MPI; or write it into env"
)


class Needs(msgspec.Struct, frozen=True):
    """Variables that programs of a job ask for, each with the file that does."""

    foreign: dict[str, str]
    others: dict[str, str]


def met(
    jobs: tuple[MPIJob, ...],
    folder: str,
    entries: tuple[FieldEntry, ...],
    beside: frozenset[str],
    values: Mapping[str, tuple[str, ...]],
) -> tuple[tuple[MPIJob, ...], tuple[FieldEntry, ...]]:
    """Return the jobs with the batch system's variables that their programs ask for, and what is to tell of it."""
    told = {entry.field for entry in entries}
    done: list[MPIJob] = []
    found: dict[str, FieldEntry] = {}
    for job in jobs:
        needs = _needs(job, folder)
        fixed = variables.fixed(job, values)
        for entry in _told(fixed, needs):
            if entry.field not in told:
                found.setdefault(entry.field, entry)
        done.append(_given(job, fixed, tuple(needs.foreign), beside))
    return tuple(done), tuple(found[field] for field in sorted(found))


def _needs(job: MPIJob, folder: str) -> Needs:
    given = {*job.env, *variables.set_in(text for _, text in _scripts(job))}
    foreign: dict[str, str] = {}
    others: dict[str, str] = {}
    for name, text in _programs(job, folder):
        for asked in sorted(variables.foreign(text) - given):
            foreign.setdefault(asked, name)
        if name.endswith(".py"):
            for asked in sorted(variables.asked_for((text,)) - given - foreign.keys()):
                others.setdefault(asked, name)
    return Needs(foreign, others)


def _told(fixed: Mapping[str, str], needs: Needs) -> Iterator[FieldEntry]:
    for name, asking in needs.foreign.items():
        if name in fixed:
            note = f"{asking} asks for it: it is set for every rank, {fixed[name]}"
            yield FieldEntry(f"${name}", FieldOutcome.CHANGED, "", f"env.{name}", note)
        elif name in variables.LIKE:
            note = f"{asking} asks for it: it is set for each rank; {variables.meaning(name)}"
            yield FieldEntry(f"${name}", FieldOutcome.CHANGED, "", "code.files", note)
        else:
            note = f"{asking} asks for it, and only the batch system knows it"
            yield FieldEntry(f"${name}", FieldOutcome.DROPPED, "", "", note, _ONLY_THERE)
    for name, asking in needs.others.items():
        if not name.startswith("MPIJOB_"):
            note = f"{asking} asks for it and the script does not set it: {INHERITED}"
            yield FieldEntry(f"${name}", FieldOutcome.DROPPED, "", "", note, given_by(name))


def _given(job: MPIJob, fixed: Mapping[str, str], names: tuple[str, ...], beside: frozenset[str]) -> MPIJob:
    """Return a job whose ranks have these variables, as far as they have a like here."""
    env = {name: fixed[name] for name in names if name in fixed}
    if env:
        job = job.replace(env={**job.env, **env})
    lines = "".join(
        variables.exported(name) + "\n" for name in names if name in variables.LIKE and name not in fixed
    )
    return _begun_with(job, lines, beside) if lines else job


def _begun_with(job: MPIJob, lines: str, beside: frozenset[str]) -> MPIJob:
    """Return a job whose ranks begin with lines of a shell: in their own script, or in one before the program."""
    files = dict(job.code.files)
    own = job.command[-1] if len(job.command) == 2 and job.command[0] == "bash" else ""
    if files.get(own, "").startswith(_FIRST):
        files[own] = _FIRST + lines + files[own].removeprefix(_FIRST)
        return job.replace(code=job.code.replace(files=files))
    taken = {*files, *beside, *job.words}
    name = unused("rank.sh", taken.__contains__)
    files[name] = _FIRST + lines + _WRAPPER
    code = job.code.replace(files=files)
    if job.programs:
        several = tuple(one.replace(command=("bash", name, *one.command)) for one in job.programs)
        return job.replace(code=code, programs=several)
    return job.replace(code=code, command=("bash", name, *job.command))


def _scripts(job: MPIJob) -> Iterator[tuple[str, str]]:
    return ((name, text) for name, text in job.code.files.items() if name.endswith(".sh"))


def _programs(job: MPIJob, folder: str) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the programs that a job names, in its files and in its folder."""
    yield from ((name, text) for name, text in job.code.files.items() if name.endswith(_SOURCES))
    words = [*job.words, *(word for _, text in _scripts(job) for word in text.split())]
    for before, word in zip(["", *words], words, strict=False):
        if word.endswith(_SOURCES) and not word.startswith(("/", "-")):
            name = word
        elif before == "-m" and word.replace(".", "").replace("_", "").isalnum():
            name = f"{word.replace('.', '/')}.py"
        else:
            continue
        if folder and name not in job.code.files:
            yield os.path.normpath(name), _text(Path(folder, name))


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8") if file.stat().st_size < _MOST_BYTES else ""
    except (OSError, UnicodeDecodeError, ValueError):
        return ""
