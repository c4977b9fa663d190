"""Services of the platform beside the API server (Loki, Prometheus), with a token from a file.

The token is sent to the configured address only: a redirect is an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from mpijob.outbound import http

_SECONDS = 5.0
# A page of 2000 long lines.
_MAX_BYTES = 64 << 20
# Unreachable, or a response that is not what it should be.
FAILURES = (OSError, ValueError, KeyError, TypeError)


class HttpService:
    """A service; a request blocks for 5 s at most."""

    def __init__(self, address: str, token_file: str = "") -> None:
        self.address, self._token_file = address.rstrip("/"), token_file

    def get(self, path: str, parameters: Mapping[str, str]) -> Any:
        """Return the `data` of the response; parameters are in the URL."""
        return self._request(f"{path}?{urlencode(parameters)}", None)

    def post(self, path: str, parameters: Mapping[str, str]) -> Any:
        """Return the `data` of the response; parameters are in the body, since URLs have a limit."""
        return self._request(path, urlencode(parameters).encode())

    def _request(self, path: str, body: bytes | None) -> Any:
        response = http.request(
            "GET" if body is None else "POST",
            f"{self.address}{path}",
            body,
            self._headers() | ({} if body is None else {"content-type": "application/x-www-form-urlencoded"}),
            seconds=_SECONDS,
            max_bytes=_MAX_BYTES,
        )
        if not response.ok:
            raise OSError(f"it {response}")
        return json.loads(response.body)["data"]

    def _headers(self) -> dict[str, str]:
        if not self._token_file:
            return {}
        # Read for each request: the kubelet rotates tokens.
        with open(self._token_file, encoding="utf-8") as file:
            return {"authorization": f"Bearer {file.read().strip()}"}


def configured_service(address: str, token_file: str) -> HttpService | None:
    """Return the service of a setting, None if it is not set."""
    return HttpService(address, token_file) if address.startswith(("http://", "https://")) else None
