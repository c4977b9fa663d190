"""Convert jobs of other systems: one function for a text, one for a directory, one for objects of a cluster.

`formats/convert` parses and writes; this module also checks a converted job as `mpijob create` would, and
masks values that look like secrets in the report.

>>> from mpijob.client.convert.convert_jobs import convert
>>> script = "#!/bin/bash\\n#SBATCH -N 2 --ntasks-per-node=4 --mem=4G\\nsrun ./model --steps 10\\n"
>>> done = convert(script, file="model.sbatch")[0]
>>> done.jobs[0].workers, done.jobs[0].slots, done.jobs[0].script
(2, 4, 'model.sbatch')
>>> done.stage.value
'ready'
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from mpijob.errors import Finding, InvalidJob, MpiJobError, NotFound, Severity
from mpijob.formats.convert.export import BATCH_SCRIPTS, TARGETS, Written, write
from mpijob.formats.convert.report import UNASKED, Converted, FieldEntry, FieldOutcome, Stage
from mpijob.formats.kubernetes.metadata.well_known import PLAIN_USER
from mpijob.model import MPIJob

if TYPE_CHECKING:
    from mpijob.client.convert.script_folder import Folder

__all__ = [
    "BATCH_SCRIPTS",
    "TARGETS",
    "UNASKED",
    "Conversion",
    "FieldEntry",
    "FieldOutcome",
    "Stage",
    "convert",
    "directory",
    "documents",
]
_ENDINGS = frozenset(
    {".yaml", ".yml", ".json", ".sbatch", ".slurm", ".sh", ".pbs", ".job", ".sub", ".batch", ""}
)
_DIRECTIVES = re.compile(  # a script, whatever its name ends with
    r"(?:#!.*\n(?:(?:#.*)?\n)*|\s*)#(?:SBATCH|PBS)\s"
)
_MOST_FILES = 5_000
_MOST_BYTES = 1 << 20


class Conversion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One converted source: its stage, its jobs in order, their texts, and a report on each field.

    `entries` report on reading the source, `written` on writing the other format. `values` are those of an
    array, `after` is the job to wait for. `error` is set if the source could not be read.
    """

    stage: Stage
    file: str = ""
    source: str = ""
    to: str = "job"
    automatic: float = 1.0
    jobs: tuple[MPIJob, ...] = ()
    texts: tuple[str, ...] = ()
    entries: tuple[FieldEntry, ...] = ()
    written: tuple[FieldEntry, ...] = ()
    values: Mapping[str, tuple[str, ...]] = {}
    after: str = ""
    ending: str = ".yaml"
    error: str = ""

    @property
    def every(self) -> tuple[FieldEntry, ...]:
        """All entries: of parsing, then of writing."""
        return (*self.entries, *self.written)

    @property
    def blockers(self) -> tuple[str, ...]:
        """What the user must change first, as sentences."""
        told = [f"{entry.field}: {entry.note}" for entry in self.every if entry.blocks]
        return (self.error, *told) if self.error else tuple(told)

    def count(self, fate: FieldOutcome) -> int:
        return sum(entry.fate is fate for entry in self.every)


def convert(
    text: str,
    *,
    to: str = "job",
    file: str = "",
    image: str = "",
    format: str = "yaml",
    openshift: bool = False,
    moved: str | None = "",
    folder: str = "",
) -> tuple[Conversion, ...]:
    """Return what a text holds (MPIJob, TrainJob, job file, Slurm or PBS script, …), converted.

    `to` is job, trainjob, mpijob, sbatch or pbs; `image` is used where the source names none. Pods get an ordinary
    user ID, unless the manifests are for OpenShift, which gives each namespace its own. `moved` is the way from
    where the job file will be to where the source is, which has the code that goes along; None where the text is all
    that is known. `folder` is where the source is, seen from here: it is looked at, and what cannot go along is told.
    """
    from mpijob.client.convert import script_folder

    wrong = script_folder.too_much(folder) if folder else ""
    return _converted(text, to, file, image, format, openshift, script_folder.Folder(moved, folder, wrong))


def _converted(
    text: str, to: str, file: str, image: str, format: str, openshift: bool, folder: Folder
) -> tuple[Conversion, ...]:
    from mpijob.client.convert import script_folder
    from mpijob.formats.convert import detect

    _refuse(to)
    found = (script_folder.with_code_path(one, folder, text) for one in detect.read(text, to=to, file=file))
    return tuple(_finished(one, to, image, format, openshift, _scripts(one, text, folder)) for one in found)


def _scripts(one: Converted, text: str, folder: Folder) -> dict[str, str]:
    """Return the texts of the scripts that jobs name."""
    found: dict[str, str] = {}
    for job in one.jobs:
        if not job.script:
            continue
        # Files are read only if the directory is known: a text that a user sent must not make a server read
        # its disk.
        if job.script in job.code.files:
            found[job.script] = job.code.files[job.script]
        elif one.source != "job file":
            found[job.script] = text
        elif folder.path:
            with contextlib.suppress(OSError, UnicodeDecodeError):
                found[job.script] = Path(folder.path, job.code.path, job.script).read_text(encoding="utf-8")
    return found


def documents(
    found: list[dict[str, Any]],
    *,
    to: str = "job",
    file: str = "",
    image: str = "",
    format: str = "yaml",
    openshift: bool = False,
) -> tuple[Conversion, ...]:
    """Convert Kubernetes objects; one that cannot be converted does not stop the others."""
    from mpijob.formats.convert import detect

    _refuse(to)
    done: list[Conversion] = []
    for one in found:
        metadata = one.get("metadata") or {}
        where = file or f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
        try:
            done += [
                _finished(each, to, image, format, openshift)
                for each in detect.documents([one], to=to, file=where)
            ]
        except MpiJobError as error:
            done.append(_unread(where, str(one.get("kind")), to, error))
    return tuple(done)


