"""A request and its response over kept connections; repeats what may be repeated.

Connections are those of `outbound.connection`. A request that changes something is repeated only if the
server cannot have seen it, or says that it did not act.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import TypeVar

import msgspec

from mpijob.backends.kubernetes.auth.access import Access, Credential, identifying
from mpijob.backends.kubernetes.auth.credentials import Credentials
from mpijob.backends.kubernetes.client.api_errors import (
    CERTIFICATE,
    CUT,
    NO_API,
    NO_LOGIN,
    TIMEOUT,
    UNKNOWN_HOST,
    UNSAYABLE,
    ApiError,
    ErrorStatus,
    refusal,
)
from mpijob.backends.kubernetes.client.connection import CONNECT_SECONDS, Connector
from mpijob.errors import MpiJobError
from mpijob.outbound.connection import Connection, InvalidRequest, ProtocolError, Response, has_data

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
# No repetition starts later than this.
_RETRY_SECONDS = 30.0
_NEVER = float("inf")
_MAX_IDLE = 8
# Load balancers in front of API servers close idle connections, some without a FIN.
_MAX_IDLE_SECONDS = 60.0
# A request that must not be sent twice takes only a connection that is surely still open.
_SURELY_ALIVE_SECONDS = 15.0
_HOPELESS = frozenset({CERTIFICATE, UNKNOWN_HOST, NO_API, UNSAYABLE})
# How long opening a stream waits for the response's first byte.
_FIRST_BYTE_SECONDS = 3.0
_HEAD_SECONDS = 30.0
# A page of the largest objects (500 of 1.5 MB) is smaller.
_MAX_BYTES = 1 << 30
_CUT = (OSError, http.client.HTTPException)
T = TypeVar("T")


class Request(msgspec.Struct, frozen=True):
    """A request; `repeatable` if sending it twice has the same result as once.

    `target` is the path and query as they are sent; `seconds` the limit for each next byte, None for no
    limit.
    """

    method: str
    target: str
    path: str = ""
    body: bytes | None = None
    content: str = "application/json"
    accept: str = "application/json"
    repeatable: bool = True
    seconds: float | None = 30.0
    compressed: bool = True
    attempts: int = 5


class Open:
    """A response that is still being received, and its connection."""

    def __init__(self, connection: Connection, check: Callable[[Response], None]) -> None:
        self.sock = connection.sock
        self._connection = connection
        self._check = check
        self._response: Response | None = None

    def begun(self, seconds: float | None) -> Response | None:
        """Return the response after its head; None if it does not begin in time; raise ApiError for an error."""
        # The API server sends the head of a log when the pod writes its first line, so it may take hours.
        if self._response is None:
            self.sock.settimeout(seconds)
            response = Response(self.sock, method="GET")
            try:
                response.fp.peek(1)
            except TimeoutError:
                # A buffered reader is unusable after a timeout (bpo-7322). Nothing was consumed, so a new
                # one can start.
                response.close()
                return None
            self.sock.settimeout(_HEAD_SECONDS)
            response.begin()
            self._check(response)
            self._response = response
        return self._response

    def close(self) -> None:
        """Close the response and its connection."""
        if self._response is not None:
            self._response.close()
        self._connection.close()


class _IdleConnection(msgspec.Struct, frozen=True):
    connection: Connection
    proof: Credential
    since: float


class Transport:
    """Sends requests to one server; safe to use from several threads."""

    def __init__(self, access: Access, credentials: Credentials) -> None:
        self.access = access
        self._credentials = credentials
        self._connector = Connector(access)
        self._lock = threading.Lock()
        self._kept: list[_IdleConnection] = []
        self._closed = False
        # The last Date header, and when it was received.
        self._dated = "", 0.0

    def close(self) -> None:
        """Close the idle connections; those in use are closed when they are returned."""
        with self._lock:
            self._closed = True
            kept, self._kept = self._kept, []
        for each in kept:
            each.connection.close()

    def send(self, request: Request) -> ErrorStatus:
        """Return the response, repeating the request where that is safe; raise ApiError."""
        return self._with_retries(request, self._send_once)

    def open(self, request: Request) -> Open:
        """Return the response's beginning; the caller reads the rest and closes it."""
        return self._with_retries(request, self._open_once)

    def ahead_seconds(self) -> float:
        """Return how far the server's clock is ahead of this machine's; 0 if the difference cannot be told
        from delay.
        """

        return ahead_seconds(*self._dated)

    def is_near(self) -> bool:
        """Return whether a new connection costs more time than waiting for a kept one."""
        if self._connector.near is None:
            self._with_retries(Request("GET", ""), lambda _, proof: self._keep(self._connect(proof), proof))
        return bool(self._connector.near)

    def _with_retries(self, request: Request, once: Callable[[Request, Credential], T]) -> T:
        pauses, deadline = _pauses(request.attempts), time.monotonic() + _RETRY_SECONDS
        renewed = False
        while True:
            proof = self._proof()
            try:
                return once(request, proof)
            except ApiError as error:
                # A token may expire between two requests; a second 401 with new credentials is the user's
                # problem.
                if error.status == 401 and not renewed and self._renew(proof):
                    renewed = True
                    continue
                if not _worth_repeating(error, request):
                    raise
                # Retry-After is sent with 429 by API Priority and Fairness.
                pause = max(next(pauses, _NEVER), error.retry_after or 0.0)
                if time.monotonic() + pause > deadline:
                    raise
                time.sleep(pause)

    def _proof(self) -> Credential:
        with self._as_api_errors():
            return self._credentials.current()

    def _renew(self, refused: Credential) -> bool:
        with self._as_api_errors():
            return self._credentials.renew(refused)

    @contextlib.contextmanager
    def _as_api_errors(self) -> Iterator[None]:
        """Raise errors of plugins and token files as ApiError, so that callers need handle one kind."""
        try:
            yield
        except MpiJobError as error:
            server = self.access.server
            raise ApiError(error.message, reason=NO_LOGIN, server=server, hint=error.hint) from error

    def _send_once(self, request: Request, proof: Credential) -> ErrorStatus:
        connection, response = self._exchange(request, proof)
        try:
            answer = _read_response(response)
        except _CUT as error:
            connection.close()
            raise self._cut(request, error) from error
        self._keep(connection, proof)
        return self._check_status(request, answer)

    def _check_status(self, request: Request, answer: ErrorStatus) -> ErrorStatus:
        if answer.status >= 300:
            raise refusal(self.access, request.method, request.path, answer, sure=request.repeatable)
        return answer

    def _open_once(self, request: Request, proof: Credential) -> Open:
        connection = self._connect(proof)
        opened = Open(connection, lambda response: self._check(request, response))
        try:
            self._put(connection, request, proof)
            opened.begun(_FIRST_BYTE_SECONDS)
        except BaseException as error:
            connection.close()
            if isinstance(error, _CUT):
                raise self._cut(request, error) from error
            raise
        return opened

    def _check(self, request: Request, response: Response) -> None:
        self._dated = response.getheader("date", ""), time.time()
        if response.status >= 300:
            self._check_status(request, _read_response(response))

    def _exchange(self, request: Request, proof: Credential) -> tuple[Connection, Response]:
        """Send over a kept connection, or over a new one if those are closed; return the connection and the
        response.
        """
        while kept := self._take(proof, request):
            try:
                return kept, self._request(kept, request, proof, fresh=False)
            except _StaleConnection:
                continue
        connection = self._connect(proof)
        return connection, self._request(connection, request, proof, fresh=True)

    def _request(
        self, connection: Connection, request: Request, proof: Credential, *, fresh: bool
    ) -> Response:
        try:
            self._put(connection, request, proof)
            response = connection.read_response()
            self._dated = response.getheader("date", ""), time.time()
            return response
        except _CUT as error:
            connection.close()
            # The server closes idle connections at any time, also in the moment in which we use one. Only a
            # reset says so.
            if not fresh and isinstance(error, ConnectionError) and request.repeatable:
                raise _StaleConnection from error
            raise self._cut(request, error) from error

    def _put(self, connection: Connection, request: Request, proof: Credential) -> None:
        connection.sock.settimeout(request.seconds or CONNECT_SECONDS)
        try:
            connection.send_request(
                request.method, request.target, self._headers(request, proof), request.body
            )
        except InvalidRequest as error:
            connection.close()
            raise invalid_request(self.access, error) from error

    def _headers(self, request: Request, proof: Credential) -> Iterator[tuple[str, str]]:
        yield "Accept", request.accept
        yield "User-Agent", "mpijob"
        if self.access.compress and request.compressed and not self._connector.near:
            yield "Accept-Encoding", "gzip"
        if request.body is not None:
            yield "Content-Type", request.content
        yield from identifying(self.access, proof)

    def _connect(self, proof: Credential) -> Connection:
        return self._connector.dial(proof)

    def _take(self, proof: Credential, request: Request) -> Connection | None:
        limit = _MAX_IDLE_SECONDS if request.repeatable else _SURELY_ALIVE_SECONDS
        while True:
            with self._lock:
                if not self._kept:
                    return None
                kept = self._kept.pop()
            young = time.monotonic() - kept.since < limit
            if young and kept.proof.certificate == proof.certificate and not has_data(kept.connection.sock):
                return kept.connection
            kept.connection.close()

    def _keep(self, connection: Connection, proof: Credential) -> None:
        # The server has announced that it closes the connection.
        if connection.sock is None:
            return
        with self._lock:
            if not self._closed and len(self._kept) < _MAX_IDLE:
                self._kept.append(_IdleConnection(connection, proof, time.monotonic()))
                return
        connection.close()

    def _cut(self, request: Request, error: BaseException) -> ApiError:
        what, reason = "closed the connection without a response", CUT
        if isinstance(error, TimeoutError):
            what, reason = f"did not respond within {request.seconds or 0:g} s", TIMEOUT
        elif not isinstance(error, OSError | http.client.IncompleteRead):
            why = error if isinstance(error, ProtocolError) else type(error).__name__
            what, reason = f"does not respond like a Kubernetes API server: {why}", NO_API
        return ApiError(
            f"{self.access.server} {what}",
            reason=reason,
            ambiguous=not request.repeatable,
            server=self.access.server,
            method=request.method,
            path=request.path,
            hint="the cluster may be restarting or overloaded; try again in a minute",
        )


