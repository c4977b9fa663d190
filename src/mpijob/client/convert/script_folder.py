"""The folder of a converted script, which goes along with its jobs: where it is seen from, and whether it can.

Reading a script asks no disk; here its folder is looked at, so that a report says what a submit would refuse.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from mpijob.backends import code_upload
from mpijob.client.convert import script_environment
from mpijob.errors import InvalidJob
from mpijob.formats.convert import batch_script
from mpijob.formats.convert.report import Converted, FieldEntry, FieldOutcome
from mpijob.model import Code, MPIJob

_INCLUDE = "name what is needed in code.include, or give the script a folder of its own"
_NOWHERE = "of a text alone no folder is known: no file goes along with the job"
_ELSEWHERE = (
    "put its files into the image, on a volume or into code.files; mpijob convert FILE takes the folder along"
)


class Folder(msgspec.Struct, frozen=True):
    """Where a source lies: the way there from the job file, None where only its text is known; and the folder itself.

    `wrong` says why it cannot go along as it is.
    """

    way: str | None = ""
    path: str = ""
    wrong: str = ""


def too_much(folder: str) -> str:
    """Return why a folder cannot go along as a whole; "" when it can."""
    try:
        if Path(folder).resolve() == Path.home().resolve():
            return "the script lies in your home, and all of it would go along"
        code_upload.chosen(Code(path=folder))
    except InvalidJob as error:
        return error.findings[0].message
    except (OSError, RuntimeError):
        return ""  # what cannot be read is told by the submit
    return ""


def names(folder: Folder) -> frozenset[str]:
    """Return the names of what lies in the folder of a source."""
    try:
        return frozenset(os.listdir(folder.path)) if folder.path else frozenset()
    except OSError:
        return frozenset()


def placed(one: Converted, folder: Folder) -> Converted:
    """Return what was read with its code found from where the job file will be."""
    if folder.way is None:
        return _without(one) if _is_script(one) else one
    jobs = tuple(_seen_from(job, folder.way) for job in one.jobs)
    entries = tuple(_named(entry, jobs) for entry in one.entries)
    if _is_script(one):
        entries += (_heavy(folder.wrong),) if folder.wrong else ()
        jobs, asked = script_environment.met(jobs, folder.path, entries, names(folder), one.values)
        entries += asked
    return msgspec.structs.replace(one, jobs=jobs, entries=entries)


def _is_script(one: Converted) -> bool:
    return any(entry.field == batch_script.FOLDER for entry in one.entries)


def _seen_from(job: MPIJob, way: str) -> MPIJob:
    if not way or not job.code.path:
        return job
    return job.replace(code=job.code.replace(path=os.path.normpath(os.path.join(way, job.code.path))))


def _named(entry: FieldEntry, jobs: tuple[MPIJob, ...]) -> FieldEntry:
    if entry.field != batch_script.FOLDER:
        return entry
    return msgspec.structs.replace(entry, ours=f"code.path: {jobs[0].code.path}")


def _heavy(wrong: str) -> FieldEntry:
    return FieldEntry(batch_script.FOLDER, FieldOutcome.CHANGED, "", "code.path", wrong, _INCLUDE)


def _without(one: Converted) -> Converted:
    """Return the jobs of a script whose folder is not known: what they name in it must come another way."""
    entries = tuple(entry for entry in one.entries if entry.field != batch_script.FOLDER)
    if any(_names_a_file(job) for job in one.jobs):
        entries += (FieldEntry(batch_script.FOLDER, FieldOutcome.DROPPED, "", "", _NOWHERE, _ELSEWHERE),)
    jobs = tuple(job.replace(code=job.code.replace(path="")) for job in one.jobs)
    jobs, asked = script_environment.met(jobs, "", entries, frozenset(), one.values)
    return msgspec.structs.replace(one, jobs=jobs, entries=(*entries, *asked))


def _names_a_file(job: MPIJob) -> bool:
    own = {*job.code.files}
    text = " ".join(job.code.files.values())
    words = [*job.words, *text.split()]
    return any(word.startswith("./") or (word.endswith((".py", ".sh")) and word not in own) for word in words)
