"""S3 volumes: a folder of a bucket fetched into a directory, and what changed there stored back.

A data connection names the bucket and how to get in: on a cluster a Secret in the form that OpenShift AI and Open
Data Hub give it, here a setting or the variables of the same names. Names of objects are other people's: none of
them leads out of the directory, and no symbolic link is followed in either direction.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

import msgspec

from mpijob.errors import BackendError, InvalidJob
from mpijob.history.objects import Objects
from mpijob.settings import ObjectsSetting

VARIABLES = {
    "endpoint": "AWS_S3_ENDPOINT",
    "bucket": "AWS_S3_BUCKET",
    "region": "AWS_DEFAULT_REGION",
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
}
ENVIRONMENT = "env"  # the connection that stands for the variables of whoever submits
_PART = 16 << 20  # larger files are stored in parts, each of which is held in memory
_MOST_XML = 16 << 20


class Connection(msgspec.Struct, frozen=True):
    """Everything that is needed to reach one bucket; it holds a secret and is never part of a plan or a log."""

    endpoint: str
    bucket: str
    access_key: str
    secret_key: str
    region: str = "us-east-1"
    prefix: str = ""

    def __repr__(self) -> str:
        return f"<Connection {self.endpoint}/{self.bucket}>"


class Moved(msgspec.Struct, frozen=True):
    """How many files went over, and how many bytes they had."""

    files: int = 0
    size: int = 0

    def __str__(self) -> str:
        from mpijob.model.quantity import as_bytes

        return f"{self.files} file{'' if self.files == 1 else 's'}, {as_bytes(self.size)}"


Known = dict[str, tuple[int, int]]  # size and time of change of each file, as it was last stored or fetched


def named(name: str, settings: Mapping[str, ObjectsSetting], environ: Mapping[str, str]) -> Connection:
    """Return a connection by its name; `env` is that of the variables."""
    if name == ENVIRONMENT:
        return from_variables(environ)
    if name not in settings:
        known = ", ".join(sorted(settings)) or "none is set"
        raise InvalidJob(
            f"there is no data connection '{name}' on this machine ({known})",
            hint=f"add [connections.{name}] to the settings, or use s3:env with the AWS_… variables set",
        )
    one = settings[name]
    try:
        secret = Path(one.secret_key_file).read_text().strip()
    except OSError as error:
        raise InvalidJob(
            f"data connection '{name}': its key {one.secret_key_file} cannot be read: {error.strerror}",
            hint=f"look at secret_key_file under [connections.{name}]",
        ) from error
    return Connection(one.endpoint, one.bucket, one.access_key, secret, one.region, one.prefix)


def from_variables(environ: Mapping[str, str]) -> Connection:
    """Return the connection that the variables of a data connection tell."""
    found = {field: environ.get(name, "") for field, name in VARIABLES.items()}
    if missing := [VARIABLES[field] for field, value in found.items() if not value and field != "region"]:
        raise InvalidJob(
            f"the data connection lacks {', '.join(missing)}",
            hint="a data connection has these keys; on this machine set the variables",
        )
    found["region"] = found["region"] or "us-east-1"
    return Connection(**found)


class Bucket(Objects):
    """A bucket that whole directories are fetched from and stored to."""

    _hint = "look at the data connection: endpoint, bucket, access key, secret key"

    def __init__(self, connection: Connection, folder: str = "") -> None:
        prefix = "/".join(part.strip("/") for part in (connection.prefix, folder) if part.strip("/"))
        super().__init__(
            ObjectsSetting(
                endpoint=connection.endpoint,
                bucket=connection.bucket,
                prefix=prefix,
                region=connection.region,
                access_key=connection.access_key,
            )
        )
        self._key = connection.secret_key
        self._folder = f"{prefix}/" if prefix else ""

    def _secret(self) -> bytes:
        return self._key.encode()

    def names(self) -> Iterator[tuple[str, int]]:
        """Yield the objects of the folder by their names in it, with their sizes."""
        more: dict[str, str] = {}
        while True:
            asked = {"list-type": "2", "prefix": self._folder, **more}
            answered = self._answer("GET", f"/{self._setting.bucket}", asked)
            if answered is None:
                raise BackendError(f"there is no bucket '{self._setting.bucket}'", hint=self._hint)
            root = _document(answered[1])
            for one in root.iter("Contents"):
                yield one.findtext("Key", "").removeprefix(self._folder), int(one.findtext("Size", "0"))
            token = root.findtext("NextContinuationToken", "")
            if root.findtext("IsTruncated") != "true" or not token:
                return
            more = {"continuation-token": token}

    def download(self, name: str, target: int) -> None:
        """Write an object into an open file."""

        def sink(piece: bytes) -> None:
            view = memoryview(piece)
            while view:
                view = view[os.write(target, view) :]

        if self._answer("GET", self._path(name), {}, sink=sink) is None:
            raise BackendError(f"{name} went away while it was fetched")

    def upload(self, name: str, source: int, size: int) -> None:
        """Store an open file as an object; a large one in parts, which appear together or not at all."""
        if size <= _PART:
            self.put(name, _whole(source, size))
            return
        started = self._answer("POST", self._path(name), {"uploads": ""})
        assert started is not None
        upload = _document(started[1]).findtext("UploadId", "")
        try:
            done = [*self._parts(name, source, size, upload)]
            listed = "".join(
                f"<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>" for number, tag in done
            )
            body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
            self._answer("POST", self._path(name), {"uploadId": upload}, body)
        except BackendError:
            self._answer("DELETE", self._path(name), {"uploadId": upload})
            raise

    def _parts(self, name: str, source: int, size: int, upload: str) -> Iterator[tuple[int, str]]:
        for number in range(1, -(-size // _PART) + 1):
            content = _whole(source, min(_PART, size - (number - 1) * _PART))
            asked = {"partNumber": str(number), "uploadId": upload}
            answered = self._answer("PUT", self._path(name), asked, content)
            yield number, answered[0].get("etag", "") if answered is not None else ""


def _document(body: bytes) -> ElementTree.Element:
    """Return an answer of the store without namespaces; one that is too large or no XML is refused."""
    if len(body) > _MOST_XML or b"<!" in body:  # no document types: what they can do is not wanted here
        raise BackendError("the object store answered with something that is no list of objects")
    try:
        root = ElementTree.fromstring(body)  # noqa: S314 - without document types there is nothing to expand
    except ElementTree.ParseError as error:
        raise BackendError(f"the object store answered with something that is no XML: {error}") from error
    for one in root.iter():
        one.tag = one.tag.rpartition("}")[2]
    return root


def _whole(source: int, size: int) -> bytes:
    pieces = []
    while size > 0 and (piece := os.read(source, min(size, 1 << 20))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


# -- directories -------------------------------------------------------------------------------------
def parted(source: str) -> tuple[str, str]:
    """Return connection and folder of a volume's source, `CONNECTION/FOLDER`."""
    connection, _, folder = source.partition("/")
    return connection, folder


