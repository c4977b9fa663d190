"""S3 volumes: a folder of a bucket is fetched into a directory, and changes there are stored back.

A data connection has the bucket and its credentials: on a cluster a Secret in the format of OpenShift AI and
Open Data Hub, on one machine a setting or the variables of the same names. Objects may be written by others, so
no name leads out of the directory, and no symbolic link is followed in either direction. The confirmation of
uploads is in `history/storage/s3`; when files are moved is decided by the engines.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, get_args

import msgspec

from mpijob.errors import BackendError, InvalidJob, MpiJobError, NotStored
from mpijob.history.storage.s3 import Digest, ObjectStore
from mpijob.outbound import s3
from mpijob.outbound.guard import Guard
from mpijob.outbound.s3 import Connection as Connection
from mpijob.settings import AddressingStyle, ObjectsSetting

VARIABLES = {
    "endpoint": "AWS_S3_ENDPOINT",
    "bucket": "AWS_S3_BUCKET",
    "region": "AWS_DEFAULT_REGION",
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
    "addressing_style": "AWS_S3_ADDRESSING_STYLE",
}
# The name of the connection that is defined by the variables of the user who submits the job.
ENVIRONMENT = "env"
_REQUIRED, _KEYS = ("endpoint", "bucket"), ("access_key", "secret_key")
# Larger files are stored in parts. Each part is held in memory, in a container of 192 MiB.
_PART_BYTES = 16 << 20
# The limit of S3.
_MAX_PARTS = 10_000
_PIECE_BYTES = 1 << 20
# Size and modification time of each file when it was last stored or fetched.
FileStamps = dict[str, tuple[int, int]]


class Transferred(msgspec.Struct, frozen=True):
    """Number and total size of the files that were fetched or stored."""

    files: int = 0
    size: int = 0

    def __str__(self) -> str:
        from mpijob.model.spec.quantity import as_bytes

        return f"{self.files} file{'' if self.files == 1 else 's'}, {as_bytes(self.size)}"


def find_connection(
    name: str, settings: Mapping[str, ObjectsSetting], environ: Mapping[str, str]
) -> Connection:
    """Return the connection with a name from the settings, or `env` from variables.

    Raise InvalidJob if it is missing or invalid, Unsupported if boto3 is not installed.
    """
    if name == ENVIRONMENT:
        connection = from_variables(environ)
    elif name in settings:
        connection = s3.from_setting(
            settings[name], f"data connection '{name}'", f"connections.{name}", InvalidJob
        )
    else:
        known = ", ".join(sorted(settings)) or "none is set"
        raise InvalidJob(
            f"there is no data connection '{name}' on this machine ({known})",
            hint=f"add [connections.{name}] to the settings, or use s3:env with the AWS_… variables set",
        )
    s3.check_setting(connection.endpoint, connection.bucket, Bucket._hint)
    return connection


def from_variables(environ: Mapping[str, str]) -> Connection:
    """Return the connection from the variables, or the Secret, of a data connection; raise InvalidJob."""
    found: dict[str, Any] = {field: text for field, name in VARIABLES.items() if (text := environ.get(name))}
    # Without any key, boto3's credential chain is used; one key alone is a mistake.
    required = (*_REQUIRED, *_KEYS) if any(key in found for key in _KEYS) else _REQUIRED
    if missing := [VARIABLES[field] for field in required if field not in found]:
        raise InvalidJob(
            f"the data connection lacks {', '.join(missing)}",
            hint="a data connection has these keys; on this machine set the variables",
        )
    if (style := found.get("addressing_style", "auto")) not in get_args(AddressingStyle):
        raise InvalidJob(
            f"{VARIABLES['addressing_style']} is {style!r}", hint=f"write one of {get_args(AddressingStyle)}"
        )
    return Connection(**found)


class Bucket(ObjectStore):
    """A folder of a bucket, from which directories are fetched and to which they are stored."""

    _hint = "check the data connection: endpoint, bucket, access key, secret key"

    def __init__(self, connection: Connection, folder: str = "", guard: Guard | None = None) -> None:
        prefix = "/".join(part.strip("/") for part in (connection.prefix, folder) if part.strip("/"))
        super().__init__(ObjectsSetting(connection.endpoint, connection.bucket, prefix), guard)
        self._data_connection = connection

    def _connection(self) -> Connection:
        return self._data_connection

    def names(self) -> Iterator[tuple[str, int]]:
        """Yield the objects of the folder by their names in it, with their sizes."""
        for page in self._pages():
            for entry in page.get("Contents", ()):
                yield entry.get("Key", "").removeprefix(self._prefix), entry.get("Size", 0)

    # A context manager must not stay open at a `yield`: it would translate the caller's errors, too.
    def _pages(self) -> Iterator[dict[str, Any]]:
        with self._translate_errors("the list of its objects"):
            paginator = self._api().get_paginator("list_objects_v2")
            pages = iter(paginator.paginate(Bucket=self._data_connection.bucket, Prefix=self._prefix))
        while True:
            with self._translate_errors("the list of its objects"):
                page = next(pages, None)
            if page is None:
                return
            yield page

    def read(self, name: str) -> Iterator[bytes]:
        """Yield an object in pieces; raise NotFound if it does not exist."""
        self._guard.limit(self._guard.policy.download_seconds)
        with self._translate_errors("GET"):
            body = self._api().get_object(**self._object_params(name))["Body"]
        try:
            while True:
                with self._translate_errors("GET"):
                    piece: bytes = body.read(_PIECE_BYTES)
                if not piece:
                    return
                yield piece
        finally:
            body.close()

    def upload(self, name: str, source: int, size: int) -> None:
        """Store an open file as an object; a large one in parts, which appear together or not at all.

        Raise NotStored unless the store confirms that it holds what was read.
        """
        if size <= _PART_BYTES:
            self.put(name, _read(source, size))
            return
        digest, api = Digest(), self._api()
        with self._upload_errors(name):
            upload = self._object_params(name)
            started = api.create_multipart_upload(**upload, ChecksumAlgorithm="SHA256")
            upload["UploadId"] = _required(started, "UploadId")
        try:
            with self._upload_errors(name):
                parts = [*self._parts(upload, source, size, digest)]
                api.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
            self._verify(name, digest, in_parts=True)
        except BaseException:
            # Stores keep, and charge for, the parts of an upload that was never completed.
            with contextlib.suppress(MpiJobError), self._translate_errors("the end of an upload"):
                api.abort_multipart_upload(**upload)
            raise

    def _parts(
        self, upload: dict[str, str], source: int, size: int, digest: Digest
    ) -> Iterator[dict[str, Any]]:
        """Send the parts; yield for each what completes the upload."""
        length = max(_PART_BYTES, -(-size // _MAX_PARTS))
        for number in range(1, -(-size // length) + 1):
            content = _read(source, min(length, size - digest.size))
            part = {"PartNumber": number, "ChecksumSHA256": digest.add(content)}
            sent = self._api().upload_part(**upload, **part, Body=content)
            yield {**part, "ETag": _required(sent, "ETag")}


def _required(response: dict[str, Any], key: str) -> str:
    # A response without it was truncated, or is not S3.
    if not response.get(key):
        raise NotStored(f"the object store's response has no {key}", hint="the upload will be retried")
    return str(response[key])


def _read(source: int, size: int) -> bytes:
    """Read exactly `size` bytes of a file; raise NotStored if the job has truncated it meanwhile."""
    pieces, missing = [], size
    while missing > 0 and (piece := os.read(source, min(missing, _PIECE_BYTES))):
        pieces.append(piece)
        missing -= len(piece)
    if missing:
        raise NotStored("a file was truncated during the upload", hint="the upload will be retried")
    return b"".join(pieces)


# -- directories -------------------------------------------------------------------------------------
def split_source(source: str) -> tuple[str, str]:
    """Return connection and folder of a volume's source, `CONNECTION/FOLDER`."""
    connection, _, folder = source.partition("/")
    return connection, folder