class _StaleConnection(Exception):
    """The server had closed a kept connection before it saw the request."""


def _read_response(response: Response) -> ErrorStatus:
    """Return the response with its body decompressed."""
    body, headers = response.read_all(_MAX_BYTES), dict[str, str]()
    for name, value in response.getheaders():
        name = name.lower()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if headers.get("content-encoding", "").lower() == "gzip":
        body = _decompress(body)
    return ErrorStatus(response.status, headers, body)


def _decompress(body: bytes) -> bytes:
    import zlib

    # 31: a gzip header is expected. The output is limited, since a small body can decompress to gigabytes.
    decompressor = zlib.decompressobj(31)
    try:
        data = decompressor.decompress(body, _MAX_BYTES)
    except zlib.error as error:
        raise ProtocolError(f"cannot decompress the response: {error}") from error
    if not decompressor.eof:
        raise ProtocolError("cannot decompress the response: it is truncated or too large")
    return data


def invalid_request(access: Access, error: InvalidRequest) -> ApiError:
    """Return the error for a request that cannot be encoded as HTTP; nothing was sent."""
    return ApiError(
        f"invalid request to {access.server}: {error}",
        reason=UNSAYABLE,
        server=access.server,
        hint=f"check for a line break in the user and the server of context '{access.context}'",
    )


