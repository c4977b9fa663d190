"""For whoever runs the cluster: all of it at a glance, as far as their own rights show it."""

from __future__ import annotations

from mpijob.api.request_context import RequestContext
from mpijob.client.admin.limits import Administration
from mpijob.client.threads import run_in_thread
from mpijob.model.status.overview import ClusterView


async def whole_cluster(ask: RequestContext) -> ClusterView:
    """Return all namespaces, queues, who had to make way, and which quotas are nearly consumed."""
    return await run_in_thread(Administration(ask.client.blocking).overview)
