"""Refusing what could only fail: a program that is not on the PATH, a file that is not there or may not be executed.

Only what can be known is refused. A script is known where an interpreter is given a file to run; it
lies in the job's working directory, which holds what goes along and nothing else, or at its full path.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from mpijob.backends import code_upload
from mpijob.errors import Finding, InvalidJob
from mpijob.model import Code, MPIJob
from mpijob.model.spec import dependencies
from mpijob.model.spec.command import BATCH_LAUNCHERS
from mpijob.model.spec.enums import did_you_mean, shown

_PYTHON = re.compile(r"python[0-9.]*")
_RUNNERS = ("mpi4py", "mpi4py.run")  # modules that are given a script, as Python itself is
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
_SUBMITS = frozenset({"sbatch", "salloc", "qsub", "bsub", "msub"})
_INTERPRETERS = {".py": "python", ".sh": "sh"}
_MOST_NAMES = 500


def refuse_missing(job: MPIJob, path: str, directory: Path) -> None:
    """Raise InvalidJob for a program or a script that is not there; `directory` is where the user stands."""
    if job.script:
        if not _there(job, job.script):
            raise InvalidJob.of((_no_script(job, job.script, "script", directory),))
        return
    for field, argv in _commands(job):
        if "/" not in argv[0] and shutil.which(argv[0], path=path) is None:
            raise InvalidJob.of((_no_program(job, argv[0]),))
        for at in (0 if "/" in argv[0] else None, _script_at(argv)):
            if at is not None and not _there(job, argv[at]):
                raise InvalidJob.of((_no_script(job, argv[at], _place(job, field, at), directory),))
        if "/" in argv[0] and (why := _not_executable(job, argv[0])):
            raise InvalidJob.of((msgspec.structs.replace(why, field=_place(job, field, 0)),))


def _commands(job: MPIJob) -> Iterator[tuple[str, tuple[str, ...]]]:
    if not job.programs:
        yield "command", job.argv
    for index, program in enumerate(job.programs):
        yield f"programs[{index}].command", (*program.command, *program.args)


def _place(job: MPIJob, field: str, at: int) -> str:
    """Return the path of a word in the spec: beyond the command it is among the args."""
    if field != "command" or at < len(job.command):
        return f"{field}[{at}]"
    return f"args[{at - len(job.command)}]"


def _script_at(argv: tuple[str, ...]) -> int | None:
    """Return where an interpreter's command names its script; None when it names none, or in a way not known here."""
    name = os.path.basename(argv[0])
    if _PYTHON.fullmatch(name):
        return _first_file(argv, flags="bBdEhiIOPqsSuvVx", with_value="WX")
    return _first_file(argv, flags="efuvx", with_value="") if name in _SHELLS else None


def _first_file(argv: tuple[str, ...], flags: str, with_value: str) -> int | None:
    at = 1
    while at < len(argv):
        word = argv[at]
        if not word.startswith("-"):
            return at
        if word == "-m" and argv[at + 1 : at + 2] and argv[at + 1] in _RUNNERS:
            return at + 2 if argv[at + 2 : at + 3] and not argv[at + 2].startswith("-") else None
        if word[1:2] in with_value and word[1:2]:
            at += 1 if len(word) > 2 else 2  # -Wignore, or -W ignore
        elif len(word) > 1 and set(word[1:]) <= set(flags):
            at += 1
        else:
            return None  # -c, another -m, -, or an option that is not known here
    return None


def _there(job: MPIJob, script: str) -> bool:
    if os.path.isabs(script):
        return _mounted(job, script) or os.path.exists(script)
    return _goes_along(os.path.normpath(script), job.code)


def _mounted(job: MPIJob, path: str) -> bool:
    return any(path.startswith(volume.mount.rstrip("/") + "/") for volume in job.volumes)


def _goes_along(script: str, along: Code) -> bool:
    if _is_text(script, along):
        return True
    if not along.path or not os.path.exists(os.path.join(along.path, script)):
        return False
    if not along.include and not along.exclude:
        return True
    return any(f"{place}/".startswith(f"{script}/") for _, place in code_upload.select_files(along))


