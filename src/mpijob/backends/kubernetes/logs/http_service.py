"""Services of the platform beside its API server: asked over HTTP, with a token that lies in a file.

The token goes to the address of the settings and nowhere else: a redirect is an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from mpijob.outbound import http

_SECONDS = 5.0
_MOST_BYTES = 64 << 20  # a page of 2000 long lines
FAILURES = (OSError, ValueError, KeyError, TypeError)  # away, or it answers what nobody understands


class HttpService:
    """One of them; a question blocks for a few seconds at most."""

    def __init__(self, address: str, token_file: str = "") -> None:
        self.address, self._token_file = address.rstrip("/"), token_file

    def get(self, path: str, words: Mapping[str, str]) -> Any:
        """Return the `data` of an answer; the words stand in the address."""
        return self._ask(f"{path}?{urlencode(words)}", None)

    def post(self, path: str, words: Mapping[str, str]) -> Any:
        """Return the `data` of an answer; the words may be long."""
        return self._ask(path, urlencode(words).encode())

    def _ask(self, path: str, body: bytes | None) -> Any:
        answer = http.request(
            "GET" if body is None else "POST",
            f"{self.address}{path}",
            body,
            self._headers() | ({} if body is None else {"content-type": "application/x-www-form-urlencoded"}),
            seconds=_SECONDS,
            max_bytes=_MOST_BYTES,
        )
        if not answer.ok:
            raise OSError(f"it {answer}")
        return json.loads(answer.body)["data"]

    def _headers(self) -> dict[str, str]:
        if not self._token_file:
            return {}
        with open(self._token_file, encoding="utf-8") as file:
            return {"authorization": f"Bearer {file.read().strip()}"}


def neighbour(address: str, token_file: str) -> HttpService | None:
    """Return the one of a setting, None where none is set."""
    return HttpService(address, token_file) if address.startswith(("http://", "https://")) else None
