"""The object store (S3) of the job history: put, verify, get, remove.

An object counts as stored only after the store confirmed it: after each upload, its size and a checksum
computed by the store are compared with what was sent; if the store returns no checksum, the object is read
back. Sealed chunks are moved there (`tiering`); the disk keeps chunks that are still written. A reader that
finds no file on disk fetches the object and caches it.
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

_BLOCK_BYTES = 1 << 20
_MAX_CACHED_FILES = 64


class Digest:
    """Checksums of an object and of its parts, as S3 computes them."""

    def __init__(self) -> None:
        self.size = 0
        self._whole = hashlib.sha256()
        self._sha256: list[bytes] = []
        self._md5: list[bytes] = []

    def add(self, part: bytes) -> str:
        """Add the next part; return its SHA-256 as S3 encodes it."""
        self.size += len(part)
        self._whole.update(part)
        self._sha256.append(hashlib.sha256(part).digest())
        # The ETag is made of MD5 sums; this is no security check.
        self._md5.append(hashlib.md5(part, usedforsecurity=False).digest())
        return _base64(self._sha256[-1])

    @property
    def sha256(self) -> str:
        return _base64(self._whole.digest())

    def matches(self, head: dict[str, Any], *, in_parts: bool) -> bool | None:
        """Return whether an object is what was sent, by the checksums of its head; None if they cannot tell.

        A different ETag proves nothing: that of an encrypted object is not an MD5 sum.
        """
        sha256s, etag = {self.sha256}, self._md5[0].hex()
        if in_parts:
            sha256s.add(_base64(hashlib.sha256(b"".join(self._sha256)).digest()))
            md5 = hashlib.md5(b"".join(self._md5), usedforsecurity=False).hexdigest()
            etag = f"{md5}-{len(self._md5)}"
        if checksum := head.get("ChecksumSHA256"):
            # The checksum of a multipart upload ends with the number of parts.
            return checksum.partition("-")[0] in sha256s
        return True if str(head.get("ETag", "")).strip('"') == etag else None


class ObjectStore:
    """A bucket, or a prefix of it."""

    _hint = "check bucket, access_key and secret_key_file under [objects]"

    def __init__(self, setting: ObjectsSetting, guard: Guard | None = None) -> None:
        """Use the bucket of a setting; a guard restricts which addresses may be connected to."""
        s3.check_setting(
            setting.endpoint,
            setting.bucket,
            'set endpoint = "https://s3.example.com" and bucket = "mpijob" under [objects]',
        )
        self._setting, self._guard = setting, guard or Guard()
        self._prefix = f"{setting.prefix.strip('/')}/" if setting.prefix.strip("/") else ""
        self._client_connection: s3.Connection | None = None
        self._client: s3.Client | None = None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def put(self, name: str, content: bytes) -> None:
        """Store an object; raise NotStored unless the store confirms it."""
        digest = Digest()
        checksum = digest.add(content)
        with self._upload_errors(name):
            self._api().put_object(**self._object_params(name), Body=content, ChecksumSHA256=checksum)
        self._verify(name, digest)

    def get(self, name: str) -> bytes | None:
        """Return the content of an object; None if it does not exist."""
        try:
            with self._translate_errors("GET"):
                content: bytes = self._api().get_object(**self._object_params(name))["Body"].read()
                return content
        except NotFound:
            return None

    def remove(self, name: str) -> None:
        """Remove an object; one that does not exist is no error."""
        with self._translate_errors("DELETE"):
            self._api().delete_object(**self._object_params(name))

    def _verify(self, name: str, digest: Digest, *, in_parts: bool = False) -> None:
        """Raise NotStored unless the store has what was sent."""
        with self._upload_errors(name):
            head = self._api().head_object(**self._object_params(name), ChecksumMode="ENABLED")
        verdict = head.get("ContentLength") == digest.size and digest.matches(head, in_parts=in_parts)
        if verdict or (verdict is None and self._checksum(name) == digest.sha256):
            return
        raise NotStored(
            f"object store {self._connection().host}: the stored object {name} differs from the upload",
            hint="the data is kept locally and will be uploaded again",
        )

    def _checksum(self, name: str) -> str:
        """Return the SHA-256 of an object by reading it."""
        digest = hashlib.sha256()
        with self._upload_errors(name):
            body = self._api().get_object(**self._object_params(name))["Body"]
            while piece := body.read(_BLOCK_BYTES):
                digest.update(piece)
        return _base64(digest.digest())

    # -- the client ---------------------------------------------------------------------------------
    def _object_params(self, name: str) -> dict[str, str]:
        return {"Bucket": self._setting.bucket, "Key": f"{self._prefix}{name}"}

    def _translate_errors(self, operation: str) -> contextlib.AbstractContextManager[None]:
        return s3.translate_errors(self._connection(), self._guard, operation, self._hint)

    @contextlib.contextmanager
    def _upload_errors(self, name: str) -> Iterator[None]:
        try:
            with s3.translate_errors(
                self._connection(), self._guard, f"the upload of {name}", self._hint, NotStored
            ):
                yield
        except NotFound as error:
            # It was uploaded just now, so a missing object is a failed upload.
            raise NotStored(f"{error.message}: {name}", hint=self._hint) from error

    def _api(self) -> Any:
        """Return the client; a new one when the key files have changed."""
        connection = self._connection()
        client = self._client
        if client is None or connection != self._client_connection:
            client = s3.Client(connection, self._guard)
            self._client_connection, self._client = connection, client
        return client.api

    def _connection(self) -> s3.Connection:
        return s3.from_setting(self._setting, "the object store of the job history", "objects", BackendError)


def _base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


def fetch_cached(objects: ObjectStore, name: str, directory: str) -> str | None:
    """Return the local path of an object, fetched if it is not cached; None if it does not exist."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    path = os.path.join(directory, os.path.basename(name))
    if os.path.exists(path):
        # The cache evicts by modification time; a sealed chunk never changes, so it cannot be outdated.
        os.utime(path)
        return path
    content = objects.get(name)
    if content is None:
        return None
    atomic_write.write(path, content)
    _evict_oldest(directory)
    return path


def _evict_oldest(directory: str) -> None:
    newest_first = sorted(os.scandir(directory), key=lambda entry: entry.stat().st_mtime, reverse=True)
    for entry in newest_first[_MAX_CACHED_FILES:]:
        with contextlib.suppress(OSError):
            os.unlink(entry.path)
