"""Services of the platform beside its API server: asked over HTTP, with a token that lies in a file."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

_SECONDS = 5.0
FAILURES = (OSError, ValueError, KeyError, TypeError)  # away, or it answers what nobody understands


class Neighbour:
    """One of them; a question blocks for a few seconds at most."""

    def __init__(self, address: str, token_file: str = "") -> None:
        self.address, self._token_file = address.rstrip("/"), token_file

    def get(self, path: str, words: Mapping[str, str]) -> Any:
        """Return the `data` of an answer; the words stand in the address."""
        return self._ask(f"{path}?{urllib.parse.urlencode(words)}", None)

    def post(self, path: str, words: Mapping[str, str]) -> Any:
        """Return the `data` of an answer; the words may be long."""
        return self._ask(path, urllib.parse.urlencode(words).encode())

    def _ask(self, path: str, body: bytes | None) -> Any:
        request = urllib.request.Request(f"{self.address}{path}", body, self._headers())  # noqa: S310
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 the administrator's own address
            return json.load(answer)["data"]

    def _headers(self) -> dict[str, str]:
        if not self._token_file:
            return {}
        with open(self._token_file, encoding="utf-8") as file:
            return {"authorization": f"Bearer {file.read().strip()}"}


def neighbour(address: str, token_file: str) -> Neighbour | None:
    """Return the one of a setting, None where none is set."""
    return Neighbour(address, token_file) if address.startswith(("http://", "https://")) else None
