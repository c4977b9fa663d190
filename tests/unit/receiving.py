"""A receiver of POST requests on this machine, for what is told to others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

Answer = Callable[[str, dict[str, str], bytes], int]


@contextmanager
def receiving(answer: Answer) -> Iterator[str]:
    """Yield the address of a server that answers path, headers and body of each request with a status."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(answer(self.path, dict(self.headers.items()), content))
            self.send_header("location", "http://169.254.169.254/")  # nobody is to follow it
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            pass

    with serving(Handler) as address:
        yield address


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Yield the address of a server on this machine, and end it again."""
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
