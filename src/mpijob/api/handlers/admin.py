"""Handler for the cluster overview, for administrators; it shows what the user's own permissions allow."""

from __future__ import annotations

from mpijob.api.request_context import RequestContext
from mpijob.client.admin.limits import Administration
from mpijob.client.threads import run_in_thread
from mpijob.model.status.overview import ClusterView


async def whole_cluster(context: RequestContext) -> ClusterView:
    return await run_in_thread(Administration(context.client.blocking).overview)
