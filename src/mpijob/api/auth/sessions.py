"""Authentication: every request passes here before its handler.

On one machine the server listens on loopback and prints a one-time token for the user's browser, as notebook
servers do. The token is exchanged for a session cookie that scripts cannot read. Every request that changes
something must also carry the session's CSRF token in a header, which no other site can send. The Host header
must be one of the server's names; otherwise another site could reach it under its own name (DNS rebinding).

On a cluster the server is behind the cluster's own login (`cluster_token`), which passes the user's token
with every request; the other checks are the same.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec
from starlette.requests import HTTPConnection

from mpijob.api.errors import Refused
from mpijob.client.multiuser.sessions import UserSession

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
CSRF_HEADER = "x-mpijob-csrf"
# In the query of a WebSocket upgrade.
CSRF_WORD = "csrf"
_SESSION_SECONDS = 12 * 3600.0
_TOKEN_SECONDS = 12 * 3600.0
_SIGN_IN_HINT = "open the address that `mpijob ui` printed; `mpijob ui` prints a new one"


class Principal(msgspec.Struct, frozen=True):
    """The user of a request; `guest` is their session at a cluster, on a server of many users."""

    user: str
    csrf: str
    until: float
    guest: UserSession | None = None


class Authenticator:
    """The checks that all servers share: Host, origin and CSRF token."""

    signs_in: Literal["address", "login"] = "address"
    sign_out = ""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)

    def check_host(self, request: HTTPConnection) -> None:
        host = request.headers.get("host", "").lower()
        if host not in self._hosts:
            raise Refused(421, f"unknown Host header: {host or 'none'!r}")

    def check_origin(self, request: HTTPConnection) -> None:
        """Raise Refused for a request from another site."""
        origin = request.headers.get("origin")
        # Older browsers send only Origin, and programs neither: a missing header proves nothing. Cookies are
        # SameSite=Strict anyway.
        site = request.headers.get("sec-fetch-site", "same-origin")
        if site not in ("same-origin", "none") or (origin is not None and not self._ours(origin)):
            raise Refused(403, "cross-site request refused")

    def check_csrf(self, request: HTTPConnection, visitor: Principal) -> None:
        """Raise Refused for a change that the server's own page did not send."""
        self.check_origin(request)
        if not same(request.headers.get(CSRF_HEADER, ""), visitor.csrf):
            raise Refused(403, f"the header {CSRF_HEADER} is missing or wrong", "reload the page")

    def check_upgrade(self, request: HTTPConnection, visitor: Principal, word: str) -> None:
        """Raise Refused for a WebSocket that the server's own page did not open."""
        # Browsers always send an Origin here, but let a page set no headers: so the token is in the query.
        if request.headers.get("origin") is None:
            raise Refused(403, "WebSocket upgrade without Origin header")
        self.check_origin(request)
        if not same(word, visitor.csrf):
            raise Refused(403, "the query parameter `csrf` is missing or wrong", "reload the page")

    def _ours(self, origin: str) -> bool:
        scheme, _, host = origin.partition("://")
        return scheme in ("http", "https") and host.lower() in self._hosts

    async def visitor(self, request: HTTPConnection) -> Principal:
        """Return the user of a request; raise Refused if they are not signed in."""
        raise NotImplementedError

    def invite(self, token: str = "") -> str:
        """Return a one-time token for a browser."""
        raise Refused(404, "sign-in links are disabled; use the cluster login", "open the page's address")

    def enter(self, token: str) -> tuple[str, Principal]:
        """Exchange a one-time token for a session: its secret, for the cookie, and the user."""
        raise Refused(404, "sign-in links are disabled; use the cluster login", "open the page's address")

    def leave(self, request: HTTPConnection) -> None:
        """End the user's session."""


class CookieAuth(Authenticator):
    """The sessions and one-time tokens of a server of one user."""

    def __init__(
        self, user: str, hosts: Iterable[str], *, cookie: str, now: Callable[[], float] = time.time
    ) -> None:
        super().__init__(hosts)
        self.user, self.cookie = user, cookie
        self._tokens: dict[str, float] = {}
        self._sessions: dict[str, Principal] = {}
        self._now = now

    def invite(self, token: str = "") -> str:
        token = token or secrets.token_urlsafe(32)
        self._tokens[token] = self._now() + _TOKEN_SECONDS
        return token

    def enter(self, token: str) -> tuple[str, Principal]:
        known = next((valid for valid in self._tokens if same(valid, token)), None)
        if known is None or self._tokens.pop(known) < self._now():
            raise Refused(
                401, "this sign-in link was already used, or belongs to another server", _SIGN_IN_HINT
            )
        secret = secrets.token_urlsafe(32)
        visitor = Principal(self.user, secrets.token_urlsafe(24), self._now() + _SESSION_SECONDS)
        self._sessions[secret] = visitor
        return secret, visitor

    def leave(self, request: HTTPConnection) -> None:
        self._sessions.pop(request.cookies.get(self.cookie, ""), None)

    async def visitor(self, request: HTTPConnection) -> Principal:
        given = request.cookies.get(self.cookie, "")
        known = self._sessions.get(given)
        if known is None or known.until < self._now():
            self._sessions.pop(given, None)
            raise Refused(401, "you are not signed in", _SIGN_IN_HINT)
        return known


def same(one: str, other: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(one.encode(), other.encode("utf-8", "replace"))
