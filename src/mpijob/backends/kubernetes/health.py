"""What a service in a cluster tells those who watch over it: /healthz, /readyz and /metrics, in plain text."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Numbers = Callable[[], Mapping[str, float]]


class Health:
    """Answers on a port as long as it is open; `alive` and `ready` are asked anew each time."""

    def __init__(
        self, port: int, *, alive: Callable[[], bool], ready: Callable[[], bool], numbers: Numbers
    ) -> None:
        answers: dict[str, Callable[[], tuple[int, str]]] = {
            "/healthz": lambda: _word(alive()),
            "/readyz": lambda: _word(ready()),
            "/metrics": lambda: (200, _metrics(numbers())),
        }

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, text = answers.get(self.path, lambda: (404, "not found\n"))()
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass  # probes come every few seconds

        self._server = ThreadingHTTPServer(("", port), Handler)
        self._server.daemon_threads = True

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Health:
        threading.Thread(target=self._server.serve_forever, daemon=True, name="health").start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _word(well: bool) -> tuple[int, str]:
    return (200, "ok\n") if well else (503, "not ok\n")


def _metrics(numbers: Mapping[str, float]) -> str:
    return "".join(f"{name} {value:g}\n" for name, value in numbers.items())