def fetch(bucket: Bucket, target: Path, before_each: Callable[[], object] = lambda: None) -> Transferred:
    """Fetch every object of the folder into a directory; `before_each` may raise to stop."""
    files = size = 0
    for name, length in bucket.names():
        before_each()
        # Consoles create empty objects as markers of folders.
        if name.endswith("/") or not name:
            continue
        handle = _new_file(target, _inside(name))
        try:
            write(handle, bucket.read(name))
        finally:
            os.close(handle)
        files, size = files + 1, size + length
    return Transferred(files, size)


def write(target: int, pieces: Iterable[bytes]) -> None:
    """Write pieces into an open file."""
    for piece in pieces:
        view = memoryview(piece)
        # `os.write` may write less than it was given.
        while view:
            view = view[os.write(target, view) :]


def _inside(name: str) -> PurePosixPath:
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or "\0" in name or not pure.parts:
        raise BackendError(
            f"the object {name!r} would be written outside the target directory",
            hint="rename it in the bucket, or choose another folder of it",
        )
    return pure


def _new_file(target: Path, path: PurePosixPath) -> int:
    """Open a file below a directory for writing; missing directories are created, and no link is followed."""
    # One component at a time, relative to the open parent: the job may replace a directory by a link meanwhile.
    folder = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in path.parts[:-1]:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=folder)
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = below
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(path.name, flags, 0o644, dir_fd=folder)
    except OSError as error:
        raise BackendError(f"{path} cannot be written below {target}: {error.strerror}") from error
    finally:
        os.close(folder)


def stamp_files(source: Path) -> FileStamps:
    """Return the stamps of all regular files below a directory; links are left out."""
    found: FileStamps = {}
    for folder, _, names in os.walk(source):
        for name in names:
            path = os.path.join(folder, name)
            try:
                status = os.lstat(path)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                found[os.path.relpath(path, source)] = (status.st_size, status.st_mtime_ns)
    return found


def store(bucket: Bucket, source: Path, known: FileStamps) -> tuple[Transferred, FileStamps]:
    """Store files below a directory that are new or differ from `known`; return the new stamps, too."""
    files = size = 0
    stored = dict(known)
    for name, file_stamp in sorted(stamp_files(source).items()):
        if known.get(name) == file_stamp:
            continue
        try:
            handle = os.open(source / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            before = os.fstat(handle)
            bucket.upload(name, handle, before.st_size)
        finally:
            os.close(handle)
        # The stamp from before the upload: a file that was written meanwhile is stored again next time.
        files, size, stored[name] = files + 1, size + before.st_size, file_stamp
    return Transferred(files, size), stored
