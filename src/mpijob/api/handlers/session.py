"""Handlers for sessions, capabilities of the server, and health."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from mpijob import __version__
from mpijob.api.request_context import JSON, RequestContext
from mpijob.api.schemas.job_schemas import Capabilities, Health, Session, SignInLink
from mpijob.model import Phase
from mpijob.settings import CLUSTER


async def sign_in(context: RequestContext) -> Response:
    gate = context.room.gate
    secret, visitor = gate.enter(context.body.token)
    cookie = getattr(gate, "cookie", "")
    answer = Response(msgspec.json.encode(Session(visitor.user, visitor.csrf)), media_type=JSON)
    secure = context.request.url.scheme == "https"
    answer.set_cookie(cookie, secret, httponly=True, samesite="strict", secure=secure, path="/")
    return answer


async def who(context: RequestContext) -> Session:
    assert context.visitor is not None
    return Session(context.visitor.user, context.visitor.csrf)


async def sign_out(context: RequestContext) -> Response:
    context.room.gate.leave(context.request)
    answer = Response(status_code=204)
    if cookie := getattr(context.room.gate, "cookie", ""):
        answer.delete_cookie(cookie, path="/")
    return answer


async def link(context: RequestContext) -> SignInLink:
    return SignInLink(context.room.gate.invite())


async def health(context: RequestContext) -> Health:
    return Health()


async def capabilities(context: RequestContext) -> Capabilities:
    client = context.client
    me = await client.whoami()
    return Capabilities(
        version=__version__,
        engine=client.backend.name,
        namespace=client.namespace,
        user=me.user,
        administrator=await context.administrates(),
        cluster=client.settings.engine == CLUSTER,
        max_workers=client.settings.max_workers,
        phases=tuple(phase.value for phase in Phase),
        signs_in=context.room.gate.signs_in,
        sign_out=context.room.gate.sign_out,
        keeps_templates=context.guest is None,
    )
