"""Zone and rack of a job's nodes, from the engine and from the record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mpijob.backends.capabilities import SupportsNodePlaces
from mpijob.formats.kubernetes import placement

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend
    from mpijob.model import JobRef, JobState
    from mpijob.model.status.records import NodePlace


def read(backend: Backend, ref: JobRef) -> tuple[NodePlace, ...]:
    """Return the zone and rack of each node of a job, if one of them is known."""
    engine = backend.capability(SupportsNodePlaces)
    if engine is None:
        return ()
    state = backend.get(ref)
    wanted = dict.fromkeys(nodes_of(state))
    # The record first: many users may read the record of their jobs, but no nodes.
    found = {one.name: one for one in _recorded(backend, state.ref) if one.name in wanted}
    missing = [name for name in wanted if name not in found]
    if missing and not state.deleted:
        found |= {one.name: one for one in engine.node_places(missing)}
    return tuple(sorted(one for one in found.values() if one.zone or one.rack))


def nodes_of(state: JobState) -> Iterator[str]:
    names = [one.node for one in state.workers] + [one.node for one in state.ranks]
    names += [] if state.launcher is None else [state.launcher.node]
    yield from filter(None, names)


def _recorded(backend: Backend, ref: JobRef) -> Iterator[NodePlace]:
    past = backend.history()
    for fact in () if past is None else past.facts(ref, "node"):
        yield placement.node_place(fact.name, fact.data.get("labels") or {})
