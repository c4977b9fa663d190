"""Check a job's command: a program that is not on the PATH, a file that is missing or not executable.

Only what is certain to fail is rejected. A script is checked if an interpreter gets it as a file. It is in the
job's working directory, which contains the uploaded code and nothing else, or at its absolute path. The form of
a job is checked in `checks`, without access to files.
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
# Modules that run a script, as in `python -m mpi4py script.py`.
_RUNNERS = ("mpi4py", "mpi4py.run")
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
_SUBMIT_COMMANDS = frozenset({"sbatch", "salloc", "qsub", "bsub", "msub"})
_INTERPRETERS = {".py": "python", ".sh": "sh"}
_MAX_NAMES = 500


def refuse_missing(job: MPIJob, path: str, directory: Path) -> None:
    """Raise InvalidJob for a missing program or script; `path` is the job's PATH, `directory` the current one."""
    if job.script:
        if not _exists(job, job.script):
            raise InvalidJob.of((_missing_script(job, job.script, "script", directory),))
        return
    for field, argv in _commands(job):
        is_path = "/" in argv[0]
        if not is_path and shutil.which(argv[0], path=path) is None:
            raise InvalidJob.of((_missing_program(job, argv[0]),))
        for index in (0 if is_path else None, _script_index(argv)):
            if index is not None and not _exists(job, argv[index]):
                raise InvalidJob.of(
                    (_missing_script(job, argv[index], _field(job, field, index), directory),)
                )
        if is_path and (finding := _not_executable(job, argv[0])):
            raise InvalidJob.of((msgspec.structs.replace(finding, field=_field(job, field, 0)),))


def _commands(job: MPIJob) -> Iterator[tuple[str, tuple[str, ...]]]:
    if not job.programs:
        yield "command", job.argv
    for index, program in enumerate(job.programs):
        yield f"programs[{index}].command", (*program.command, *program.args)


def _field(job: MPIJob, field: str, index: int) -> str:
    """Return the path of a word in the spec; words after the command are in `args`."""
    if field != "command" or index < len(job.command):
        return f"{field}[{index}]"
    return f"args[{index - len(job.command)}]"


def _script_index(argv: tuple[str, ...]) -> int | None:
    """Return the index of the script in an interpreter's command; None if there is none, or it is not certain."""
    name = os.path.basename(argv[0])
    if _PYTHON.fullmatch(name):
        return _first_file(argv, flags="bBdEhiIOPqsSuvVx", with_value="WX")
    return _first_file(argv, flags="efuvx", with_value="") if name in _SHELLS else None


def _first_file(argv: tuple[str, ...], flags: str, with_value: str) -> int | None:
    index = 1
    while index < len(argv):
        word = argv[index]
        if not word.startswith("-"):
            return index
        if word == "-m" and argv[index + 1 : index + 2] and argv[index + 1] in _RUNNERS:
            script = argv[index + 2 : index + 3]
            return index + 2 if script and not script[0].startswith("-") else None
        if word[1:2] in with_value and word[1:2]:
            # -Wignore, or -W ignore
            index += 1 if len(word) > 2 else 2
        elif len(word) > 1 and set(word[1:]) <= set(flags):
            index += 1
        else:
            # -c, -m with another module, -, or an unknown option.
            return None
    return None


def _exists(job: MPIJob, script: str) -> bool:
    if os.path.isabs(script):
        return _is_on_volume(job, script) or os.path.exists(script)
    return _is_uploaded(os.path.normpath(script), job.code)


def _is_on_volume(job: MPIJob, path: str) -> bool:
    return any(path.startswith(volume.mount.rstrip("/") + "/") for volume in job.volumes)


def _is_uploaded(script: str, code: Code) -> bool:
    if _is_text(script, code):
        return True
    if not code.path or not os.path.exists(os.path.join(code.path, script)):
        return False
    if not code.include and not code.exclude:
        return True
    return any(f"{target}/".startswith(f"{script}/") for _, target in code_upload.select_files(code))


