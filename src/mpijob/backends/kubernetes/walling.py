"""A job's network policy, made for a job that is there already: whoever tends jobs calls this for each.

The client writes the same policy before the job where its user may (`planner`, `submitting`); where he may not,
this is how the job gets it. It is owned by the job from the first moment, and doing it twice does it once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mpijob.backends.kubernetes import kinds, owning
from mpijob.backends.kubernetes.api import Api, ApiError
from mpijob.dialects import isolation


def ensure(
    api: Api,
    job: Mapping[str, Any],
    runtime: Mapping[str, Any] | None = None,
    *,
    monitoring: Iterable[str] = (),
) -> bool:
    """Let a TrainJob or MPIJob have its policy; return whether one was made now."""
    policy = isolation.of_object(job, runtime, monitoring=monitoring)
    if policy is None or job["metadata"].get("deletionTimestamp"):
        return False
    namespace, name = policy["metadata"]["namespace"], policy["metadata"]["name"]
    if api.find(kinds.NETWORK_POLICY.path(namespace, name)) is not None:
        return False
    policy["metadata"]["ownerReferences"] = [owning.reference(job)]
    try:
        api.create(kinds.NETWORK_POLICY.path(namespace), policy)
    except ApiError as error:
        if error.status == 409:  # somebody was faster: the client, or another of us
            return False
        raise
    return True