def _is_text(place: str, along: Code) -> bool:
    return os.path.normpath(place) in {os.path.normpath(name) for name in along.files}


def _is_copied(place: str, along: Code) -> bool:
    """Return whether a file lies at a place before texts are written there: they keep whether it is executable."""
    return os.path.normpath(place) in {str(target) for _, target in code_upload.select_files(along)}


def _not_executable(job: MPIJob, program: str) -> Finding | None:
    """Return what is wrong with a program that is there and not marked as executable."""
    inline = _is_text(program, job.code) and not _is_copied(program, job.code)
    file = os.path.join(job.code.path, program)
    if not inline and (_mounted(job, program) or not os.path.isfile(file) or os.access(file, os.X_OK)):
        return None
    interpreter = _INTERPRETERS.get(os.path.splitext(program)[1], "")
    named = f"name its interpreter first: {interpreter or 'sh'} {os.path.normpath(program)}"
    if inline:
        hint = f"{named}; files from code.files are not executable"
    else:
        hint = f"make it executable: chmod +x {os.path.normpath(file)}" + (
            f", or {named}" if interpreter else ""
        )
    return Finding(code="NOT_EXECUTABLE", message=f"{shown(program)} is not marked as executable", hint=hint)


def _no_script(job: MPIJob, script: str, field: str, directory: Path) -> Finding:
    if os.path.isabs(script):
        message, names = f"there is no file {script}", _names(Path(script).parent)
        meant = did_you_mean(os.path.basename(script), names)
        meant = os.path.join(os.path.dirname(script), meant) if meant else ""
    else:
        message = f"there is no file {shown(script)} in the uploaded code"
        meant = did_you_mean(script, _along(job.code, directory))
        if job.after:
            hint = _made_before(dependencies.names(job.after), os.path.basename(script))
            return Finding(code="COMMAND_NOT_FOUND", field=field, message=message, hint=hint)
    return Finding(code="COMMAND_NOT_FOUND", field=field, message=message, hint=_hint(script, meant))


def _made_before(after: tuple[str, ...], name: str) -> str:
    """Return the remedy for a file that a job before this one may make: each has a directory of its own."""
    volume = f"volumes: [{{mount: /shared, kind: claim, source: {after[0]}}}]"
    return (
        f"if {' or '.join(after)} makes it, give both jobs {volume}, have it written to /shared, and run "
        f"/shared/{name}; else set code.path to the directory that holds it"
    )


def _hint(script: str, meant: str) -> str:
    if meant:
        return f"did you mean {meant}?"
    if script.startswith("~"):
        return "write the whole path: the command runs without a shell, so ~ is not expanded"
    return "correct the spelling, or set code.path to the directory that holds it"


def _along(along: Code, directory: Path) -> list[str]:
    """Return the names of the files that go along, or that would if the command named them."""
    if not along.path:
        return [*along.files, *_names(directory)]
    return [*along.files, *(str(place) for _, place in code_upload.select_files(along)[:_MOST_NAMES])]


def _names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))[:_MOST_NAMES]
    except OSError:
        return []


def _of_batch(command: str) -> str:
    """Return what takes the place of a batch system's own program; "" for any other."""
    script = "run a batch script unchanged with: mpijob run SCRIPT"
    if command in BATCH_LAUNCHERS:
        return f"leave {command} out: the job starts the ranks, as many as --workers, --slots or --ranks say; {script}"
    return script if command in _SUBMITS else ""


def _no_program(job: MPIJob, command: str) -> Finding:
    here = job.code.path and (Path(job.code.path) / command).is_file()
    hint = (
        f"write ./{command}"
        if here
        else _of_batch(command) or "give its path, install it, or correct the spelling"
    )
    return Finding(
        code="COMMAND_NOT_FOUND",
        field="command",
        message=f"there is no program '{command}' on the PATH",
        hint=hint,
    )
