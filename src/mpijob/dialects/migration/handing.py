"""What jobs of one script hand on: each begins in a directory of its own, where a batch system had one for all.

A program of MPI cannot be started twice in one world, so launch lines stay jobs. What one finds of another is told
first, with the lines that make it so.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from mpijob.dialects.migration.report import Entry, Fate
from mpijob.model import MPIJob

_SHARED = "/shared"
_LIES = "~/.local/state/mpijob/volumes/default/claim"


def told(name: str, jobs: Sequence[MPIJob]) -> Entry:
    """Return what is to know first of several jobs, with the lines for each of them."""
    names = [job.name for job in jobs]
    note = (
        f"the lines of the script are {len(jobs)} jobs: {', '.join(names)}; each begins when those that the script "
        f"waited for have succeeded, in a directory of its own: if {names[1]} reads files that {names[0]} writes in "
        "its directory, it finds nothing, or what the folder had before"
    )
    volume = f"volumes: [{{mount: {_SHARED}, kind: claim, source: {name}}}]"
    lines = "; ".join(f"into {job.name} {volume} and {_standing_there(job)}" for job in jobs)
    todo = (
        f"where none reads what another wrote, it is well so; else write {lines}; input files of the folder are "
        f'"$OLDPWD"/FILE there. mpijob artifacts does not list what is on a volume: on this machine it lies in '
        f"{_LIES}/{name} (below MPIJOB_HOME where that is set); on a cluster make the claim first, and a pod that "
        "mounts it copies from it"
    )
    return Entry("script", Fate.CHANGED, "", "jobs", note, todo)


def _standing_there(job: MPIJob) -> str:
    """Return the line that has a job's program run in the shared directory."""
    script = job.code.files.get(job.command[-1], "") if job.command[:1] == ("bash",) else ""
    if script:
        last = script.rstrip("\n").split("\n")[-1]
        if not last.startswith("exec "):
            return f"before the work in its {job.command[-1]}: cd {_SHARED}"
        line = f"cd {_SHARED} && exec {_from_before(last.removeprefix('exec ').split(' '))}"
        return f"as the last line of {job.command[-1]}: {line}"
    if not job.command:
        return f"cd {_SHARED} before each of its programs"
    words = _from_before([shlex.quote(word) for word in job.argv])
    line = f"cd {_SHARED} && exec {words}".replace("'", "''")
    return f"command: [sh, -c, '{line}']"


def _from_before(words: list[str]) -> str:
    """Return words whose program is named from the directory that was left."""
    for at, word in enumerate(words):
        if word.startswith("./") or (word.endswith((".py", ".sh")) and not word.startswith(("/", "-", "$"))):
            return " ".join([*words[:at], f'"$OLDPWD"/{word.removeprefix("./")}', *words[at + 1 :]])
    return " ".join(words)
