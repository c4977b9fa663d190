"""The page that Prometheus scrapes.

Prometheus has no browser session, and other users of this machine must not read names of jobs. So the page
has its own token, created once, in a file that only its owner can read (`credentials_file` of a scrape).
"""

from __future__ import annotations

import asyncio
import os
import secrets
from hmac import compare_digest
from importlib.util import find_spec
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from mpijob.api.errors import Refused, response

if TYPE_CHECKING:
    from mpijob.client.integrations.prometheus_exporter import Exporter
    from mpijob.settings import Settings

FILE = "metrics-token"


class MetricsPage:
    """Serves the metrics."""

    def __init__(self, exporter: Exporter, token: str) -> None:
        self._exporter, self._token = exporter, token

    async def answer(self, request: Request) -> Response:
        given = request.headers.get("authorization", "")
        if not compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            return response(
                Refused(401, "metrics require the bearer token", f"it is in {FILE}", "NOT_ALLOWED")
            )
        page, kind = await asyncio.to_thread(self._exporter.text)
        return Response(page, headers={"content-type": kind})


def metrics_page(settings: Settings, namespace: str | None) -> MetricsPage | None:
    """Return the page with the metrics of this user's jobs; None if the extra `metrics` is not installed."""
    if find_spec("prometheus_client") is None or not settings.home:
        return None
    from mpijob.client import Client
    from mpijob.client.integrations import metric_sources, prometheus_exporter

    client = Client(namespace=namespace, settings=settings)
    return MetricsPage(
        prometheus_exporter.exporter(metric_sources.OfClient(client), settings, client.rates),
        token_in(settings.home),
    )


def token_in(home: str) -> str:
    """Return the token in a home directory, created if there is none."""
    os.makedirs(home, mode=0o700, exist_ok=True)
    path = os.path.join(home, FILE)
    try:
        # O_EXCL: of two servers that start at once, one creates it and the other one reads it.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    with os.fdopen(handle, "w") as file:
        token = secrets.token_urlsafe(32)
        file.write(f"{token}\n")
    return token