def fetch(bucket: Bucket, target: Path, pulse: Callable[[], object] = lambda: None) -> Moved:
    """Fetch every object of the folder into a directory; `pulse` is called before each and may end it all."""
    files = size = 0
    for name, length in bucket.names():
        pulse()
        if name.endswith("/") or not name:
            continue  # a marker that a folder is there
        handle = _new_file(target, _inside(name))
        try:
            bucket.download(name, handle)
        finally:
            os.close(handle)
        files, size = files + 1, size + length
    return Moved(files, size)


def _inside(name: str) -> PurePosixPath:
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or "\0" in name or not pure.parts:
        raise BackendError(
            f"the object {name!r} would lie outside the directory it is fetched into",
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


def seen(source: Path) -> Known:
    """Return every plain file below a directory, with its size and time of change."""
    found: Known = {}
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


def store(bucket: Bucket, source: Path, known: Known) -> tuple[Moved, Known]:
    """Store what is new or changed below a directory; return what went over, and what is stored now."""
    files = size = 0
    now = dict(known)
    for name, about in sorted(seen(source).items()):
        if known.get(name) == about:
            continue
        try:
            handle = os.open(source / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            length = os.fstat(handle).st_size
            bucket.upload(name, handle, length)
        finally:
            os.close(handle)
        files, size, now[name] = files + 1, size + length, about
    return Moved(files, size), now
