"""The built page: files of the package, compressed once, with security headers.

`make ui` builds `frontend/` into `mpijob/api/page`; wheels and source distributions contain the result. Files
are looked up in a list that is read at start-up, so that no request can name another path.
"""

from __future__ import annotations

import functools
import gzip
import mimetypes
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

PLACE = Path(__file__).parent / "page"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_TEXT = ("text/", "application/javascript", "application/json", "image/svg")
_MISSING = (
    "The page is not built: this is a source checkout.\n"
    "Run `make ui` (it needs Node 20.19 or newer), or install a released wheel. The API under /api/v1 works.\n"
)


class Files:
    """The files of the built page."""

    def __init__(self, place: Path = PLACE) -> None:
        self._known = {
            path.relative_to(place).as_posix(): path for path in place.rglob("*") if path.is_file()
        }

    async def serve(self, request: Request) -> Response:
        """Return a file; any other path returns the page, whose router handles it."""
        wanted = request.path_params.get("path", "")
        name = wanted if wanted in self._known else "index.html"
        if name not in self._known:
            return PlainTextResponse(_MISSING, 503)
        if wanted.startswith("assets/") and name == "index.html":
            return PlainTextResponse("there is no such file\n", 404)
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        caching = "public, max-age=31536000, immutable" if name.startswith("assets/") else "no-cache"
        headers = {"cache-control": caching, "vary": "accept-encoding"}
        if kind.startswith(_TEXT) and "gzip" in request.headers.get("accept-encoding", ""):
            headers["content-encoding"] = "gzip"
            return Response(_packed(self._known[name]), media_type=kind, headers=headers)
        return Response(self._known[name].read_bytes(), media_type=kind, headers=headers)


@functools.cache
def _packed(path: Path) -> bytes:
    return gzip.compress(path.read_bytes(), 9)
