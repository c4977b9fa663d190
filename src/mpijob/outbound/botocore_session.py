"""botocore's HTTP session with connections of `guard`, bounded bodies and the system's certificate authorities.

botocore reads a whole HTTP response into memory, and urllib3 resolves names itself. Both are replaced here:
connections come from the guard, and bodies are read in counted blocks. Imported by `s3` only.
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

_BLOCK_BYTES = 1 << 20
# A list of 1000 names of 1024 bytes each, URL-encoded.
_MAX_DOCUMENT_BYTES = 4 << 20
# Each tag becomes a Python object; a list of 1000 names has 22,000 of them.
_MAX_DOCUMENT_TAGS = 1 << 16
_NO_BODY = (204, 304)


class Redirected(BotoCoreError):  # type: ignore[misc]  # botocore has no types
    """A redirect: botocore would follow it to another AWS region, endlessly if that redirects again."""

    fmt = "redirect {status}"


class InvalidDocument(BotoCoreError):  # type: ignore[misc]  # botocore has no types
    """A response that is not an S3 document."""

    fmt = "the response is not an S3 document"


class GuardedSession(URLLib3Session):  # type: ignore[misc]  # botocore has no types
    """Sends requests as botocore does, over connections that the guard allows."""

    def __init__(self, guard: Guard, *, verify: bool | str, **options: Any) -> None:
        self._guard = guard
        super().__init__(verify=verify, **options)
        # botocore's pool manager creates its connections from these classes; it has no setting for them.
        self._pool_classes_by_scheme = {
            "http": _guarded_pool(AWSHTTPConnectionPool, AWSHTTPConnection, guard),
            "https": _guarded_pool(AWSHTTPSConnectionPool, AWSHTTPSConnection, guard),
        }
        self._manager.pool_classes_by_scheme = self._pool_classes_by_scheme

    def _get_ssl_context(self) -> Any:
        """Trust the system's certificate authorities besides botocore's list, unless a file replaces both."""
        context = super()._get_ssl_context()
        if self._verify is True:
            context.load_default_certs()
        return context

    def send(self, request: Any) -> AWSResponse:
        """Return the response; documents are read, the body of an object is left to the caller."""
        # botocore reads the body itself unless it is streamed.
        streaming, request.stream_output = request.stream_output, True
        try:
            response = super().send(request)
        except HTTPClientError as error:
            cause = error.kwargs.get("error")
            # A refusal by the policy must not be retried.
            if isinstance(cause, MpiJobError):
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


def _guarded_pool(pool_class: Any, connection_class: Any, guard: Guard) -> Any:
    # `_new_conn` is where urllib3 resolves the name and connects; TLS and proxies are done above it. botocore
    # translates and retries urllib3's exceptions only.
    class Connection(connection_class):  # type: ignore[misc]  # botocore has no types
        def _new_conn(self) -> socket.socket:
            try:
                return guard.connect(self._dns_host, self.port, self.timeout, self.socket_options or ())
            except socket.gaierror as error:
                raise NameResolutionError(self.host, self, error) from error
            except TimeoutError as error:
                raise ConnectTimeoutError(self, f"connection to {self.host} timed out") from error
            except OSError as error:
                raise NewConnectionError(self, f"no connection to {self.host}: {error}") from error

    return type("Pool", (pool_class,), {"ConnectionCls": Connection})


def _read_document(response: AWSResponse, request: Any) -> None:
    try:
        # Accessing `content` reads the body and stores it in the response.
        content = response.content
    except Urllib3ReadTimeoutError as error:
        raise ReadTimeoutError(endpoint_url=request.url, error=error) from error
    except ProtocolError as error:
        raise ConnectionClosedError(endpoint_url=request.url, request=request, error=error) from error
    finally:
        response.raw.close()
    # Entity expansion, and documents made to exhaust memory.
    if b"<!DOCTYPE" in content or content.count(b"<") > _MAX_DOCUMENT_TAGS:
        raise InvalidDocument


class _Body:
    """The part of a response body's interface that botocore uses: counted, bounded and complete."""

    def __init__(self, response: AWSResponse, guard: Guard, method: str, is_object: bool) -> None:
        self._raw, self._guard, self._count = response.raw, guard, 0
        self._limit = guard.policy.download_bytes if is_object else _MAX_DOCUMENT_BYTES
        has_body = method != "HEAD" and response.status_code not in _NO_BODY
        length = str(response.headers.get("content-length", ""))
        self._length = int(length) if has_body and length.isdecimal() else None
        if self._length is not None and 0 < self._limit < self._length:
            self.close()
            raise self._too_large()

    def read(self, size: int | None = None) -> bytes:
        """Return the next available bytes, at most `size`; without a size, return everything."""
        if size is None:
            return b"".join(self.stream())
        # `read1`, because `read` waits until the block is full.
        piece: bytes = self._raw.read1(min(size, _BLOCK_BYTES)) if size else b""
        self._guard.check()
        self._count += len(piece)
        if 0 < self._limit < self._count:
            self.close()
            raise self._too_large()
        if size and not piece and self._length is not None and self._count < self._length:
            raise ProtocolError(f"the body ended after {self._count} of {self._length} bytes")
        return piece

    def stream(self, *_: Any) -> Iterator[bytes]:
        while piece := self.read(_BLOCK_BYTES):
            yield piece

    def close(self) -> None:
        """Close the connection unless the body was read to its end."""
        self._raw.close()

    def _too_large(self) -> TooLarge:
        size = quantity.as_bytes(self._limit)
        return TooLarge(f"response of the object store larger than the limit of {size}")