def _is_text(path: str, code: Code) -> bool:
    """Return whether a file is one of the texts in `code.files`."""
    return os.path.normpath(path) in {os.path.normpath(name) for name in code.files}


def _is_copied(path: str, code: Code) -> bool:
    return os.path.normpath(path) in {str(target) for _, target in code_upload.select_files(code)}


def _not_executable(job: MPIJob, program: str) -> Finding | None:
    """Return the finding for a program that exists and is not executable; None if it is, or is not known."""
    # A text that replaces a copied file keeps the mode of that file.
    inline = _is_text(program, job.code) and not _is_copied(program, job.code)
    file = os.path.join(job.code.path, program)
    if not inline and (_is_on_volume(job, program) or not os.path.isfile(file) or os.access(file, os.X_OK)):
        return None
    interpreter = _INTERPRETERS.get(os.path.splitext(program)[1], "")
    use_interpreter = f"name its interpreter first: {interpreter or 'sh'} {os.path.normpath(program)}"
    hint = f"make it executable: chmod +x {os.path.normpath(file)}"
    if inline:
        hint = f"{use_interpreter}; files from code.files are not executable"
    elif interpreter:
        hint += f", or {use_interpreter}"
    return Finding(code="NOT_EXECUTABLE", message=f"{shown(program)} is not marked as executable", hint=hint)


def _missing_script(job: MPIJob, script: str, field: str, directory: Path) -> Finding:
    if os.path.isabs(script):
        message = f"there is no file {script}"
        suggestion = did_you_mean(os.path.basename(script), _list_names(Path(script).parent))
        hint = _hint(script, os.path.join(os.path.dirname(script), suggestion) if suggestion else "")
    else:
        message = f"there is no file {shown(script)} in the uploaded code"
        hint = _hint(script, did_you_mean(script, _uploaded_names(job.code, directory)))
        if job.after:
            hint = _dependency_hint(dependencies.names(job.after), os.path.basename(script))
    return Finding(code="COMMAND_NOT_FOUND", field=field, message=message, hint=hint)


def _dependency_hint(after: tuple[str, ...], name: str) -> str:
    """Return the hint for a file that an earlier job may create: each job has a working directory of its own."""
    volume = f"volumes: [{{mount: /shared, kind: claim, source: {after[0]}}}]"
    return (
        f"if {' or '.join(after)} makes it, give both jobs {volume}, have it written to /shared, and run "
        f"/shared/{name}; else set code.path to the directory that holds it"
    )


def _hint(script: str, suggestion: str) -> str:
    if suggestion:
        return f"did you mean {suggestion}?"
    if script.startswith("~"):
        return "write the whole path: the command runs without a shell, so ~ is not expanded"
    return "correct the spelling, or set code.path to the directory that holds it"


def _uploaded_names(code: Code, directory: Path) -> list[str]:
    """Return the names of the uploaded files, or of those that would be uploaded if the command named them."""
    if not code.path:
        return [*code.files, *_list_names(directory)]
    return [*code.files, *(str(target) for _, target in code_upload.select_files(code)[:_MAX_NAMES])]


def _list_names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))[:_MAX_NAMES]
    except OSError:
        return []


def _batch_hint(command: str) -> str:
    """Return what to use instead of a batch system's command; "" for any other command."""
    script = "run a batch script unchanged with: mpijob run SCRIPT"
    if command in BATCH_LAUNCHERS:
        return f"leave {command} out: the job starts the ranks, as many as --workers, --slots or --ranks say; {script}"
    return script if command in _SUBMIT_COMMANDS else ""


def _missing_program(job: MPIJob, command: str) -> Finding:
    hint = _batch_hint(command) or "use its full path, install it, or correct the spelling"
    if job.code.path and (Path(job.code.path) / command).is_file():
        hint = f"write ./{command}"
    return Finding(
        code="COMMAND_NOT_FOUND",
        field="command",
        message=f"there is no program '{command}' on the PATH",
        hint=hint,
    )
