"""The groups of a job's workers, as its job object tells them to whoever shows it: display, and never authority.

Which pods there are is said by the runtime's replicated jobs (`trainjob`); a reader of states may not see a runtime,
and a worker that has ended has no pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from mpijob import codec
from mpijob.formats.kubernetes.metadata.well_known import GROUPS_ANNOTATION
from mpijob.model import MPIJob
from mpijob.model.platform.cluster_observation import MAX_WORKERS

# Trainer's name for workers of no group.
NODE = "node"


class Workers(NamedTuple):
    """Workers of one group: its name, the first one's number, how many there are, and the ranks of each."""

    group: str
    first: int
    number: int
    slots: int

    @property
    def replicated_job(self) -> str:
        """The name of the replicated job that makes their pods."""
        return self.group or NODE

    def host(self, name: str, index: int) -> str:
        """Return the name of one of their pods as a host, where the job object is called so."""
        return f"{name}-{self.replicated_job}-0-{index}"

    def hosts(self, name: str) -> tuple[str, ...]:
        """Return the names of all their pods as hosts."""
        return tuple(self.host(name, index) for index in range(self.number))


def of(job: MPIJob) -> tuple[Workers, ...]:
    """Return the workers of a job."""
    return tuple(Workers(part.group, part.first, part.job.workers, part.job.slots) for part in job.parts)


def written(job: MPIJob) -> dict[str, str]:
    """Return the annotation of a job with groups; nothing for any other."""
    return {GROUPS_ANNOTATION: msgspec.json.encode(of(job)).decode()} if job.groups else {}


def read(annotations: Mapping[str, Any]) -> tuple[Workers, ...]:
    """Return what the annotation tells; nothing where there is none, or none that makes sense."""
    text = annotations.get(GROUPS_ANNOTATION)
    if not text:
        return ()
    try:
        found = codec.decode(str(text), tuple[Workers, ...])
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ()
    first = 0
    # Anybody may write it.
    for workers in found:
        if (
            workers.first != first
            or not 0 < workers.number <= MAX_WORKERS
            or not 0 < workers.slots <= MAX_WORKERS
        ):
            return ()
        first += workers.number
    return found if first <= MAX_WORKERS else ()
