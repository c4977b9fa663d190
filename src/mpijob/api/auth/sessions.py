"""Who comes in: the one place that looks at every request before any verb is reached.

On one machine the server listens on loopback and hands a one-time token to the user's browser (`mpijob ui` prints
the address), as notebook servers do. The token is changed for a session cookie that scripts cannot read; everything
that changes something must also carry the session's CSRF word in a header, which no other site can send. The Host
header must be one of ours, or a page elsewhere could reach us under its own name (DNS rebinding).

On a cluster the server is behind the cluster's own login (`cluster_token`), which passes the user's token with
every request; the rest is the same.
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
CSRF_WORD = "csrf"  # of an upgrade's query
_SESSION_SECONDS = 12 * 3600.0
_TOKEN_SECONDS = 12 * 3600.0
_SIGN_IN_HINT = "open the address that `mpijob ui` printed; `mpijob ui` prints a new one"


class Principal(msgspec.Struct, frozen=True):
    """Who asks; `guest` is who they are at a cluster, where the server is not their own."""

    user: str
    csrf: str
    until: float
    guest: UserSession | None = None


class Authenticator:
    """What holds at every door: whose requests are looked at, and which changes come from our own page."""

    signs_in: Literal["address", "login"] = "address"
    sign_out = ""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)

    def check_host(self, request: HTTPConnection) -> None:
        """Refuse a request that was meant for another name, and one that names nobody."""
        host = request.headers.get("host", "").lower()
        if host not in self._hosts:
            raise Refused(421, f"unknown Host header: {host or 'none'!r}")

    def check_origin(self, request: HTTPConnection) -> None:
        """Refuse what another site sent."""
        origin = request.headers.get("origin")
        site = request.headers.get("sec-fetch-site", "same-origin")
        if site not in ("same-origin", "none") or (origin is not None and not self._ours(origin)):
            raise Refused(403, "cross-site request refused")

    def check_csrf(self, request: HTTPConnection, visitor: Principal) -> None:
        """Refuse a change that did not come from our own page."""
        self.check_origin(request)
        if not same(request.headers.get(CSRF_HEADER, ""), visitor.csrf):
            raise Refused(403, f"the header {CSRF_HEADER} is missing or wrong", "reload the page")

    def check_upgrade(self, request: HTTPConnection, visitor: Principal, word: str) -> None:
        """Refuse a WebSocket that our own page did not open; the query has the word, for it can carry no header."""
        if request.headers.get("origin") is None:
            raise Refused(403, "WebSocket upgrade without Origin header")
        self.check_origin(request)
        if not same(word, visitor.csrf):
            raise Refused(403, "the query parameter `csrf` is missing or wrong", "reload the page")

    def _ours(self, origin: str) -> bool:
        scheme, _, host = origin.partition("://")
        return scheme in ("http", "https") and host.lower() in self._hosts

    async def visitor(self, request: HTTPConnection) -> Principal:
        """Return who asks; refuse who is not signed in."""
        raise NotImplementedError

    def invite(self, token: str = "") -> str:
        """Return a token that lets one browser in."""
        raise Refused(404, "sign-in links are disabled; use the cluster login", "open the page's address")

    def enter(self, token: str) -> tuple[str, Principal]:
        """Change a one-time token for a session."""
        raise Refused(404, "sign-in links are disabled; use the cluster login", "open the page's address")

    def leave(self, request: HTTPConnection) -> None:
        """End the visitor's session."""


class CookieAuth(Authenticator):
    """The sessions of one server, and the tokens that open new ones."""

    def __init__(
        self, user: str, hosts: Iterable[str], *, cookie: str, now: Callable[[], float] = time.time
    ) -> None:
        super().__init__(hosts)
        self.user, self.cookie = user, cookie
        self._tokens: dict[str, float] = {}
        self._sessions: dict[str, Principal] = {}
        self._now = now

    def invite(self, token: str = "") -> str:
        """Return a token that lets one browser in, once, within half a day."""
        token = token or secrets.token_urlsafe(32)
        self._tokens[token] = self._now() + _TOKEN_SECONDS
        return token

    def enter(self, token: str) -> tuple[str, Principal]:
        """Change a one-time token for a session: its secret, for the cookie, and the visitor."""
        known = next((one for one in self._tokens if same(one, token)), None)
        if known is None or self._tokens.pop(known) < self._now():
            raise Refused(
                401, "this sign-in link was already used, or belongs to another server", _SIGN_IN_HINT
            )
        secret = secrets.token_urlsafe(32)
        visitor = Principal(self.user, secrets.token_urlsafe(24), self._now() + _SESSION_SECONDS)
        self._sessions[secret] = visitor
        return secret, visitor

    def leave(self, request: HTTPConnection) -> None:
        """End the visitor's session."""
        self._sessions.pop(request.cookies.get(self.cookie, ""), None)

    async def visitor(self, request: HTTPConnection) -> Principal:
        """Return who asks; refuse who is not signed in."""
        given = request.cookies.get(self.cookie, "")
        known = self._sessions.get(given)
        if known is None or known.until < self._now():
            self._sessions.pop(given, None)
            raise Refused(401, "you are not signed in", _SIGN_IN_HINT)
        return known


def same(one: str, other: str) -> bool:
    """Return whether two secrets are the same, in a time that does not tell how nearly."""
    return hmac.compare_digest(one.encode(), other.encode("utf-8", "replace"))
