"""Handler for the audit log: all entries for administrators, own entries for other users."""

from __future__ import annotations

import msgspec

from mpijob.api.request_context import RequestContext
from mpijob.api.schemas.job_schemas import Limit
from mpijob.model.status.audit import AuditEvent, AuditQuery


class AuditAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which entries are wanted; times are seconds since the epoch."""

    user: tuple[str, ...] = ()
    verb: tuple[str, ...] = ()
    job: tuple[str, ...] = ()
    namespace: str = ""
    since: float | None = None
    until: float | None = None
    refused: bool = False
    limit: Limit = 200


class AuditList(msgspec.Struct, frozen=True):
    """Audit entries, oldest first; `own` is true if only the user's own actions are included."""

    items: tuple[AuditEvent, ...]
    own: bool = False


async def entries(context: RequestContext) -> AuditList:
    me, asked = await context.client.whoami(), context.query
    own = not await context.administrates()
    query = AuditQuery(
        users=(me.user,) if own else asked.user,
        verbs=asked.verb,
        jobs=asked.job,
        namespace=asked.namespace,
        since=asked.since,
        until=asked.until,
        refused=asked.refused,
        limit=asked.limit,
    )
    return AuditList(await context.client.audit(query), own)
