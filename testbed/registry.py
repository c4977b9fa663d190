"""A registry without images, on the node's loopback: a pull of an unknown image fails at once.

It is also the first process of the node, and so the keeper of its namespaces. It runs on its own,
without the rest of the test bed: `python registry.py PORT READY-FILE`.
"""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_UNKNOWN = b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}'


class _NoImages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Answer that the registry is there and the image is not."""
        self.send_response(200 if self.path.rstrip("/") == "/v2" else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(_UNKNOWN)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(_UNKNOWN)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: every pull of an unknown image comes by here."""


def main(port: str, ready_file: str) -> None:
    """Serve for ever; the file tells that it does."""
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), _NoImages)
    Path(ready_file).touch()
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
