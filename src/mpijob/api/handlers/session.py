"""Coming in and going: sessions, what this place can do, the document of the API itself."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from mpijob import __version__
from mpijob.api.request_context import JSON, RequestContext
from mpijob.api.schemas.job_schemas import Capabilities, Health, Session, SignInLink
from mpijob.model import Phase
from mpijob.settings import CLUSTER


async def sign_in(ask: RequestContext) -> Response:
    """Change the one-time token for a session."""
    gate = ask.room.gate
    secret, visitor = gate.enter(ask.body.token)
    cookie = getattr(gate, "cookie", "")
    answer = Response(msgspec.json.encode(Session(visitor.user, visitor.csrf)), media_type=JSON)
    secure = ask.request.url.scheme == "https"
    answer.set_cookie(cookie, secret, httponly=True, samesite="strict", secure=secure, path="/")
    return answer


async def who(ask: RequestContext) -> Session:
    """Return who is signed in."""
    assert ask.visitor is not None
    return Session(ask.visitor.user, ask.visitor.csrf)


async def sign_out(ask: RequestContext) -> Response:
    """End the session."""
    ask.room.gate.leave(ask.request)
    answer = Response(status_code=204)
    if cookie := getattr(ask.room.gate, "cookie", ""):
        answer.delete_cookie(cookie, path="/")
    return answer


async def link(ask: RequestContext) -> SignInLink:
    """Return a new one-time token, for another browser."""
    return SignInLink(ask.room.gate.invite())


async def health(ask: RequestContext) -> Health:
    """Say that the server answers."""
    return Health()


async def capabilities(ask: RequestContext) -> Capabilities:
    """Return what this place can do."""
    client = ask.client
    me = await client.whoami()
    return Capabilities(
        version=__version__,
        engine=client.backend.name,
        namespace=client.namespace,
        user=me.user,
        administrator=await ask.administrates(),
        cluster=client.settings.engine == CLUSTER,
        max_workers=client.settings.max_workers,
        phases=tuple(phase.value for phase in Phase),
        signs_in=ask.room.gate.signs_in,
        sign_out=ask.room.gate.sign_out,
        keeps_templates=ask.guest is None,
    )
