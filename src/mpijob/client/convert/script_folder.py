"""The directory of a converted script, which is uploaded with its job.

Parsing a script reads no other files; this module checks its directory, so that the report shows what a
submit would refuse.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from mpijob.backends import code_upload
from mpijob.client.convert import script_advice
from mpijob.errors import InvalidJob
from mpijob.formats.convert import batch_script
from mpijob.formats.convert.report import Converted, FieldEntry, FieldOutcome, to_do_first
from mpijob.model import Code, MPIJob

_INCLUDE = "name what is needed in code.include, or move the script into its own directory"
_NOWHERE = "the script is not a file: no directory is uploaded with the job"
_ELSEWHERE = (
    "put its other files into the image, on a volume or into code.files; mpijob convert FILE includes them"
)


class Folder(msgspec.Struct, frozen=True):
    """The directory of a source, and its path relative to the job file; None if only the text is known.

    `wrong` is the reason why it cannot be uploaded as it is.
    """

    way: str | None = ""
    path: str = ""
    wrong: str = ""


def too_much(folder: str) -> str:
    """Return why a directory cannot be uploaded as a whole, "" if it can."""
    try:
        if Path(folder).resolve() == Path.home().resolve():
            return "the script is in your home directory, which would be uploaded completely"
        code_upload.select_files(Code(path=folder))
    except InvalidJob as error:
        return error.findings[0].message
    except (OSError, RuntimeError):
        # The submit reports what cannot be read.
        return ""
    return ""


def with_code_path(one: Converted, folder: Folder, text: str) -> Converted:
    """Return the job with its code relative to the job file, and with advice on a script."""
    is_script = any(entry.field == batch_script.FOLDER for entry in one.entries)
    if folder.way is None:
        return _inline(one, text) if is_script else one
    jobs = tuple(_seen_from(job, folder.way) for job in one.jobs)
    if not is_script:
        return msgspec.structs.replace(one, jobs=jobs)
    entries = [_named(entry, jobs[0]) for entry in one.entries]
    entries += [_heavy(folder.wrong)] if folder.wrong else []
    entries += script_advice.found(text, jobs[0].args, folder.path)
    return msgspec.structs.replace(one, jobs=jobs, entries=to_do_first(entries))


def _seen_from(job: MPIJob, way: str) -> MPIJob:
    if not way or not job.code.path:
        return job
    return job.replace(code=job.code.replace(path=os.path.normpath(os.path.join(way, job.code.path))))


def _named(entry: FieldEntry, job: MPIJob) -> FieldEntry:
    if entry.field != batch_script.FOLDER:
        return entry
    return msgspec.structs.replace(entry, ours=f"code.path: {job.code.path}")


def _heavy(wrong: str) -> FieldEntry:
    return FieldEntry(batch_script.FOLDER, FieldOutcome.CHANGED, "", "code.path", wrong, _INCLUDE)


def _inline(one: Converted, text: str) -> Converted:
    """Return the job of a script without a directory: its text is included, other files are not."""
    (job,) = one.jobs
    entries = [entry for entry in one.entries if entry.field != batch_script.FOLDER]
    entries.append(FieldEntry(batch_script.FOLDER, FieldOutcome.DROPPED, "", "", _NOWHERE, _ELSEWHERE))
    entries += script_advice.found(text, job.args, "")
    job = job.replace(code=Code(files={job.script: text}))
    return msgspec.structs.replace(one, jobs=(job,), entries=to_do_first(entries))
