"""Answers compressed for clients that take gzip: JSON as a whole, log lines batch by batch as they come.

The answer that carries the CSRF word is far below the size from which anything is compressed, so its length tells
nothing about the word.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncIterator
from contextlib import aclosing

from starlette.requests import HTTPConnection
from starlette.responses import Response, StreamingResponse

LEAST_BYTES = 1400  # less fits into one packet as it is
_LEVEL = 5
_STREAM_LEVEL = 3
_GZIP_WINDOW = 31  # zlib's word for the largest window in gzip's format
_TYPES = ("application/json", "application/x-ndjson", "text/")


def accepted(request: HTTPConnection) -> bool:
    """Return whether the client takes gzip."""
    return "gzip" in request.headers.get("accept-encoding", "")


def compressed(response: Response, request: HTTPConnection) -> Response:
    """Return a whole answer compressed, where that is worth it and the client takes it."""
    plain = isinstance(response, StreamingResponse) or "content-encoding" in response.headers
    if plain or not response.headers.get("content-type", "").startswith(_TYPES):
        return response
    response.headers.add_vary_header("accept-encoding")
    if len(response.body) < LEAST_BYTES or not accepted(request):
        return response
    response.body = gzip.compress(response.body, _LEVEL, mtime=0)
    response.headers["content-encoding"] = "gzip"
    response.headers["content-length"] = str(len(response.body))
    return response


async def streamed(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield a stream as gzip; each chunk can be read as soon as it has arrived."""
    packer = zlib.compressobj(_STREAM_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
    async with aclosing(chunks) as given:  # type: ignore[type-var]  # a generator
        async for chunk in given:
            yield packer.compress(chunk) + packer.flush(zlib.Z_SYNC_FLUSH)
    yield packer.flush()