def _pauses(attempts: int) -> Iterator[float]:
    """Yield the seconds before each repetition."""
    # Imported late for a quick start of the command line: most commands repeat nothing.
    import random

    for attempt in range(attempts - 1):
        # Random, so that clients that failed together do not return together.
        yield min(_FIRST_PAUSE * 2**attempt, _LONGEST_PAUSE) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


def _worth_repeating(error: ApiError, request: Request) -> bool:
    if error.ambiguous:
        return False
    if error.status == 0:
        return error.reason not in _HOPELESS
    # A proxy's response before it closes a connection that was idle for too long.
    if error.status == 408:
        return request.repeatable
    return error.status == 429 or (error.status >= 500 and request.repeatable)


# Date has whole seconds, and the response was under way for an unknown time.
_AGREE_SECONDS = 3.0


def ahead_seconds(date: str, received: float) -> float:
    """Return how far the clock that wrote this date is ahead of the one that says when it was received."""
    written = moment(date)
    if written is None:
        return 0.0
    ahead = written + 0.5 - received
    return ahead if abs(ahead) > _AGREE_SECONDS else 0.0


def moment(date: str) -> float | None:
    """Return the seconds since 1970 of `Sun, 15 Nov 2026 09:51:19 GMT`; None for anything else."""
    try:
        read = parsedate_to_datetime(date)
    except (ValueError, OverflowError):
        return None
    return read.timestamp() if read.tzinfo else None
