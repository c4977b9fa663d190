"""The groups of a job's workers in an annotation of its job object.

For display only: the runtime's replicated jobs decide (`trainjob`). But a reader may have no access to the runtime,
and a finished worker may have no pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from mpijob import codec
from mpijob.formats.kubernetes.metadata.well_known import GROUPS_ANNOTATION
from mpijob.model import MPIJob
from mpijob.model.platform.cluster_observation import MAX_WORKERS

# Trainer's name for the workers without a group.
NODE = "node"


class Workers(NamedTuple):
    """Workers of one group: its name, the number of the first one, their number, and the ranks of each."""

    group: str
    first: int
    number: int
    slots: int

    @property
    def replicated_job(self) -> str:
        return self.group or NODE

    def host(self, name: str, index: int) -> str:
        """Return the host name of a worker; `name` is the job object's."""
        return f"{name}-{self.replicated_job}-0-{index}"

    def hosts(self, name: str) -> tuple[str, ...]:
        """Return the host names of all workers of the group."""
        return tuple(self.host(name, index) for index in range(self.number))


def of(job: MPIJob) -> tuple[Workers, ...]:
    return tuple(Workers(part.group, part.first, part.job.workers, part.job.slots) for part in job.parts)


def written(job: MPIJob) -> dict[str, str]:
    """Return the annotation, empty for a job without groups."""
    return {GROUPS_ANNOTATION: msgspec.json.encode(of(job)).decode()} if job.groups else {}


def read(annotations: Mapping[str, Any]) -> tuple[Workers, ...]:
    """Return the groups in the annotation; none if it is missing or malformed."""
    text = annotations.get(GROUPS_ANNOTATION)
    if not text:
        return ()
    try:
        found = codec.decode(str(text), tuple[Workers, ...])
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ()
    first = 0
    # Users may write the annotation: numbers must be consistent and bounded.
    for workers in found:
        if (
            workers.first != first
            or not 0 < workers.number <= MAX_WORKERS
            or not 0 < workers.slots <= MAX_WORKERS
        ):
            return ()
        first += workers.number
    return found if first <= MAX_WORKERS else ()
