"""Who comes in: the one place that looks at every request before any verb is reached.

On one machine the server listens on loopback and hands a one-time token to the user's browser (`mpijob ui` prints
the address), as notebook servers do. The token is changed for a session cookie that scripts cannot read; everything
that changes something must also carry the session's CSRF word in a header, which no other site can send. The Host
header must be one of ours, or a page elsewhere could reach us under its own name (DNS rebinding).
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Iterable

import msgspec
from starlette.requests import HTTPConnection

from mpijob.api.problems import Refused

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
CSRF_HEADER = "x-mpijob-csrf"
_SESSION_SECONDS = 12 * 3600.0
_TOKEN_SECONDS = 12 * 3600.0
_SIGN_IN_HINT = "open the address that `mpijob ui` printed; `mpijob ui` prints a new one"


class Visitor(msgspec.Struct, frozen=True):
    """One signed-in browser."""

    user: str
    csrf: str
    until: float


class Gate:
    """The sessions of one server, and the tokens that open new ones."""

    def __init__(
        self, user: str, hosts: Iterable[str], *, cookie: str, now: Callable[[], float] = time.time
    ) -> None:
        self.user, self.cookie = user, cookie
        self._hosts = frozenset(host.lower() for host in hosts)
        self._tokens: dict[str, float] = {}
        self._sessions: dict[str, Visitor] = {}
        self._now = now

    def invite(self, token: str = "") -> str:
        """Return a token that lets one browser in, once, within half a day."""
        token = token or secrets.token_urlsafe(32)
        self._tokens[token] = self._now() + _TOKEN_SECONDS
        return token

    def enter(self, token: str) -> tuple[str, Visitor]:
        """Change a one-time token for a session: its secret, for the cookie, and the visitor."""
        known = next((one for one in self._tokens if _same(one, token)), None)
        if known is None or self._tokens.pop(known) < self._now():
            raise Refused(
                401, "this sign-in address was used already, or is not of this server", _SIGN_IN_HINT
            )
        secret = secrets.token_urlsafe(32)
        visitor = Visitor(self.user, secrets.token_urlsafe(24), self._now() + _SESSION_SECONDS)
        self._sessions[secret] = visitor
        return secret, visitor

    def leave(self, request: HTTPConnection) -> None:
        """End the visitor's session."""
        self._sessions.pop(request.cookies.get(self.cookie, ""), None)

    def check_host(self, request: HTTPConnection) -> None:
        """Refuse a request that was meant for another name, and one that names nobody."""
        host = request.headers.get("host", "").lower()
        if host not in self._hosts:
            raise Refused(421, f"this server does not answer for {host or 'a request without Host'!r}")

    def check_origin(self, request: HTTPConnection) -> None:
        """Refuse what another site sent."""
        origin = request.headers.get("origin")
        site = request.headers.get("sec-fetch-site", "same-origin")
        if site not in ("same-origin", "none") or (origin is not None and not self._ours(origin)):
            raise Refused(403, "another site sent this request")

    def visitor(self, request: HTTPConnection) -> Visitor:
        """Return who asks; refuse who is not signed in."""
        given = request.cookies.get(self.cookie, "")
        known = self._sessions.get(given)
        if known is None or known.until < self._now():
            self._sessions.pop(given, None)
            raise Refused(401, "you are not signed in", _SIGN_IN_HINT)
        return known

    def check_csrf(self, request: HTTPConnection, visitor: Visitor) -> None:
        """Refuse a change that did not come from our own page."""
        self.check_origin(request)
        if not _same(request.headers.get(CSRF_HEADER, ""), visitor.csrf):
            raise Refused(403, f"the header {CSRF_HEADER} is missing or wrong", "reload the page")

    def _ours(self, origin: str) -> bool:
        scheme, _, host = origin.partition("://")
        return scheme in ("http", "https") and host.lower() in self._hosts


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode("utf-8", "replace"))
