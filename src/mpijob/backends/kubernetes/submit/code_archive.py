"""The uploaded files of a job as an archive, split into parts that fit into config maps.

The plan has the number of parts, because pods mount each of them; the archive is built again when the job is
submitted, and the same files give the same bytes. The pods join the parts (`launch/pod_scripts`).
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

# A config map holds 1 MiB, and base64 adds a third.
PART_BYTES = 700_000
# Every pod loads all of it, and it is stored in etcd.
LARGEST_ARCHIVE = 8 << 20
# The most that tar and gzip add.
_FILE_OVERHEAD, _ARCHIVE_OVERHEAD = 2048, 16 << 10


def parts(job: MPIJob) -> int:
    """Return the number of config maps for the uploaded files, 0 without any; raise InvalidJob if they are
    too large.
    """
    if not (job.code.path or job.code.files):
        return 0
    return 1 if _is_small(job) else len(_split(_check_size(archive(job))))


def packed(job: MPIJob, planned: int) -> list[bytes]:
    """Return the archive in `planned` parts; raise Conflict if the files have grown since the plan."""
    found = _split(_check_size(archive(job)))
    if len(found) > planned:
        size, most = sum(map(len, found)), planned * PART_BYTES
        raise Conflict(
            f"the files of job '{job.name}' have grown since it was planned: {quantity.as_bytes(size)} compressed, "
            f"{quantity.as_bytes(most)} planned",
            hint="submit it again when nothing writes to its directory",
        )
    # The pods mount as many parts as were planned.
    return [*found, *[b""] * (planned - len(found))]


def names_in(documents: Iterable[Mapping[str, Any] | None]) -> tuple[str, ...]:
    """Return the config maps with the job's files that the pods of its documents mount, in order."""
    volumes = [
        volume
        for document in documents
        if document is not None
        for _, template in pod_templates.templates(document, text(document, "kind"))
        for volume in fields(template, "spec", "volumes")
        if text(volume, "name") == well_known.CODE_VOLUME
    ]
    sources = [source for volume in volumes for source in fields(volume, "projected", "sources") or [volume]]
    return tuple(dict.fromkeys(text(source, "configMap", "name") for source in sources))


def archive(job: MPIJob) -> bytes:
    """Return the files as a gzipped tar archive; the same files give the same bytes."""
    buffer = io.BytesIO()
    try:
        with (
            gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for source, place in code_upload.select_files(job.code):
                tar.add(source, str(place), recursive=False, filter=_without_owner)
            for name, content in job.code.files.items():
                data = content.encode()
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(data), 0o644
                tar.addfile(entry, io.BytesIO(data))
    except OSError as error:
        raise BackendError(f"cannot pack the job's files: {error.strerror} ({error.filename})") from error
    return buffer.getvalue()


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    # Pods run with any user ID, and other users of the namespace need not see the user's name.
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode |= 0o444
    return entry


def _is_small(job: MPIJob) -> bool:
    # Files that fit even uncompressed need not be packed for the plan, which takes most of its time.
    try:
        sizes = [source.lstat().st_size for source, _ in code_upload.select_files(job.code)]
    except OSError:
        # Reported when the files are packed.
        return False
    sizes += [len(content.encode()) for content in job.code.files.values()]
    return sum(sizes) + len(sizes) * _FILE_OVERHEAD + _ARCHIVE_OVERHEAD <= PART_BYTES


def _check_size(data: bytes) -> bytes:
    if len(data) <= LARGEST_ARCHIVE:
        return data
    size, most = quantity.as_bytes(len(data)), quantity.as_bytes(LARGEST_ARCHIVE)
    raise InvalidJob.of((Finding(
        code="CODE_TOO_LARGE", field="code.path",
        message=f"the uploaded code is {size} compressed; a cluster accepts at most {most} per job",
        hint="name what is needed in code.include, build it into the image, or put it on a volume",
    ),))  # fmt: skip


def _split(data: bytes) -> list[bytes]:
    return [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
