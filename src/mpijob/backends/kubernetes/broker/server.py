"""The broker's server: POST /v1/fit with a bearer token and a job, POST /v1/waits with a namespace.

Both are answered with numbers; nothing else is served.

Tokens are neither logged nor kept. Without TLS it listens on loopback alone.
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
MOST_BYTES = 256 << 10
AT_ONCE, _OF_ONE, _WAITING_OF_ONE = 16, 8, 64
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_log = logging.getLogger(__name__)


class Answer(msgspec.Struct, frozen=True):
    """What is answered: the numbers, and what they mean for the job."""

    seen: Seen
    fit: Fit


class Asked(msgspec.Struct, frozen=True):
    """What is asked."""

    job: MPIJob


class WaitsAsked(msgspec.Struct, frozen=True):
    """Whose waiting jobs are asked about."""

    namespace: Annotated[str, msgspec.Meta(min_length=1, max_length=63)]


class Waits(msgspec.Struct, frozen=True):
    """When the jobs of a namespace start that wait, by the uids of their objects."""

    waits: dict[str, Forecast]


class Server(server.Server):
    """Serves one broker."""

    def __init__(self, broker: Broker, address: tuple[str, int], tls: tuple[str, str] | None = None) -> None:
        if tls is None and address[0] not in _LOOPBACK:
            raise InvalidJob(
                f"the broker requires TLS to listen on another address than loopback: {address[0]}",
                hint="give --certificate and --key, or omit --address",
            )
        self._broker = broker
        self._turns = ConcurrencyLimit(AT_ONCE, _OF_ONE, _WAITING_OF_ONE)
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="fitting")
        app = service.application(
            post_handlers={FIT: self._for(self._fit), WAITS: self._for(self._waits)},
            alive=lambda: True,
            ready=lambda: True,
        )
        context: ssl.SSLContext | None = server.tls_context(*tls) if tls is not None else None
        super().__init__(app, server.listen(*address, name="the broker"), tls=context)

    def _for(
        self, work: Callable[[str, bytes], object]
    ) -> Callable[[service.Request], Awaitable[service.Reply]]:
        """Return who answers one address: in a thread, in turns."""

        async def asked(request: service.Request) -> service.Reply:
            try:
                async with self._turns.slot(request.peer):
                    content = await request.body(MOST_BYTES)
                    loop = asyncio.get_running_loop()
                    return await loop.run_in_executor(
                        self._threads, self._answer, work, request.token, content
                    )
            except QueueFull:
                return _told(503, {"code": "BACKEND_ERROR", "message": "too many concurrent requests"})

        return asked

    def _answer(self, work: Callable[[str, bytes], object], token: str, content: bytes) -> service.Reply:
        try:
            if not token:
                raise Unauthenticated("a bearer token is required")
            return _told(200, work(token, content))
        except Unauthenticated as error:
            return _told(401, _problem(error))
        except MpiJobError as error:
            return _told(HTTP_STATUS[error.kind], _problem(error))
        except Exception:  # the outermost place: whatever it is, the asker gets an answer
            _log.exception("a request failed")
            return _told(500, {"code": "INTERNAL", "message": "internal error of the fit broker"})

    def _fit(self, token: str, content: bytes) -> Answer:
        return answer(self._broker, token, _decoded(content, Asked, "job").job)

    def _waits(self, token: str, content: bytes) -> Waits:
        return Waits(self._broker.waits(token, _decoded(content, WaitsAsked, "namespace").namespace))


def _decoded(content: bytes, kind: type[T], what: str) -> T:
    try:
        return codec.decode(content, kind)
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError) as error:
        raise InvalidJob(f"the body is not a valid {what}: {error}") from error


def _told(status: int, body: object) -> service.Reply:
    return service.Reply(status, msgspec.json.encode(body), service.JSON, {"cache-control": "no-store"})


def answer(broker: Broker, token: str, job: MPIJob) -> Answer:
    """Return the numbers for a user's job and what they mean."""
    seen = broker.seen(token, job)
    bare = Facts(place=seen.place, capacity=Amounts(), free=Amounts(), room_known=False)
    return Answer(seen, fit(job, Identity(""), with_seen(bare, seen)))


def _problem(error: MpiJobError) -> dict[str, str]:
    return {"code": error.code, "message": error.message, "hint": error.hint}
