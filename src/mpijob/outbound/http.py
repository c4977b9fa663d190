"""One HTTP request to a service, over a connection of `connection` that `guard` has checked.

Redirects are not followed, so a token goes only to its server; `download` sends no token and follows
redirects to HTTPS URLs. Body and time are bounded. Error messages contain host and status, never bytes of the
body.
"""

from __future__ import annotations

import http.client
import os
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

import msgspec

from mpijob.errors import Unsupported
from mpijob.outbound.connection import BodyTooLong, Connection, InvalidRequest, proxy_for, tls_context
from mpijob.outbound.guard import Guard
from mpijob.outbound.policy import UNRESTRICTED, Policy

_MAX_REDIRECTS = 5


class Response(NamedTuple):
    """A server's response; `location` is the target of a redirect, without its query."""

    status: int
    body: bytes
    location: str = ""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def __str__(self) -> str:
        redirect = f" (redirect to {self.location} not followed)" if self.location else ""
        return f"answered {self.status}{redirect}"


def request(
    method: str,
    url: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    seconds: float,
    max_bytes: int,
    policy: Policy = UNRESTRICTED,
) -> Response:
    """Return the response of a server; raise OSError if there is none, if it is too large, or on a timeout.

    With `max_bytes=0` the body is not read.
    """
    response, target = _send(method, url, body, headers or {}, seconds, max_bytes, policy)
    return response._replace(location=_redact_url(target))


def download(url: str, *, seconds: float, max_bytes: int) -> Response:
    """Return the content of a URL, following redirects to HTTPS; raise OSError on failure or timeout."""
    for _ in range(_MAX_REDIRECTS + 1):
        response, target = _send("GET", url, None, {}, seconds, max_bytes, UNRESTRICTED)
        if not target:
            return response
        # The operator applies with administrator permissions what it downloads.
        if not target.startswith("https://"):
            raise OSError(f"redirect to {_redact_url(target)} refused: not HTTPS")
        url = target
    raise OSError(f"more than {_MAX_REDIRECTS} redirects")


def _send(
    method: str,
    url: str,
    body: bytes | None,
    headers: Mapping[str, str],
    seconds: float,
    max_bytes: int,
    policy: Policy,
) -> tuple[Response, str]:
    """Return the response, and the target of a redirect or ""."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("only http and https URLs are supported")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    with Guard(msgspec.structs.replace(policy, seconds=seconds)) as guard:
        connection = _connection(url, guard, seconds)
        try:
            connection.send_request(method, target, headers.items(), body)
            response = connection.read_response()
            content = response.read_all(max_bytes) if max_bytes else b""
            return Response(response.status, content), _redirect_target(url, response)
        except InvalidRequest as error:
            raise OSError("invalid character in the URL or in a header") from error
        except BodyTooLong as error:
            raise OSError(f"response larger than {max_bytes} bytes") from error
        except (http.client.HTTPException, OSError) as error:
            # A guard that shuts its sockets down looks like a server that closed the connection.
            if guard.expired:
                raise TimeoutError(f"no response within {seconds:g} s") from error
            if isinstance(error, http.client.HTTPException):
                raise OSError(f"invalid or truncated HTTP response ({type(error).__name__})") from error
            raise
        finally:
            connection.close()


def _connection(url: str, guard: Guard, seconds: float) -> Connection:
    tls = tls_context() if url.lower().startswith("https:") else None
    # A proxy would resolve the name again, to addresses that the policy has not checked.
    proxy = "" if guard.policy.restricted else proxy_for(url, os.environ)
    try:
        return Connection(url, timeout=seconds, tls=tls, proxy=proxy, dial=guard.connect, watch=guard.watch)
    except Unsupported as error:
        raise OSError(f"{error.message} ({error.hint})") from error


def _redirect_target(url: str, response: http.client.HTTPResponse) -> str:
    location = (300 <= response.status < 400 and response.getheader("location")) or ""
    try:
        return urljoin(url, location) if location else ""
    except ValueError:
        return location


def _redact_url(target: str) -> str:
    """Return a URL without user and query, which may be secret."""
    if not target:
        return ""
    try:
        parts = urlsplit(target)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an invalid URL"
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"[:200]
