"""S3 volumes: a folder of a bucket fetched into a directory, and what changed there stored back.

A data connection names the bucket and how to get in: on a cluster a Secret in the form that OpenShift AI and Open
Data Hub give it, here a setting or the variables of the same names. Names of objects are other people's: none of
them leads out of the directory, and no symbolic link is followed in either direction.
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
ENVIRONMENT = "env"  # the connection that stands for the variables of whoever submits
_NEEDED, _KEYS = ("endpoint", "bucket"), ("access_key", "secret_key")
_PART = 16 << 20  # larger files are stored in parts, each of which is held in memory
_MOST_PARTS = 10_000
_PIECE = 1 << 20


class Transferred(msgspec.Struct, frozen=True):
    """How many files went over, and how many bytes they had."""

    files: int = 0
    size: int = 0

    def __str__(self) -> str:
        from mpijob.model.spec.quantity import as_bytes

        return f"{self.files} file{'' if self.files == 1 else 's'}, {as_bytes(self.size)}"


FileStamps = dict[
    str, tuple[int, int]
]  # size and time of change of each file, as it was last stored or fetched


def find_connection(
    name: str, settings: Mapping[str, ObjectsSetting], environ: Mapping[str, str]
) -> Connection:
    """Return a connection by its name, with which files can be moved from here; `env` is that of the variables."""
    found = _named(name, settings, environ)
    s3.check_setting(found.endpoint, found.bucket, Bucket._hint)
    return found


def _named(name: str, settings: Mapping[str, ObjectsSetting], environ: Mapping[str, str]) -> Connection:
    if name == ENVIRONMENT:
        return from_variables(environ)
    if name not in settings:
        known = ", ".join(sorted(settings)) or "none is set"
        raise InvalidJob(
            f"there is no data connection '{name}' on this machine ({known})",
            hint=f"add [connections.{name}] to the settings, or use s3:env with the AWS_… variables set",
        )
    return s3.from_setting(settings[name], f"data connection '{name}'", f"connections.{name}", InvalidJob)


def from_variables(environ: Mapping[str, str]) -> Connection:
    """Return the connection that the variables of a data connection tell."""
    found: dict[str, Any] = {field: text for field, name in VARIABLES.items() if (text := environ.get(name))}
    needed = (*_NEEDED, *_KEYS) if any(key in found for key in _KEYS) else _NEEDED
    if missing := [VARIABLES[field] for field in needed if field not in found]:
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
    """A bucket that whole directories are fetched from and stored to."""

    _hint = "check the data connection: endpoint, bucket, access key, secret key"

    def __init__(self, connection: Connection, folder: str = "", guard: Guard | None = None) -> None:
        prefix = "/".join(part.strip("/") for part in (connection.prefix, folder) if part.strip("/"))
        super().__init__(ObjectsSetting(connection.endpoint, connection.bucket, prefix), guard)
        self._reached = connection

    def _connection(self) -> Connection:
        return self._reached

    def names(self) -> Iterator[tuple[str, int]]:
        """Yield the objects of the folder by their names in it, with their sizes."""
        for page in self._pages():
            for one in page.get("Contents", ()):
                yield one.get("Key", "").removeprefix(self._prefix), one.get("Size", 0)

    def _pages(self) -> Iterator[dict[str, Any]]:
        with self._translate_errors("the list of its objects"):
            paginator = self._api().get_paginator("list_objects_v2")
            pages = iter(paginator.paginate(Bucket=self._reached.bucket, Prefix=self._prefix))
        while True:
            with self._translate_errors("the list of its objects"):
                page = next(pages, None)
            if page is None:
                return
            yield page

    def read(self, name: str) -> Iterator[bytes]:
        """Yield an object in pieces; raise NotFound where there is none."""
        self._guard.limit(self._guard.policy.download_seconds)
        with self._translate_errors("GET"):
            body = self._api().get_object(**self._object_params(name))["Body"]
        try:
            while True:
                with self._translate_errors("GET"):
                    piece: bytes = body.read(_PIECE)
                if not piece:
                    return
                yield piece
        finally:
            body.close()

    def upload(self, name: str, source: int, size: int) -> None:
        """Store an open file as an object; a large one in parts, which appear together or not at all.

        Raise NotStored unless the store confirms that it holds what was read.
        """
        if size <= _PART:
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
            with contextlib.suppress(MpiJobError), self._translate_errors("the end of an upload"):
                api.abort_multipart_upload(**upload)
            raise

    def _parts(
        self, upload: dict[str, str], source: int, size: int, digest: Digest
    ) -> Iterator[dict[str, Any]]:
        """Send the parts; yield what the store is told of each at the end."""
        length = max(_PART, -(-size // _MOST_PARTS))
        for number in range(1, -(-size // length) + 1):
            content = _read(source, min(length, size - digest.size))
            part = {"PartNumber": number, "ChecksumSHA256": digest.add(content)}
            sent = self._api().upload_part(**upload, **part, Body=content)
            yield {**part, "ETag": _required(sent, "ETag")}


def _required(answer: dict[str, Any], key: str) -> str:
    """Return what an answer must hold; one without it was cut, or is not S3."""
    if not answer.get(key):
        raise NotStored(f"the object store answered without {key}", hint="the upload will be retried")
    return str(answer[key])


def _read(source: int, size: int) -> bytes:
    """Read so many bytes of a file; raise NotStored where it has become shorter meanwhile."""
    pieces, missing = [], size
    while missing > 0 and (piece := os.read(source, min(missing, _PIECE))):
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


def fetch(bucket: Bucket, target: Path, pulse: Callable[[], object] = lambda: None) -> Transferred:
    """Fetch every object of the folder into a directory; `pulse` is called before each and may end it all."""
    files = size = 0
    for name, length in bucket.names():
        pulse()
        if name.endswith("/") or not name:
            continue  # a marker that a folder is there
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


def _new_file(target: Path, place: PurePosixPath) -> int:
    """Open a file below a directory, making what is missing, and following no link on the way."""
    folder = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in place.parts[:-1]:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=folder)
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = below
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(place.name, flags, 0o644, dir_fd=folder)
    except OSError as error:
        raise BackendError(f"{place} cannot be written below {target}: {error.strerror}") from error
    finally:
        os.close(folder)


def stamp_files(source: Path) -> FileStamps:
    """Return every plain file below a directory, with its size and time of change."""
    found: FileStamps = {}
    for folder, _, names in os.walk(source):
        for name in names:
            path = os.path.join(folder, name)
            try:
                about = os.lstat(path)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(about.st_mode):
                found[os.path.relpath(path, source)] = (about.st_size, about.st_mtime_ns)
    return found


def store(bucket: Bucket, source: Path, known: FileStamps) -> tuple[Transferred, FileStamps]:
    """Store what is new or changed below a directory; return what went over, and what is stored now."""
    files = size = 0
    now = dict(known)
    for name, about in sorted(stamp_files(source).items()):
        if known.get(name) == about:
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
        # what was stored is what the file held then: one that has changed since `seen` is stored again next time
        files, size, now[name] = files + 1, size + before.st_size, about
    return Transferred(files, size), now
