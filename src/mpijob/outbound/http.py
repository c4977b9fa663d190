"""One HTTP request to a service: no redirect is followed, so a token goes only to the server that it is for.

Body and time are bounded. Error messages name host and status, never bytes of the body. Proxies of the environment
are used, unless the policy is restricted: a proxy would resolve the name again, out of our sight.
"""

from __future__ import annotations

import base64
import http.client
import ssl
import urllib.request
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

import msgspec

from mpijob.outbound.guard import Guard
from mpijob.outbound.policy import ANYWHERE, Policy

_PIECE = 64 << 10


class Response(NamedTuple):
    """What a server has answered; `location` is where a redirect points to, without its query."""

    status: int
    body: bytes
    location: str = ""

    @property
    def ok(self) -> bool:
        """Whether it is what was asked for."""
        return 200 <= self.status < 300

    def __str__(self) -> str:
        redirect = f" (a redirect to {self.location}, which is not followed)" if self.location else ""
        return f"answered {self.status}{redirect}"


def request(
    method: str,
    url: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    seconds: float,
    most_bytes: int,
    policy: Policy = ANYWHERE,
) -> Response:
    """Return the answer of a server; raise OSError where there is none, or a larger one, or none in time.

    With `most_bytes=0` the body is not read.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("only addresses of http and https can be asked")
    with Guard(msgspec.structs.replace(policy, seconds=seconds)) as guard:
        proxy = None if policy.restricted else _proxy(parts)
        connection = _connection(parts, proxy, guard, seconds)
        try:
            connection.request(method, _target(parts, proxy), body, _headers(parts, proxy, headers or {}))
            got = connection.getresponse()
            content = _body(got, most_bytes) if most_bytes else b""
            return Response(got.status, content, _location(url, got))
        except http.client.HTTPException as error:
            raise OSError(f"its answer is no HTTP, or broke off ({type(error).__name__})") from error
        except OSError as error:
            if guard.expired:
                raise TimeoutError(f"it has not answered within {seconds:g} s") from error
            raise
        finally:
            connection.close()


def _body(got: http.client.HTTPResponse, most_bytes: int) -> bytes:
    pieces, size, length = [], 0, got.length
    while piece := got.read(min(_PIECE, most_bytes + 1 - size)):
        pieces.append(piece)
        size += len(piece)
        if size > most_bytes:
            raise OSError(f"it answers with more than {most_bytes} bytes")
    if length is not None and size < length:
        raise OSError("it broke off in the middle of its answer")
    return b"".join(pieces)


def _location(url: str, got: http.client.HTTPResponse) -> str:
    to = got.getheader("location")
    if not 300 <= got.status < 400 or not to:
        return ""
    try:
        parts = urlsplit(urljoin(url, to))
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "something that is no address"
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"[:200]


# -- connections -------------------------------------------------------------------------------------
def _proxy(parts: SplitResult) -> SplitResult | None:
    found = urllib.request.getproxies().get(parts.scheme)
    if not found or urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    return urlsplit(found if "://" in found else f"http://{found}")


def _connection(
    parts: SplitResult, proxy: SplitResult | None, guard: Guard, seconds: float
) -> http.client.HTTPConnection:
    default = 443 if parts.scheme == "https" else 80
    host, port = parts.hostname or "", parts.port or default
    at = (proxy.hostname or "", proxy.port or 80) if proxy else (host, port)
    if parts.scheme == "http":
        return _Plain(guard, *at, timeout=seconds)
    made = _Secure(guard, *at, timeout=seconds, context=ssl.create_default_context())
    if proxy:
        made.set_tunnel(host, port, _authorization(proxy))
    return made


def _target(parts: SplitResult, proxy: SplitResult | None) -> str:
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return f"http://{parts.netloc}{path}" if proxy and parts.scheme == "http" else path


def _headers(parts: SplitResult, proxy: SplitResult | None, given: Mapping[str, str]) -> dict[str, str]:
    sent = {"Host": parts.netloc.rpartition("@")[2], **given}
    return sent | _authorization(proxy) if proxy and parts.scheme == "http" else sent


def _authorization(proxy: SplitResult) -> dict[str, str]:
    if not proxy.username:
        return {}
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}


class _Plain(http.client.HTTPConnection):
    def __init__(self, guard: Guard, host: str, port: int, **more: Any) -> None:
        super().__init__(host, port, **more)
        self._create_connection = _connector(guard)  # http.client's seam, below TLS and proxy tunnels


class _Secure(http.client.HTTPSConnection):
    def __init__(self, guard: Guard, host: str, port: int, **more: Any) -> None:
        super().__init__(host, port, **more)
        self._create_connection = _connector(guard)


def _connector(guard: Guard) -> Any:
    return lambda address, timeout, source: guard.connect(address[0], address[1], timeout)
