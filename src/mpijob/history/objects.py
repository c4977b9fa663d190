"""Files of lines in an object store that speaks S3: put, got, removed; requests signed as AWS Signature Version 4 says.

Chunks that will not change any more go there (`offload`), and the disk keeps what is still written. A reader that finds
no file on the disk gets the object and keeps a few for the next look.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import os
import ssl
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from mpijob import wholly
from mpijob.errors import BackendError, InvalidJob

if TYPE_CHECKING:
    from mpijob.settings import ObjectsSetting

_SECONDS = 60.0
_PIECE = 1 << 20
Sink = Callable[[bytes], object]
_KEPT_FILES = 64
_GONE = 404


class Objects:
    """One bucket, or a part of it."""

    _hint = "look at bucket, access_key and secret_key_file under [objects]"

    def __init__(self, setting: ObjectsSetting) -> None:
        parts = urlsplit(setting.endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname or not setting.bucket:
            raise InvalidJob(
                f"{setting.endpoint!r} with bucket {setting.bucket!r} is no object store",
                hint='write endpoint = "https://s3.example.com" and bucket = "mpijob" under [objects]',
            )
        self._scheme, self._host = parts.scheme, parts.netloc
        self._setting = setting

    def put(self, name: str, content: bytes) -> None:
        """Store an object."""
        self._ask("PUT", name, content)

    def get(self, name: str) -> bytes | None:
        """Return an object; None where there is none."""
        return self._ask("GET", name)

    def remove(self, name: str) -> None:
        """Remove an object, if it is there."""
        self._ask("DELETE", name)

    def _ask(self, method: str, name: str, content: bytes = b"") -> bytes | None:
        answered = self._answer(method, self._path(name), {}, content)
        return None if answered is None else answered[1]

    def _path(self, name: str) -> str:
        prefix = f"{self._setting.prefix.strip('/')}/" if self._setting.prefix else ""
        return f"/{self._setting.bucket}/{prefix}{name}"

    def _answer(
        self,
        method: str,
        where: str,
        query: Mapping[str, str],
        content: bytes = b"",
        sink: Sink | None = None,
    ) -> tuple[Mapping[str, str], bytes] | None:
        """Return headers (their names in small letters) and body; None where nothing is. A sink takes the body."""
        path, asked = quote(where, safe="/~-._"), _query(query)
        headers = self._signed(method, path, content, asked)
        connection = self._connection()
        try:
            connection.request(method, f"{path}?{asked}" if asked else path, content or None, headers)
            answer = connection.getresponse()
            good = 200 <= answer.status < 300
            body = b"" if sink is not None and good else answer.read()
            if sink is not None and good:
                while piece := answer.read(_PIECE):
                    sink(piece)
        except (OSError, http.client.HTTPException) as error:
            raise BackendError(f"the object store {self._host} did not answer: {error}") from error
        finally:
            connection.close()
        if answer.status == _GONE:
            return None
        if not good:
            raise BackendError(
                f"the object store {self._host} answered {answer.status} to {method} {path}: {body[:200]!r}",
                hint=self._hint,
            )
        return {name.lower(): value for name, value in answer.getheaders()}, body

    def _connection(self) -> http.client.HTTPConnection:
        if self._scheme == "http":
            return http.client.HTTPConnection(self._host, timeout=_SECONDS)
        return http.client.HTTPSConnection(self._host, timeout=_SECONDS, context=ssl.create_default_context())

    # -- AWS Signature Version 4 --------------------------------------------------------------------
    def _signed(self, method: str, path: str, content: bytes, query: str = "") -> dict[str, str]:
        moment, day = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), time.strftime("%Y%m%d", time.gmtime())
        digest = hashlib.sha256(content).hexdigest()
        headers = {"host": self._host, "x-amz-content-sha256": digest, "x-amz-date": moment}
        names = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        request = "\n".join((method, path, query, lines, names, digest))
        scope = f"{day}/{self._setting.region}/s3/aws4_request"
        text = "\n".join(("AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(request.encode()).hexdigest()))
        key = b"AWS4" + self._secret()
        for part in (day, self._setting.region, "s3", "aws4_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        who = f"Credential={self._setting.access_key}/{scope}"
        headers["authorization"] = f"AWS4-HMAC-SHA256 {who}, SignedHeaders={names}, Signature={signature}"
        return headers

    def _secret(self) -> bytes:
        try:
            with open(self._setting.secret_key_file, "rb") as file:
                return file.read().strip()
        except OSError as error:
            raise BackendError(
                f"the key of the object store cannot be read: {error}",
                hint="look at secret_key_file under [objects]",
            ) from error


def _query(query: Mapping[str, str]) -> str:
    """Return the parts of an address behind the question mark, in the order in which they are signed."""
    parts = sorted((quote(name, safe="~-._"), quote(value, safe="~-._")) for name, value in query.items())
    return "&".join(f"{name}={value}" for name, value in parts)


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
    wholly.write(path, content)
    _forget_oldest(directory)
    return path


def _forget_oldest(directory: str) -> None:
    found = sorted(os.scandir(directory), key=lambda one: one.stat().st_mtime, reverse=True)
    for one in found[_KEPT_FILES:]:
        with contextlib.suppress(OSError):
            os.unlink(one.path)
