"""Where nodes stand: the labels of zone and rack that a cluster's administrator or cloud has put onto them."""

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

MOST_NODES = 200


def read(api: Api, names: Sequence[str]) -> tuple[NodePlace, ...]:
    """Return the places of nodes; none where this user may not read nodes, as most users may not."""
    chosen = list(dict.fromkeys(names))[:MOST_NODES]
    if not chosen:
        return ()
    try:
        first = api.find(resources.NODE.path("", chosen[0]))
    except ApiError as error:
        if error.status in (401, 403):
            return ()
        raise
    others = together(
        {name: partial(api.find, resources.NODE.path("", name)) for name in chosen[1:]}, api.lanes()
    )
    found = {chosen[0]: first} | {name: answer.value for name, answer in others.items()}
    return tuple(
        placement.node_place(name, node["metadata"].get("labels") or {})
        for name, node in found.items()
        if node is not None
    )
