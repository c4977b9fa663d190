"""botocore's HTTP session with connections of `guard`, bounded bodies and the system's certificate authorities.

botocore takes a whole HTTP response into memory, and urllib3 resolves names by itself. Both are replaced here:
connections come from the guard, and bodies are read in pieces that are counted. Loaded by `s3` alone.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
    AWSResponse,
)
from botocore.exceptions import BotoCoreError, ConnectionClosedError, HTTPClientError, ReadTimeoutError
from botocore.httpsession import URLLib3Session
from urllib3.exceptions import (
    ConnectTimeoutError,
    NameResolutionError,
    NewConnectionError,
    ProtocolError,
)
from urllib3.exceptions import ReadTimeoutError as Urllib3ReadTimeoutError

from mpijob.errors import MpiJobError
from mpijob.model.spec import quantity
from mpijob.outbound.guard import Guard
from mpijob.outbound.policy import TooLarge

_PIECE = 1 << 20
_DOCUMENT_BYTES = 4 << 20  # a list of 1000 names of 1024 bytes each, URL-encoded
_DOCUMENT_TAGS = 1 << 16  # each becomes an object of Python's; a list of 1000 names has 22,000
_NO_BODY = (204, 304)


class Redirected(BotoCoreError):  # type: ignore[misc]  # botocore has no types
    """A redirect; botocore would look for another region of AWS, without end where the next answer is one again."""

    fmt = "redirect {status}"


class NoDocument(BotoCoreError):  # type: ignore[misc]  # botocore has no types
    """An answer that no object store gives."""

    fmt = "the answer is no document of S3"


class GuardedSession(URLLib3Session):  # type: ignore[misc]  # botocore has no types
    """Sends requests as botocore does, over connections that the guard allows."""

    def __init__(self, guard: Guard, *, verify: bool | str, **more: Any) -> None:
        self._guard = guard
        super().__init__(verify=verify, **more)
        self._pool_classes_by_scheme = {
            "http": _pool(AWSHTTPConnectionPool, AWSHTTPConnection, guard),
            "https": _pool(AWSHTTPSConnectionPool, AWSHTTPSConnection, guard),
        }
        self._manager.pool_classes_by_scheme = self._pool_classes_by_scheme

    def _get_ssl_context(self) -> Any:
        """Trust the system's authorities beside botocore's own list, unless a file names others."""
        context = super()._get_ssl_context()
        if self._verify is True:
            context.load_default_certs()
        return context

    def send(self, request: Any) -> AWSResponse:
        """Return the response; the body of a document is read, that of an object is left to the caller."""
        streaming, request.stream_output = request.stream_output, True
        try:
            response = super().send(request)
        except HTTPClientError as error:
            cause = error.kwargs.get("error")
            if isinstance(cause, MpiJobError):  # a refusal by the policy is no failure to try again
                raise cause from None
            raise
        finally:
            request.stream_output = streaming
        if 300 <= response.status_code < 400 and response.status_code not in _NO_BODY:
            response.raw.close()
            raise Redirected(status=response.status_code)
        is_object = streaming and response.status_code < 300
        body = _Body(response, self._guard, request.method, is_object)
        bounded = AWSResponse(response.url, response.status_code, response.headers, body)
        if not is_object:
            _read_document(bounded, request)
        return bounded


def _pool(pool: Any, connection: Any, guard: Guard) -> Any:
    class Connection(connection):  # type: ignore[misc]  # botocore has no types
        def _new_conn(self) -> socket.socket:
            try:
                return guard.connect(self._dns_host, self.port, self.timeout, self.socket_options or ())
            except socket.gaierror as error:
                raise NameResolutionError(self.host, self, error) from error
            except TimeoutError as error:
                raise ConnectTimeoutError(self, f"connection to {self.host} timed out") from error
            except OSError as error:
                raise NewConnectionError(self, f"no connection to {self.host}: {error}") from error

    return type("Pool", (pool,), {"ConnectionCls": Connection})


def _read_document(response: AWSResponse, request: Any) -> None:
    try:
        content = response.content  # kept by the response
    except Urllib3ReadTimeoutError as error:
        raise ReadTimeoutError(endpoint_url=request.url, error=error) from error
    except ProtocolError as error:
        raise ConnectionClosedError(endpoint_url=request.url, request=request, error=error) from error
    finally:
        response.raw.close()
    if b"<!DOCTYPE" in content or content.count(b"<") > _DOCUMENT_TAGS:
        raise NoDocument


class _Body:
    """The body of a response, as far as botocore uses one: counted, bounded and complete."""

    def __init__(self, response: AWSResponse, guard: Guard, method: str, is_object: bool) -> None:
        self._raw, self._guard, self._count = response.raw, guard, 0
        self._most = guard.policy.download_bytes if is_object else _DOCUMENT_BYTES
        has_body = method != "HEAD" and response.status_code not in _NO_BODY
        length = str(response.headers.get("content-length", ""))
        self._length = int(length) if has_body and length.isdecimal() else None
        if self._length is not None and 0 < self._most < self._length:
            self.close()
            raise self._too_large()

    def read(self, size: int | None = None) -> bytes:
        """Return the next piece of at most some bytes as soon as there is one, everything without a number."""
        if size is None:
            return b"".join(self.stream())
        piece: bytes = self._raw.read1(min(size, _PIECE)) if size else b""
        self._guard.check()
        self._count += len(piece)
        if 0 < self._most < self._count:
            self.close()
            raise self._too_large()
        if size and not piece and self._length is not None and self._count < self._length:
            raise ProtocolError(f"the body ended after {self._count} of {self._length} bytes")
        return piece

    def stream(self, *_: Any) -> Iterator[bytes]:
        """Yield the pieces."""
        while piece := self.read(_PIECE):
            yield piece

    def close(self) -> None:
        """Close the connection, unless the body was read to its end."""
        self._raw.close()

    def _too_large(self) -> TooLarge:
        size = quantity.as_bytes(self._most)
        return TooLarge(f"the answer of the object store is larger than {size}, the most that is taken here")
