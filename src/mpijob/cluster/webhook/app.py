"""What the webhook answers: probes, and reviews that are read within bounds, in turns, in few threads."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec

from mpijob import codec
from mpijob.cluster.webhook import admission_review
from mpijob.serving import service
from mpijob.serving.concurrency import ConcurrencyLimit, TooMany

if TYPE_CHECKING:
    from mpijob.cluster.webhook.admission_review import Known

PATHS = ("/defaults", "/restricted", "/judge", "/strict", "/open")
MOST_BYTES = 3 << 20  # an object of etcd's largest size, as it is and as it was
MOST_NODES = 100_000  # values of a document; a job with its texts has some thousand
_AT_ONCE, _OF_ONE, _WAITING_OF_ONE = 8, 6, 400
_DECODER = codec.decoder(dict[str, Any])


class Reviews:
    """Judges requests; `known` is what they are judged by, None until it is there.

    With a `client_name` ("" for any) only a client is answered that has shown a certificate.
    """

    def __init__(self, *, client_name: str | None = None) -> None:
        self.known: Known | None = None
        self._client_name = client_name
        self._turns = ConcurrencyLimit(_AT_ONCE, _OF_ONE, _WAITING_OF_ONE)
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="judging")

    def admits(self, client: str | None) -> bool:
        """Whether a client with this name in its certificate, None for no certificate, is answered."""
        return self._client_name is None or (client is not None and self._client_name in ("", client))

    async def answer(self, request: service.Request) -> service.Reply:
        """Answer one review."""
        if not self.admits(request.client_name):
            return service.Reply(403, "this client is not the API server\n")
        known = self.known
        if known is None:
            return service.Reply(503, "not ready\n")
        try:
            async with self._turns.of(request.peer):
                content = await request.body(MOST_BYTES)
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._threads, _judged, request.path, content, known)
        except TooMany:
            return service.Reply(429, "too many requests wait\n")


def _judged(path: str, content: bytes, known: Known) -> service.Reply:
    if nodes(content) > MOST_NODES:
        return service.Reply(413, f"more than {MOST_NODES} values\n")
    try:
        review: Mapping[str, Any] = _DECODER.decode(content)
        told = admission_review.answer(path, review, known)
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError, RecursionError):
        return service.Reply(400, "this is no AdmissionReview\n")
    return service.Reply(200, msgspec.json.encode(told), "application/json")


def nodes(content: bytes) -> int:
    """Return the most values that a JSON document can hold, without reading it."""
    return content.count(b"{") + content.count(b"[") + content.count(b",")


def application(reviews: Reviews) -> service.Application:
    """Return the webhook's application."""
    posts = dict.fromkeys(PATHS, reviews.answer)
    return service.application(posts=posts, alive=lambda: True, ready=lambda: reviews.known is not None)
