"""Objects in an object store (S3): stored, verified, read, removed.

Nothing counts as stored before the store has confirmed it: after each upload its size and a checksum that the store
computed are compared with what was sent, and where the store knows no such checksum, the object is read back. Sealed
chunks go there (`tiering`), and the disk keeps what is still written. A reader that finds no file on the disk fetches
the object and keeps a few for the next look.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mpijob import atomic_write
from mpijob.errors import BackendError, NotFound, NotStored
from mpijob.outbound import s3
from mpijob.outbound.guard import Guard

if TYPE_CHECKING:
    from mpijob.settings import ObjectsSetting

_PIECE = 1 << 20
_KEPT_FILES = 64


class Digest:
    """Checksums of an object and of the parts in which it is sent, as a store computes them."""

    def __init__(self) -> None:
        self.size = 0
        self._whole = hashlib.sha256()
        self._sha256: list[bytes] = []
        self._md5: list[bytes] = []

    def add(self, part: bytes) -> str:
        """Take the next part; return its SHA-256 as S3 writes it."""
        self.size += len(part)
        self._whole.update(part)
        self._sha256.append(hashlib.sha256(part).digest())
        self._md5.append(hashlib.md5(part, usedforsecurity=False).digest())  # what an ETag is made of
        return _base64(self._sha256[-1])

    @property
    def sha256(self) -> str:
        """The SHA-256 of the whole object."""
        return _base64(self._whole.digest())

    def matches(self, head: dict[str, Any], *, in_parts: bool) -> bool | None:
        """Return whether an object is what was sent, by the checksums of its head; None where they do not tell.

        An ETag that differs tells nothing: that of an encrypted object is no MD5.
        """
        sha256s, etag = {self.sha256}, self._md5[0].hex()
        if in_parts:
            sha256s.add(_base64(hashlib.sha256(b"".join(self._sha256)).digest()))
            md5 = hashlib.md5(b"".join(self._md5), usedforsecurity=False).hexdigest()
            etag = f"{md5}-{len(self._md5)}"
        if checksum := head.get("ChecksumSHA256"):
            return checksum.partition("-")[0] in sha256s  # that of parts ends with their number
        return True if str(head.get("ETag", "")).strip('"') == etag else None


class Objects:
    """One bucket, or a part of it."""

    _hint = "look at bucket, access_key and secret_key_file under [objects]"

    def __init__(self, setting: ObjectsSetting, guard: Guard | None = None) -> None:
        """Reach the bucket of a setting over connections of a guard, over any that there are without one."""
        s3.check(
            setting.endpoint,
            setting.bucket,
            'write endpoint = "https://s3.example.com" and bucket = "mpijob" under [objects]',
        )
        self._setting, self._guard = setting, guard or Guard()
        self._prefix = f"{setting.prefix.strip('/')}/" if setting.prefix.strip("/") else ""
        self._used: s3.Connection | None = None
        self._client: s3.Client | None = None

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()

    def put(self, name: str, content: bytes) -> None:
        """Store an object; raise NotStored unless the store confirms that it holds it."""
        digest = Digest()
        checksum = digest.add(content)
        with self._storing(name):
            self._api().put_object(**self._at(name), Body=content, ChecksumSHA256=checksum)
        self._verify(name, digest)

    def get(self, name: str) -> bytes | None:
        """Return an object; None where there is none."""
        try:
            with self._asking("GET"):
                content: bytes = self._api().get_object(**self._at(name))["Body"].read()
                return content
        except NotFound:
            return None

    def remove(self, name: str) -> None:
        """Remove an object, if it is there."""
        with self._asking("DELETE"):
            self._api().delete_object(**self._at(name))

    def _verify(self, name: str, digest: Digest, *, in_parts: bool = False) -> None:
        """Raise NotStored unless the store holds what was sent."""
        with self._storing(name):
            head = self._api().head_object(**self._at(name), ChecksumMode="ENABLED")
        same = head.get("ContentLength") == digest.size and digest.matches(head, in_parts=in_parts)
        if same or (same is None and self._checksum(name) == digest.sha256):
            return
        raise NotStored(
            f"the object store {self._connection().host} holds something else than was sent as {name}",
            hint="what was sent is kept here and will be sent again",
        )

    def _checksum(self, name: str) -> str:
        """Return the SHA-256 of an object, which is read for it."""
        found = hashlib.sha256()
        with self._storing(name):
            body = self._api().get_object(**self._at(name))["Body"]
            while piece := body.read(_PIECE):
                found.update(piece)
        return _base64(found.digest())

    # -- the client ---------------------------------------------------------------------------------
    def _at(self, name: str) -> dict[str, str]:
        return {"Bucket": self._setting.bucket, "Key": f"{self._prefix}{name}"}

    def _asking(self, doing: str) -> contextlib.AbstractContextManager[None]:
        return s3.errors_of(self._connection(), self._guard, doing, self._hint)

    @contextlib.contextmanager
    def _storing(self, name: str) -> Iterator[None]:
        try:
            with s3.errors_of(
                self._connection(), self._guard, f"the upload of {name}", self._hint, NotStored
            ):
                yield
        except NotFound as error:  # it was sent, and it is not there
            raise NotStored(f"{error.message}: {name}", hint=self._hint) from error

    def _api(self) -> Any:
        """Return the client, a new one when the keys in the files have changed."""
        found = self._connection()
        client = self._client
        if client is None or found != self._used:
            client = s3.Client(found, self._guard)
            self._used, self._client = found, client
        return client.api

    def _connection(self) -> s3.Connection:
        return s3.from_setting(self._setting, "the object store of the record", "objects", BackendError)


def _base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


def cached(objects: Objects, name: str, directory: str) -> str | None:
    """Return where an object lies on this disk, fetched now if it is not here yet; None where there is no such."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    path = os.path.join(directory, os.path.basename(name))
    if os.path.exists(path):
        os.utime(path)
        return path
    content = objects.get(name)
    if content is None:
        return None
    atomic_write.write(path, content)
    _forget_oldest(directory)
    return path


def _forget_oldest(directory: str) -> None:
    found = sorted(os.scandir(directory), key=lambda one: one.stat().st_mtime, reverse=True)
    for one in found[_KEPT_FILES:]:
        with contextlib.suppress(OSError):
            os.unlink(one.path)
