"""Compress responses with gzip: JSON as a whole, log lines batch by batch."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncIterator
from contextlib import aclosing

from starlette.requests import HTTPConnection
from starlette.responses import Response, StreamingResponse

# Less fits into one packet uncompressed. It is also what protects the CSRF token from a BREACH attack: the
# response that carries it is far below this size, so its length reveals nothing.
LEAST_BYTES = 1400
_LEVEL = 5
_STREAM_LEVEL = 3
# 16 selects the gzip format, 15 is the largest window (see `deflateInit2`).
_GZIP_WINDOW = 31
_TYPES = ("application/json", "application/x-ndjson", "text/")


def accepted(request: HTTPConnection) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


def compressed(response: Response, request: HTTPConnection) -> Response:
    """Compress a complete response if that is worthwhile and the client accepts gzip."""
    plain = isinstance(response, StreamingResponse) or "content-encoding" in response.headers
    if plain or not response.headers.get("content-type", "").startswith(_TYPES):
        return response
    response.headers.add_vary_header("accept-encoding")
    if len(response.body) < LEAST_BYTES or not accepted(request):
        return response
    # `mtime=0`: equal content gives equal bytes.
    response.body = gzip.compress(response.body, _LEVEL, mtime=0)
    response.headers["content-encoding"] = "gzip"
    response.headers["content-length"] = str(len(response.body))
    return response


async def streamed(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Compress a stream; each chunk can be decompressed as soon as it has arrived."""
    packer = zlib.compressobj(_STREAM_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
    async with aclosing(chunks) as given:  # type: ignore[type-var]  # a generator
        async for chunk in given:
            yield packer.compress(chunk) + packer.flush(zlib.Z_SYNC_FLUSH)
    yield packer.flush()