def directory(
    place: str | Path,
    *,
    to: str = "job",
    image: str = "",
    format: str = "yaml",
    openshift: bool = False,
    out: str = "",
) -> Iterator[Conversion]:
    """Yield every job that the files below a directory hold, converted; files that are no jobs are passed over.

    `out` is the directory below which the job files will be, each as deep as its source.
    """
    from mpijob.client.convert import script_folder

    root = Path(place)
    if not root.is_dir():
        raise NotFound(f"there is no directory {root}", hint="name the directory that holds the files")
    _refuse(to)
    weighed = functools.cache(script_folder.too_much)
    for path in sorted(root.rglob("*"))[:_MOST_FILES]:
        if path.is_file() and not _is_hidden(path, root):
            name = str(path.relative_to(root))
            way = os.path.relpath(path.parent, os.path.join(out, os.path.dirname(name))) if out else ""
            text = _job_text(path)
            if text:
                folder = script_folder.Folder(way, str(path.parent), weighed(str(path.parent)))
                yield from _from_file(text, name, to, image, format, openshift, folder)


def _job_text(path: Path) -> str:
    """Return the text of a file that looks like a job, "" for any other."""
    try:
        text = "" if path.stat().st_size > _MOST_BYTES else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    # A file with another suffix must begin as a batch script: documentation and logs quote directives as
    # well.
    usual = path.suffix.lower() in _ENDINGS
    return text if (_is_job(text) if usual else _DIRECTIVES.match(text)) else ""


def _from_file(
    text: str, name: str, to: str, image: str, format: str, openshift: bool, folder: Folder
) -> Iterator[Conversion]:
    try:
        yield from _converted(text, to, name, image, format, openshift, folder)
    except MpiJobError as error:
        yield _unread(name, "not read", to, error)


def _unread(file: str, source: str, to: str, error: MpiJobError) -> Conversion:
    return Conversion(stage=Stage.BLOCKED, file=file, source=source, to=to, error=error.message)


def _is_job(text: str) -> bool:
    """Return whether a text looks like a job: directories contain other files, too."""
    from mpijob.formats.convert import batch_script
    from mpijob.formats.convert.other import arena

    if batch_script.kind(text) or arena.is_arena(text):
        return True
    words = (
        "kind: MPIJob",
        "kind: TrainJob",
        '"MPIJob"',
        '"TrainJob"',
        "commandJob.schema",
        "instance_count",
    )
    return any(word in text for word in words)


def _is_hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)


def _refuse(to: str) -> None:
    if to not in TARGETS:
        raise InvalidJob(f"unknown format '{to}'", hint=f"one of {', '.join(TARGETS)}")


def _finished(
    one: Converted,
    to: str,
    image: str,
    format: str,
    openshift: bool,
    scripts: Mapping[str, str] | None = None,
) -> Conversion:
    jobs = tuple(job if job.image or not image else job.replace(image=image) for job in one.jobs)
    written: list[Written] = []
    entries = [*one.entries, *(entry for job in jobs for entry in _check_errors(job))]
    for job in jobs:
        try:
            user = None if openshift else PLAIN_USER
            script = (scripts or {}).get(job.script)
            written.append(
                write(
                    job, to, format=format, foreign=one.foreign, family=one.family, user=user, script=script
                )
            )
        except InvalidJob as error:
            entries += [_refused(finding) for finding in error.findings] or [_impossible(to, error)]
    outward = tuple(_safe(entry) for each in written for entry in each.entries)
    whole = msgspec.structs.replace(one, entries=(*entries, *outward))
    return Conversion(
        file=one.file,
        source=one.source,
        to=to,
        stage=whole.stage,
        automatic=round(whole.automatic, 3),
        jobs=jobs,
        texts=tuple(each.text for each in written),
        entries=tuple(_safe(entry) for entry in entries),
        written=outward,
        values=one.values,
        after=one.after,
        ending=written[0].ending if written else ".yaml",
    )


def _check_errors(job: MPIJob) -> list[FieldEntry]:
    """Return what `mpijob create` would refuse in a job."""
    from mpijob import checks

    found = [one for one in checks.run(job, max_workers=10_000) if one.severity is Severity.ERROR]
    return [_refused(finding) for finding in found]


def _refused(finding: Finding) -> FieldEntry:
    return FieldEntry(
        finding.field or "job", FieldOutcome.DROPPED, "", "", finding.message, finding.hint, 0, True
    )


def _impossible(to: str, error: InvalidJob) -> FieldEntry:
    return FieldEntry(to, FieldOutcome.DROPPED, "", "", error.message, error.hint, 0, True)


def _safe(entry: FieldEntry) -> FieldEntry:
    """Return the entry with its value masked if that looks like a secret."""
    from mpijob.observation.redaction import masking

    name = entry.ours.partition("env.")[2] or (re.findall(r"\benv(?:\[|\.)([^\]]+)", entry.field) or [""])[0]
    if entry.value and name and masking.looks_secret(name):
        return msgspec.structs.replace(entry, value=masking.MASK)
    if entry.field == "env":
        return msgspec.structs.replace(entry, value="")
    return msgspec.structs.replace(entry, value=masking.masked_text(entry.value)) if entry.value else entry
