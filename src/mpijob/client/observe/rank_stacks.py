"""Asking an engine where a job's ranks stand, written once for both clients; `observation.stacks` says it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mpijob.client.observe.logs import refuse_absent
from mpijob.model import LogQuery
from mpijob.observation.health import stacks as grouping

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend
    from mpijob.model import JobRef, StackReport

_ON_THIS_MACHINE = ("local", "memory")


def stacks(ref: JobRef, backend: Backend, ranks: Iterable[int], bring: bool = False) -> StackReport:
    """Return where the ranks stand, grouped; raise NotFound for a rank that the job does not have."""
    wanted = tuple(ranks)
    if wanted:
        refuse_absent(backend.get(ref), LogQuery(ranks=wanted))
    found = backend.stacks(ref, wanted, bring=bring)
    return grouping.report(found, "local" if backend.name in _ON_THIS_MACHINE else "kubernetes")
