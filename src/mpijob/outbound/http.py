"""One HTTP request to a service: no redirect is followed, so a token goes only to the server that it is for.

`download` has no token to lose, and follows redirects that stay within TLS.

Body and time are bounded. Error messages name host and status, never bytes of the body. Proxies of the environment
are used, unless the policy is restricted: a proxy would resolve the name again, out of our sight.
"""

from __future__ import annotations

import http.client
import os
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

import msgspec

from mpijob.errors import Unsupported
from mpijob.outbound.connection import Connection, InvalidRequest, TooLong, proxy_for, tls_context
from mpijob.outbound.guard import Guard
from mpijob.outbound.policy import ANYWHERE, Policy

_MOST_REDIRECTS = 5


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
    answer, target = _asked(method, url, body, headers or {}, seconds, most_bytes, policy)
    return answer._replace(location=_shown(target))


def download(url: str, *, seconds: float, most_bytes: int) -> Response:
    """Return what an address gives, wherever it leads within TLS; raise OSError where it gives nothing in time."""
    for _ in range(_MOST_REDIRECTS + 1):
        answer, target = _asked("GET", url, None, {}, seconds, most_bytes, ANYWHERE)
        if not target:
            return answer
        if not target.startswith("https://"):
            raise OSError(f"it leads to {_shown(target)}, which is not encrypted")
        url = target
    raise OSError("it leads from one address to the next and to no end")


def _asked(
    method: str,
    url: str,
    body: bytes | None,
    headers: Mapping[str, str],
    seconds: float,
    most_bytes: int,
    policy: Policy,
) -> tuple[Response, str]:
    """Return the answer, and where it redirects to."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("only addresses of http and https can be asked")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    with Guard(msgspec.structs.replace(policy, seconds=seconds)) as guard:
        connection = _connection(url, guard, seconds)
        try:
            connection.send_request(method, target, headers.items(), body)
            got = connection.response()
            content = got.whole(most_bytes) if most_bytes else b""
            return Response(got.status, content), _target(url, got)
        except InvalidRequest as error:
            raise OSError("its address, or a header for it, has letters that HTTP does not allow") from error
        except TooLong as error:
            raise OSError(f"it answers with more than {most_bytes} bytes") from error
        except (http.client.HTTPException, OSError) as error:
            if guard.expired:
                raise TimeoutError(f"it has not answered within {seconds:g} s") from error
            if isinstance(error, http.client.HTTPException):
                raise OSError(f"its answer is no HTTP, or broke off ({type(error).__name__})") from error
            raise
        finally:
            connection.close()


def _connection(url: str, guard: Guard, seconds: float) -> Connection:
    tls = tls_context() if url.lower().startswith("https:") else None
    proxy = "" if guard.policy.restricted else proxy_for(url, os.environ)
    try:
        return Connection(url, timeout=seconds, tls=tls, proxy=proxy, dial=guard.connect, watch=guard.watch)
    except Unsupported as error:
        raise OSError(f"{error.message} ({error.hint})") from error


def _target(url: str, got: http.client.HTTPResponse) -> str:
    to = (300 <= got.status < 400 and got.getheader("location")) or ""
    try:
        return urljoin(url, to) if to else ""
    except ValueError:
        return to


def _shown(target: str) -> str:
    """Return an address without its user and its query, which may be secret."""
    if not target:
        return ""
    try:
        parts = urlsplit(target)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "something that is no address"
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"[:200]
