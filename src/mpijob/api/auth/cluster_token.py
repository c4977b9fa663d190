"""The door of a server at a cluster: people come with the token of the cluster's own login.

OpenShift's OAuth proxy stands before the server and hands the token on (`X-Forwarded-Access-Token`); programs send
it themselves (`Authorization: Bearer`). No header is believed: the cluster is asked who the token belongs to, with
the token itself. The server keeps no sessions, so several of them can stand behind one address: the CSRF word is
made from the token, which no other site knows.
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
    """Lets in whom the cluster knows."""

    signs_in = "login"

    def __init__(
        self, hosts: Iterable[str], guests: SessionStore, *, sign_out: str = "/oauth/sign_out"
    ) -> None:
        super().__init__(hosts)
        self._guests, self.sign_out = guests, sign_out

    async def visitor(self, request: HTTPConnection) -> Principal:
        """Return who asks; refuse whom the cluster does not know."""
        token = token_of(request)
        if not token:
            raise Refused(401, "you are not signed in", "open the web UI and sign in")
        try:
            guest = await self._guests.guest(token)
        except NotSignedIn as error:
            raise Refused(401, error.message, error.hint) from error
        word = hmac.new(token.encode(), b"mpijob csrf", sha256).hexdigest()
        return Principal(guest.identity.user, word, guest.known + FRESH_SECONDS, guest)

    def leave(self, request: HTTPConnection) -> None:
        """Forget who leaves; the login itself is ended where it was made."""
        self._guests.forget(token_of(request))


def token_of(request: HTTPConnection) -> str:
    """Return the token that a request brings, "" for none and for what cannot be one."""
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
