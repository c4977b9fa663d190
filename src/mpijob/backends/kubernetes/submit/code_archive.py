"""What goes along with a job, packed, and cut into parts that a config map holds.

The plan says how many parts there are, because pods mount each of them; the archive is made anew when the job is
submitted, and the same files give the same bytes. The pods join the parts again (`launch/pod_scripts`).
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterable, Mapping
from typing import Any

from mpijob.backends import code_upload
from mpijob.errors import BackendError, Conflict, Finding, InvalidJob
from mpijob.formats.admission import pod_templates
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.status.nested_fields import parts as fields
from mpijob.formats.status.nested_fields import text
from mpijob.model import MPIJob
from mpijob.model.spec import quantity

PART_BYTES = 700_000  # a config map holds 1 MiB, and base64 adds a third
LARGEST_ARCHIVE = 8 << 20  # every pod fetches all of it, and the cluster's database keeps it
_FILE_OVERHEAD, _ARCHIVE_OVERHEAD = 2048, 16 << 10  # tar's and gzip's own bytes, at most


def parts(job: MPIJob) -> int:
    """Return how many config maps hold what goes along, 0 where nothing does; refuse too much of it."""
    if not (job.code.path or job.code.files):
        return 0
    return 1 if _is_small(job) else len(_cut(_checked(archive(job))))


def packed(job: MPIJob, planned: int) -> list[bytes]:
    """Return the archive in as many parts as planned; raise Conflict where the files have grown since."""
    found = _cut(_checked(archive(job)))
    if len(found) > planned:
        size, most = sum(map(len, found)), planned * PART_BYTES
        raise Conflict(
            f"the files of job '{job.name}' have grown since it was planned: {quantity.as_bytes(size)} compressed, "
            f"{quantity.as_bytes(most)} planned",
            hint="submit it again when nothing writes to its directory",
        )
    return [*found, *[b""] * (planned - len(found))]


def names_in(documents: Iterable[Mapping[str, Any] | None]) -> tuple[str, ...]:
    """Return the config maps with the job's code that the pods of its documents mount, in order."""
    volumes = [
        volume
        for document in documents
        if document is not None
        for _, template in pod_templates.templates(document, text(document, "kind"))
        for volume in fields(template, "spec", "volumes")
        if text(volume, "name") == well_known.CODE_VOLUME
    ]
    sources = [one for volume in volumes for one in fields(volume, "projected", "sources") or [volume]]
    return tuple(dict.fromkeys(text(one, "configMap", "name") for one in sources))


def archive(job: MPIJob) -> bytes:
    """Return what goes along as a tar archive, the same bytes for the same files."""
    buffer = io.BytesIO()
    try:
        with (
            gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for source, place in code_upload.select_files(job.code):
                tar.add(source, str(place), recursive=False, filter=_anybodys)
            for name, content in job.code.files.items():
                data = content.encode()
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(data), 0o644
                tar.addfile(entry, io.BytesIO(data))
    except OSError as error:
        raise BackendError(f"cannot pack the job's files: {error.strerror} ({error.filename})") from error
    return buffer.getvalue()


def _anybodys(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode |= 0o444
    return entry


def _is_small(job: MPIJob) -> bool:
    """Whether one part is enough however badly the files compress: then they are not packed to plan the job."""
    try:
        sizes = [source.lstat().st_size for source, _ in code_upload.select_files(job.code)]
    except OSError:
        return False  # told when it is packed
    sizes += [len(content.encode()) for content in job.code.files.values()]
    return sum(sizes) + len(sizes) * _FILE_OVERHEAD + _ARCHIVE_OVERHEAD <= PART_BYTES


def _checked(data: bytes) -> bytes:
    if len(data) <= LARGEST_ARCHIVE:
        return data
    size, most = quantity.as_bytes(len(data)), quantity.as_bytes(LARGEST_ARCHIVE)
    raise InvalidJob.of((Finding(
        code="CODE_TOO_LARGE", field="code.path",
        message=f"the uploaded code is {size} compressed; a cluster accepts at most {most} per job",
        hint="name what is needed in code.include, build it into the image, or put it on a volume",
    ),))  # fmt: skip


def _cut(data: bytes) -> list[bytes]:
    return [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
