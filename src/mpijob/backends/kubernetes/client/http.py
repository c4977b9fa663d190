"""One request and its answer, over connections that are kept; what may be repeated is repeated here.

Connections are those of `outbound.connection`. A request that changes something is repeated only when
the server cannot have seen it, or says that it did not act.
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
_PATIENCE_SECONDS = 30.0  # nothing is repeated later than this
_NEVER = float("inf")
_KEPT = 8  # idle connections at most
_KEPT_SECONDS = 60.0
_SURELY_ALIVE_SECONDS = 15.0  # for requests that must not be sent twice
_HOPELESS = frozenset({CERTIFICATE, UNKNOWN_HOST, NO_API, UNSAYABLE})
_ANSWER_SECONDS = 3.0  # how long opening a stream waits for its first word
_HEAD_SECONDS = 30.0  # how long an answer that has begun may take for its head
_MOST_BYTES = 1 << 30  # of one answer: the largest page of the largest objects has less
_CUT = (OSError, http.client.HTTPException)
T = TypeVar("T")


class Request(msgspec.Struct, frozen=True):
    """What to send; `repeatable` when doing it twice is as good as once."""

    method: str
    target: str  # path and query, as they go over the line
    path: str = ""
    body: bytes | None = None
    content: str = "application/json"
    accept: str = "application/json"
    repeatable: bool = True
    seconds: float | None = 30.0  # how long to wait for each next byte; None is for ever
    compressed: bool = True
    attempts: int = 5


class Open:
    """An answer that is still coming in, and the connection that it comes over."""

    def __init__(self, connection: Connection, check: Callable[[Response], None]) -> None:
        self.sock = connection.sock
        self._connection = connection
        self._check = check
        self._response: Response | None = None

    def begun(self, seconds: float | None) -> Response | None:
        """Return the answer, its head read; None when it does not begin within this time.

        The log of a silent pod has no head until the pod says something. ApiError is raised for a refusal.
        """
        if self._response is None:
            self.sock.settimeout(seconds)
            response = Response(self.sock, method="GET")
            try:
                response.fp.peek(1)
            except TimeoutError:  # this response cannot be read any more; nothing of it has come
                response.close()
                return None
            self.sock.settimeout(_HEAD_SECONDS)
            response.begin()
            self._check(response)
            self._response = response
        return self._response

    def close(self) -> None:
        """Give the answer and its connection up."""
        if self._response is not None:
            self._response.close()
        self._connection.close()


class _Kept(msgspec.Struct, frozen=True):
    connection: Connection
    proof: Credential
    since: float


class Transport:
    """Sends requests to one server; safe to use from several threads."""

    def __init__(self, access: Access, credentials: Credentials) -> None:
        self.access = access
        self._credentials = credentials
        self._dialler = Connector(access)
        self._lock = threading.Lock()
        self._kept: list[_Kept] = []
        self._closed = False
        self._dated = "", 0.0  # the server's last word about the time, and when it came

    def close(self) -> None:
        """Close the connections that are kept; those in use are closed when they are given back."""
        with self._lock:
            self._closed = True
            kept, self._kept = self._kept, []
        for each in kept:
            each.connection.close()

    def send(self, request: Request) -> ErrorStatus:
        """Return the answer to a request, repeating it where that is safe; raise ApiError."""
        return self._persistently(request, self._whole)

    def open(self, request: Request) -> Open:
        """Return the answer's beginning; the caller reads the rest and closes it."""
        return self._persistently(request, self._begun)

    def ahead_seconds(self) -> float:
        """Return how far the server's clock is ahead of this machine's; 0 when they agree as far as one can tell."""

        return ahead_seconds(*self._dated)

    def is_near(self) -> bool:
        """Return whether the server is so near that a new connection costs more than to wait for a kept one."""
        if self._dialler.near is None:
            self._persistently(Request("GET", ""), lambda _, proof: self._keep(self._fresh(proof), proof))
        return bool(self._dialler.near)

    def _persistently(self, request: Request, once: Callable[[Request, Credential], T]) -> T:
        pauses, deadline = _pauses(request.attempts), time.monotonic() + _PATIENCE_SECONDS
        renewed = False
        while True:
            proof = self._proof()
            try:
                return once(request, proof)
            except ApiError as error:
                if error.status == 401 and not renewed and self._renewed(proof):
                    renewed = True
                    continue
                if not _worth_repeating(error, request):
                    raise
                pause = max(next(pauses, _NEVER), error.retry_after or 0.0)
                if time.monotonic() + pause > deadline:
                    raise
                time.sleep(pause)

    def _proof(self) -> Credential:
        with self._told():
            return self._credentials.current()

    def _renewed(self, refused: Credential) -> bool:
        with self._told():
            return self._credentials.renew(refused)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Tell trouble with plugins and token files as what it is for the caller: no answer."""
        try:
            yield
        except MpiJobError as error:
            server = self.access.server
            raise ApiError(error.message, reason=NO_LOGIN, server=server, hint=error.hint) from error

    def _whole(self, request: Request, proof: Credential) -> ErrorStatus:
        connection, response = self._exchange(request, proof)
        try:
            answer = _answer(response)
        except _CUT as error:
            connection.close()
            raise self._cut(request, error) from error
        self._keep(connection, proof)
        return self._checked(request, answer)

    def _checked(self, request: Request, answer: ErrorStatus) -> ErrorStatus:
        if answer.status >= 300:
            raise refusal(self.access, request.method, request.path, answer, sure=request.repeatable)
        return answer

    def _begun(self, request: Request, proof: Credential) -> Open:
        connection = self._fresh(proof)
        opened = Open(connection, lambda response: self._check(request, response))
        try:
            self._put(connection, request, proof)
            opened.begun(_ANSWER_SECONDS)
        except BaseException as error:
            connection.close()
            if isinstance(error, _CUT):
                raise self._cut(request, error) from error
            raise
        return opened

    def _check(self, request: Request, response: Response) -> None:
        self._dated = response.getheader("date", ""), time.time()
        if response.status >= 300:
            self._checked(request, _answer(response))

    def _exchange(self, request: Request, proof: Credential) -> tuple[Connection, Response]:
        """Ask over a connection that was kept, or over a new one where that turns out to be dead."""
        while kept := self._take(proof, request):
            try:
                return kept, self._ask(kept, request, proof, fresh=False)
            except _StaleConnection:
                continue
        connection = self._fresh(proof)
        return connection, self._ask(connection, request, proof, fresh=True)

    def _ask(self, connection: Connection, request: Request, proof: Credential, *, fresh: bool) -> Response:
        try:
            self._put(connection, request, proof)
            response = connection.read_response()
            self._dated = response.getheader("date", ""), time.time()
            return response
        except _CUT as error:
            connection.close()
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
            raise unsayable(self.access, error) from error

    def _headers(self, request: Request, proof: Credential) -> Iterator[tuple[str, str]]:
        yield "Accept", request.accept
        yield "User-Agent", "mpijob"
        if self.access.compress and request.compressed and not self._dialler.near:
            yield "Accept-Encoding", "gzip"
        if request.body is not None:
            yield "Content-Type", request.content
        yield from identifying(self.access, proof)

    def _fresh(self, proof: Credential) -> Connection:
        return self._dialler.dial(proof)

    def _take(self, proof: Credential, request: Request) -> Connection | None:
        limit = _KEPT_SECONDS if request.repeatable else _SURELY_ALIVE_SECONDS
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
        if connection.sock is None:  # the server has said that it closes
            return
        with self._lock:
            if not self._closed and len(self._kept) < _KEPT:
                self._kept.append(_Kept(connection, proof, time.monotonic()))
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


def _answer(response: Response) -> ErrorStatus:
    """Return an answer with its body unpacked."""
    body, headers = response.read_all(_MOST_BYTES), dict[str, str]()
    for name, value in response.getheaders():
        name = name.lower()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if headers.get("content-encoding", "").lower() == "gzip":
        body = _unpacked(body)
    return ErrorStatus(response.status, headers, body)


def _unpacked(body: bytes) -> bytes:
    import zlib

    unpacking = zlib.decompressobj(31)
    try:
        unpacked = unpacking.decompress(body, _MOST_BYTES)
    except zlib.error as error:
        raise ProtocolError(f"cannot decompress the response: {error}") from error
    if not unpacking.eof:
        raise ProtocolError("cannot decompress the response: it is truncated or too large")
    return unpacked


def unsayable(access: Access, error: InvalidRequest) -> ApiError:
    """Return what is told of a request that cannot be written down; nothing was sent."""
    return ApiError(
        f"invalid request to {access.server}: {error}",
        reason=UNSAYABLE,
        server=access.server,
        hint=f"check for a line break in the user and the server of context '{access.context}'",
    )


def _pauses(attempts: int) -> Iterator[float]:
    """Yield how long to wait before each repetition: longer each time, never in step with others."""
    import random  # seldom needed: start-up is a feature

    for attempt in range(attempts - 1):
        yield min(_FIRST_PAUSE * 2**attempt, _LONGEST_PAUSE) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


def _worth_repeating(error: ApiError, request: Request) -> bool:
    if error.ambiguous:
        return False
    if error.status == 0:
        return error.reason not in _HOPELESS
    if error.status == 408:  # what a proxy says before it closes a line that was kept for too long
        return request.repeatable
    return error.status == 429 or (error.status >= 500 and request.repeatable)


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
