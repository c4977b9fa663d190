"""The HTTP server of the fit broker: POST /v1/fit with a job, POST /v1/waits with a namespace, and a bearer
token.

Responses contain numbers only. Tokens are neither logged nor stored. Without TLS it listens on loopback only.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, TypeVar

import msgspec

from mpijob import codec
from mpijob.admission.fit import fit
from mpijob.backends.kubernetes.auth.token_access import Unauthenticated
from mpijob.backends.kubernetes.broker.client import with_seen
from mpijob.backends.kubernetes.broker.service import Broker
from mpijob.errors import HTTP_STATUS, InvalidJob, MpiJobError
from mpijob.model import Amounts, Facts, Identity, MPIJob
from mpijob.model.platform.fit import Fit, Seen
from mpijob.model.status.forecast import Forecast
from mpijob.serving import server, service
from mpijob.serving.concurrency import ConcurrencyLimit, QueueFull

FIT, WAITS = "/v1/fit", "/v1/waits"
T = TypeVar("T")
MAX_BYTES = 256 << 10
# Concurrent requests, of one client, and waiting requests of one client.
AT_ONCE, _PER_CLIENT, _WAITING_PER_CLIENT = 16, 8, 64
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_log = logging.getLogger(__name__)


class Answer(msgspec.Struct, frozen=True):
    """The response: numbers, and what they mean for the job."""

    seen: Seen
    fit: Fit


class Asked(msgspec.Struct, frozen=True):
    """The body of a request for a job."""

    job: MPIJob


class WaitsAsked(msgspec.Struct, frozen=True):
    """The body of a request for waiting jobs."""

    namespace: Annotated[str, msgspec.Meta(min_length=1, max_length=63)]


class Waits(msgspec.Struct, frozen=True):
    """The start times of a namespace's queued jobs, by the uids of their objects."""

    waits: dict[str, Forecast]


class Server(server.Server):
    """Serves one broker; raise InvalidJob without TLS on an address other than loopback."""

    def __init__(self, broker: Broker, address: tuple[str, int], tls: tuple[str, str] | None = None) -> None:
        if tls is None and address[0] not in _LOOPBACK:
            raise InvalidJob(
                f"the broker requires TLS to listen on an address other than loopback: {address[0]}",
                hint="set --certificate and --key, or omit --address",
            )
        self._broker = broker
        self._turns = ConcurrencyLimit(AT_ONCE, _PER_CLIENT, _WAITING_PER_CLIENT)
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="fitting")
        app = service.application(
            post_handlers={FIT: self._handler(self._fit), WAITS: self._handler(self._waits)},
            alive=lambda: True,
            ready=lambda: True,
        )
        context: ssl.SSLContext | None = server.tls_context(*tls) if tls is not None else None
        super().__init__(app, server.listen(*address, name="the broker"), tls=context)

    def _handler(
        self, work: Callable[[str, bytes], object]
    ) -> Callable[[service.Request], Awaitable[service.Reply]]:
        # In a thread, since reading the cluster blocks; within the limits of concurrent requests.

        async def handle(request: service.Request) -> service.Reply:
            try:
                async with self._turns.slot(request.peer):
                    content = await request.body(MAX_BYTES)
                    loop = asyncio.get_running_loop()
                    return await loop.run_in_executor(
                        self._threads, self._answer, work, request.token, content
                    )
            except QueueFull:
                return _reply(503, {"code": "BACKEND_ERROR", "message": "too many concurrent requests"})

        return handle

    def _answer(self, work: Callable[[str, bytes], object], token: str, content: bytes) -> service.Reply:
        try:
            if not token:
                raise Unauthenticated("a bearer token is required")
            return _reply(200, work(token, content))
        except Unauthenticated as error:
            return _reply(401, _problem(error))
        except MpiJobError as error:
            return _reply(HTTP_STATUS[error.kind], _problem(error))
        except Exception:
            # The outermost place: the client gets a response.
            _log.exception("a request failed")
            return _reply(500, {"code": "INTERNAL", "message": "internal error of the fit broker"})

    def _fit(self, token: str, content: bytes) -> Answer:
        return answer(self._broker, token, _decode(content, Asked, "job").job)

    def _waits(self, token: str, content: bytes) -> Waits:
        return Waits(self._broker.waits(token, _decode(content, WaitsAsked, "namespace").namespace))


def _decode(content: bytes, kind: type[T], what: str) -> T:
    try:
        return codec.decode(content, kind)
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError) as error:
        raise InvalidJob(f"the body is not a valid {what}: {error}") from error


def _reply(status: int, body: object) -> service.Reply:
    return service.Reply(status, msgspec.json.encode(body), service.JSON, {"cache-control": "no-store"})


def answer(broker: Broker, token: str, job: MPIJob) -> Answer:
    """Return the numbers for a user's job, and what they mean; raise Unauthenticated or NotAllowed."""
    seen = broker.seen(token, job)
    bare = Facts(place=seen.place, capacity=Amounts(), free=Amounts(), room_known=False)
    return Answer(seen, fit(job, Identity(""), with_seen(bare, seen)))


def _problem(error: MpiJobError) -> dict[str, str]:
    return {"code": error.code, "message": error.message, "hint": error.hint}
