"""The zone and rack of nodes, from the labels that the administrator or the cloud has set."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.backends.kubernetes.client.concurrent import together
from mpijob.formats.kubernetes import placement

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.client.api import Api
    from mpijob.model.status.records import NodePlace

MAX_NODES = 200


def read(api: Api, names: Sequence[str]) -> tuple[NodePlace, ...]:
    """Return the places of nodes; none if this user may not read nodes."""
    chosen = list(dict.fromkeys(names))[:MAX_NODES]
    if not chosen:
        return ()
    try:
        # The first alone: most users may not read nodes, and need not be refused for each.
        first = api.find(resources.NODE.path("", chosen[0]))
    except ApiError as error:
        if error.status in (401, 403):
            return ()
        raise
    others = together(
        {name: partial(api.find, resources.NODE.path("", name)) for name in chosen[1:]}, api.lanes()
    )
    found = {chosen[0]: first} | {name: result.value for name, result in others.items()}
    return tuple(
        placement.node_place(name, node["metadata"].get("labels") or {})
        for name, node in found.items()
        if node is not None
    )
