"""The webhook's HTTP application: probes, and reviews with bounded size, concurrency and threads.

What a request is limited to is decided here, the response in `admission_review`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec

from mpijob import codec
from mpijob.cluster.webhook import admission_review
from mpijob.serving import service
from mpijob.serving.concurrency import ConcurrencyLimit, QueueFull

if TYPE_CHECKING:
    from mpijob.cluster.webhook.admission_review import ClusterView

PATHS = ("/defaults", "/restricted", "/judge", "/strict", "/open")
# Two objects of etcd's maximum size: the new and the old one.
MAX_BYTES = 3 << 20
# Values in a document; a job with its texts has a few thousand.
MAX_NODES = 100_000
_MAX_ACTIVE, _MAX_PER_ADDRESS, _MAX_QUEUED_PER_ADDRESS = 8, 6, 400
_DECODER = codec.decoder(dict[str, Any])


class Reviews:
    """Handles review requests; `cluster` is what the webhook knows, None until it is loaded.

    With a `client_name` ("" for any), only clients with a certificate are served.
    """

    def __init__(self, *, client_name: str | None = None) -> None:
        self.cluster: ClusterView | None = None
        self._client_name = client_name
        self._limit = ConcurrencyLimit(_MAX_ACTIVE, _MAX_PER_ADDRESS, _MAX_QUEUED_PER_ADDRESS)
        # One thread for each active request: a review may wait for the API server.
        self._threads = ThreadPoolExecutor(_MAX_ACTIVE, thread_name_prefix="review")

    def accepts_client(self, client: str | None) -> bool:
        """Return whether a client with this certificate name (None: no certificate) is served."""
        return self._client_name is None or (client is not None and self._client_name in ("", client))

    async def respond(self, request: service.Request) -> service.Reply:
        if not self.accepts_client(request.client_name):
            return service.Reply(403, "client certificate of the API server required\n")
        cluster = self.cluster
        if cluster is None:
            return service.Reply(503, "not ready\n")
        try:
            async with self._limit.slot(request.peer):
                content = await request.body(MAX_BYTES)
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._threads, _review, request.path, content, cluster)
        except QueueFull:
            return service.Reply(429, "too many queued requests\n")


def _review(path: str, content: bytes, cluster: ClusterView) -> service.Reply:
    # Before it is parsed: as Python objects, a document of `{}` takes many times its size (docs/decisions/0048).
    if max_node_count(content) > MAX_NODES:
        return service.Reply(413, f"more than {MAX_NODES} values\n")
    try:
        review: Mapping[str, Any] = _DECODER.decode(content)
        response = admission_review.respond(path, review, cluster)
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError, RecursionError):
        return service.Reply(400, "not an AdmissionReview\n")
    return service.Reply(200, msgspec.json.encode(response), "application/json")


def max_node_count(content: bytes) -> int:
    """Return an upper bound of the number of values in a JSON document, without parsing it."""
    return content.count(b"{") + content.count(b"[") + content.count(b",")


def application(reviews: Reviews) -> service.Application:
    posts = dict.fromkeys(PATHS, reviews.respond)
    return service.application(
        post_handlers=posts, alive=lambda: True, ready=lambda: reviews.cluster is not None
    )
