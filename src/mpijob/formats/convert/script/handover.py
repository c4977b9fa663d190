"""What jobs of one script hand on: each begins in a directory of its own, where a batch system had one for all.

A program of MPI cannot be started twice in one world, so launch lines stay jobs. What one finds of another is told
first, with the lines that make it so.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from mpijob.formats.convert.report import FieldEntry, FieldOutcome
from mpijob.formats.convert.script.steps import Step
from mpijob.formats.convert.shell.parser import statements
from mpijob.model import MPIJob

_SHARED = "/shared"
_LIES = "~/.local/state/mpijob/volumes/default/claim"
_FOLDERS = re.compile(r"(?:mkdir -p|touch) (?![/$~-])[^\n;&|]*")
_OUTPUT = re.compile(r"--?o(?:ut(?:put|file|dir)?)?(?:-\w+)?")
_ON_DISK = (
    f"mpijob artifacts does not list what is on a volume: on this machine it lies in {_LIES}/{{}} (below MPIJOB_HOME "
    "where that is set); on a cluster make the claim first, and a pod that mounts it copies from it"
)


def told(name: str, jobs: Sequence[MPIJob], steps: Sequence[Step], beside: frozenset[str]) -> FieldEntry:
    """Return what is to know first of several jobs, with the lines for each of them."""
    names = [job.name for job in jobs]
    note = (
        f"the lines of the script are {len(jobs)} jobs: {', '.join(names)}; each begins when those that the script "
        f"waited for have succeeded, in a directory of its own: if {names[1]} reads files that {names[0]} writes in "
        "its directory, it finds nothing, or what the folder had before"
    )
    pairs = zip(jobs, steps, strict=True)
    lines = "; ".join(
        f"into {job.name} {_volume(name)} and {_there(job, step, beside)}" for job, step in pairs
    )
    todo = (
        f"where none reads what another wrote, it is well so; else write {lines}; the folder's files are in each job's "
        f'own directory, "$OLDPWD"/FILE there. {_ON_DISK.format(name)}'
    )
    return FieldEntry("script", FieldOutcome.CHANGED, "", "jobs", note, todo)


def awaited(field: str, name: str, job: MPIJob, step: Step, beside: frozenset[str]) -> FieldEntry:
    """Return what is to know of a job that waits for one of another script: it does not find the other's files."""
    note = (
        "each job begins in a directory of its own, with what the folder has when it is submitted: files that FIRST "
        "writes in its directory are not there"
    )
    todo = (
        f"if it reads none of them, it is well so; else write into both job files {_volume(name)}, into that of "
        f"FIRST a command that begins with cd {_SHARED}, and into this one {_there(job, step, beside)}; or run it when "
        "FIRST has ended and mpijob artifacts fetch FIRST has brought the files into the folder. "
        + _ON_DISK.format(name)
    )
    return FieldEntry(field, FieldOutcome.CHANGED, "", "volumes", note, todo)


def names_files(job: MPIJob, step: Step) -> bool:
    """Return whether a job names anything below the directory in which it begins."""
    words = [*job.words, *step.text.split()]
    return any(
        re.search(r"[\w*]\.\w|\w/", word)
        and not word.startswith(("/", "-", "$"))
        and word not in job.code.files
        for word in words
    )


def _volume(name: str) -> str:
    return f"volumes: [{{mount: {_SHARED}, kind: claim, source: {name}}}]"


def _there(job: MPIJob, step: Step, beside: frozenset[str]) -> str:
    """Return the line that has a job's program run in the shared directory."""
    file = job.command[-1] if job.command[:1] == ("bash",) else ""
    script = job.code.files.get(file, "")
    made = " && ".join(line for line in step.setting if _FOLDERS.fullmatch(line))
    go = f"cd {_SHARED} && {made} && " if made else f"cd {_SHARED} && "
    if script and not step.launches:
        lines = [_from_before(line.split(" "), beside) for line in _plain_lines(step.text)]
        if not lines:
            return f"before the work in its {file}: cd {_SHARED}"
        return f"as the last lines of {file}, in place of the script's: {go}{'; '.join(lines)}"
    if script:
        last = script.rstrip("\n").split("\n")[-1].removeprefix("exec ").split(" ")
        return f"as the last line of {file}: {go}exec {_from_before(last, beside)}"
    if not job.command:
        return f"cd {_SHARED} before each of its programs"
    words = _from_before([shlex.quote(word) for word in job.argv], beside)
    line = f"{go}exec {words}".replace("'", "''")
    return f"command: [sh, -c, '{line}']"


def _plain_lines(text: str) -> list[str]:
    """Return the lines of work, where each is a plain command."""
    found = statements(text)
    return [] if any(one.compound or one.heredoc for one in found) else [one.text for one in found]


def _from_before(words: list[str], beside: frozenset[str]) -> str:
    """Return words with the program and the folder's files named from the directory that was left."""
    found: list[str] = []
    program = False
    for before, word in zip(["", *words], words, strict=False):
        runs = word.startswith("./") or (
            word.endswith((".py", ".sh")) and not word.startswith(("/", "-", "$"))
        )
        given = word in beside and not _OUTPUT.fullmatch(before) and before not in (">", ">>")
        if (runs and not program) or given:
            found.append(f'"$OLDPWD"/{word.removeprefix("./")}')
        else:
            found.append(word)
        program = program or runs
    return " ".join(found)
