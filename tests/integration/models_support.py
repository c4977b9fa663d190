"""A stand-in for Kubeflow's model registry: the part of its OpenAPI document that is used, on loopback.

It holds requests to the document's rules: required fields, names that are unique below their parent (409), nothing
found (404). The real server, which takes a while to build, is asked in tests/e2e/cluster/test_models.py.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

ROOT = "/api/model_registry/v1alpha3/"


class Registry:
    """What the server keeps."""

    def __init__(self) -> None:
        self.kept: dict[str, list[dict[str, Any]]] = {
            "registered_model": [],
            "model_version": [],
            "model_artifact": [],
        }
        self.token = ""
        self.address = ""
        self.asked: list[str] = []

    def find(self, kind: str, name: str, parent: str) -> dict[str, Any] | None:
        found = (one for one in self.kept[kind] if one["name"] == name and parent in ("", one["parent"]))
        return next(found, None)

    def make(self, kind: str, body: dict[str, Any], parent: str) -> tuple[int, dict[str, Any]]:
        if not body.get("name") or (kind == "model_version" and not parent):
            return 400, {"message": "a required field is missing"}
        if self.find(kind, body["name"], parent) is not None:
            return 409, {"message": "it exists already"}
        made = body | {"id": str(1 + sum(map(len, self.kept.values()))), "parent": parent}
        self.kept[kind].append(made)
        return 201, made


@contextmanager
def a_registry() -> Iterator[Registry]:
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            asked = {key: values[0] for key, values in parse_qs(parts.query).items()}
            kind = parts.path.removeprefix(ROOT)
            found = registry.find(kind, asked.get("name", ""), asked.get("parentResourceId", ""))
            self.answer(200 if found else 404, found or {"message": "not found"})

        def do_POST(self) -> None:
            what = self.path.removeprefix(ROOT)
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if what.startswith("model_versions/"):
                self.answer(*registry.make("model_artifact", body, what.split("/")[1]))
            else:
                kind = what.removesuffix("s")
                self.answer(*registry.make(kind, body, str(body.get("registeredModelId", ""))))

        def answer(self, status: int, body: dict[str, Any]) -> None:
            registry.asked.append(f"{self.command} {urlsplit(self.path).path.removeprefix(ROOT)}")
            if registry.token and self.headers.get("authorization") != f"Bearer {registry.token}":
                status, body = 401, {"message": "no"}
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    registry.address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
