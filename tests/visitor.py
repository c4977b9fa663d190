"""A running `mpijob ui` and a visitor without a browser, for the tests of both engines."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

PATIENCE = 60.0


class Page:
    """The server's process, its address, and whoever came in with it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process, self.address = process, process.stdout.readline().strip()
        self.base, _, self.token = self.address.partition("/#token=")
        self.headers: dict[str, str] = {}

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = self.headers | ({} if data is None else {"content-type": "application/json"})
        request = urllib.request.Request(f"{self.base}/api/v1{path}", data, headers, method=method)
        return urllib.request.urlopen(request, timeout=PATIENCE)

    def json(self, method: str, path: str, body: Any = None) -> Any:
        return json.load(self.ask(method, path, body))

    def sign_in(self) -> None:
        answer = self.ask("POST", "/session", {"token": self.token})
        cookie = SimpleCookie(answer.headers["set-cookie"])
        pairs = "; ".join(f"{name}={morsel.value}" for name, morsel in cookie.items())
        self.headers = {"cookie": pairs, "x-mpijob-csrf": json.load(answer)["csrf"]}

    def phase(self, name: str) -> str:
        """Return where the list says that a job stands."""
        items = self.json("GET", f"/trainjobs?text={name}")["items"]
        return str(items[0]["phase"]) if items else ""


@contextmanager
def opened(environ: Mapping[str, str], work: Path) -> Iterator[Page]:
    """Yield the page of a process that is ended afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mpijob", "ui", "--port", "0", "--no-browser"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=work,
        env=environ,
    )
    try:
        yield Page(process)
    finally:
        process.kill()
        process.wait(PATIENCE)
