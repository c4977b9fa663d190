"""Authentication by the token of the cluster's own login.

OpenShift's OAuth proxy passes the user's token on (`X-Forwarded-Access-Token`); programs send it themselves
(`Authorization: Bearer`). No header is trusted: the cluster is asked who the token belongs to, with the token
itself. The server keeps no sessions, so several replicas can serve one address.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from hashlib import sha256

from starlette.requests import HTTPConnection

from mpijob.api.auth.sessions import Authenticator, Principal
from mpijob.api.errors import Refused
from mpijob.client.multiuser.sessions import FRESH_SECONDS, NotSignedIn, SessionStore

FORWARDED = "x-forwarded-access-token"
_LONGEST = 16_384


class TokenAuth(Authenticator):
    """Accepts users whose token the cluster accepts."""

    signs_in = "login"

    def __init__(
        self, hosts: Iterable[str], store: SessionStore, *, sign_out: str = "/oauth/sign_out"
    ) -> None:
        super().__init__(hosts)
        self._store, self.sign_out = store, sign_out

    async def visitor(self, request: HTTPConnection) -> Principal:
        token = token_of(request)
        if not token:
            raise Refused(401, "you are not signed in", "open the web UI and sign in")
        try:
            session = await self._store.session(token)
        except NotSignedIn as error:
            raise Refused(401, error.message, error.hint) from error
        # The CSRF token is derived from the user's token: every replica computes the same, and no other site
        # can.
        word = hmac.new(token.encode(), b"mpijob csrf", sha256).hexdigest()
        return Principal(session.identity.user, word, session.known + FRESH_SECONDS, session)

    def leave(self, request: HTTPConnection) -> None:
        """Drop the user's cached session; the login itself ends at the proxy."""
        self._store.forget(token_of(request))


def token_of(request: HTTPConnection) -> str:
    """Return the token of a request, "" if there is none or if it cannot be one."""
    given = request.headers.get(FORWARDED, "")
    if not given:
        scheme, _, rest = request.headers.get("authorization", "").partition(" ")
        given = rest if scheme.lower() == "bearer" else ""
    given = given.strip()
    return (
        given
        if given.isascii() and given.isprintable() and " " not in given and len(given) <= _LONGEST
        else ""
    )
