"""A cluster's facts for one user and one job, in numbers and names.

Amounts have the cluster's own resource names (`nvidia.com/gpu`), because limits are set for those. Facts that could
not be read are in `unread`. The engine reads them, `admission` decides on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class Known(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Base class: frozen, keyword only."""


class Ask(Known, frozen=True):
    """Requests of the launcher, or of each of `count` workers of a group, by resource name."""

    role: str
    group: str = ""
    count: int = 1
    requests: Mapping[str, float] = {}
    limits: Mapping[str, float] = {}


class Ceiling(Known, frozen=True):
    """One hard limit of the namespace (ResourceQuota), and what the job would add to it."""

    quota: str
    resource: str
    hard: float
    used: float = 0.0
    wanted: float = 0.0

    @property
    def free(self) -> float:
        """What is left of it."""
        return max(0.0, self.hard - self.used)


class Bound(Known, frozen=True):
    """Limit of one resource for a container or pod in the namespace (LimitRange)."""

    name: str
    scope: str
    resource: str
    least: float | None = None
    most: float | None = None
    default: float | None = None
    ratio: float | None = None


class Share(Known, frozen=True):
    """Quota of one resource in one flavor of a queue: `most` if nothing else runs, `free` now."""

    flavor: str
    resource: str
    most: float
    free: float


class QueueFacts(Known, frozen=True):
    """A job queue: `shares` is None if its quota cannot be read."""

    name: str
    found: bool = True
    named: bool = True
    others: tuple[str, ...] = ()
    active: bool = True
    reason: str = ""
    behind: str = ""
    waiting: int = 0
    running: int = 0
    shares: tuple[Share, ...] | None = None


class NodeCapacity(Known, frozen=True):
    """Number of workers of this job that the nodes can run: now, and if nothing else ran.

    `unready` nodes would accept the job's pods but are not ready: they count for `ever` only.
    """

    now: int
    ever: int
    machines: int
    usable: int
    unready: int = 0
    passed_over: Mapping[str, int] = {}
    largest: Mapping[str, float] = {}
    grows: bool = False


class Flow(StrEnum):
    """A connection that the job's pods need."""

    SSH = "ssh"
    DATA = "data"
    DNS = "dns"


class Blocked(Known, frozen=True):
    """A connection that network policies of the namespace block, and these policies."""

    flow: Flow
    policies: tuple[str, ...]
    direction: str = ""


class Claim(Known, frozen=True):
    """A volume claim of the job; `modes` is empty if it does not exist."""

    name: str
    found: bool = True
    modes: tuple[str, ...] = ()


class Asked(StrEnum):
    """What a registry said about a job's image."""

    THERE = "there"
    MISSING = "missing"
    UNKNOWN = "unknown"


class ImageAnswer(Known, frozen=True):
    """Whether a registry has an image.

    `why` is the registry's name, or the reason why it is unknown. `held` is true if a node already has the image,
    `refuse` if the user wants jobs with missing images to be refused.
    """

    image: str
    asked: Asked
    why: str = ""
    held: bool = False
    refuse: bool = False


class Unread(Known, frozen=True):
    """Something that could not be read, why, and what is unknown as a result."""

    what: str
    why: str
    unknown: str


class ClusterFacts(Known, frozen=True):
    """Everything read from the cluster for one job.

    `lacks` lists missing permissions, such as `create trainjobs.trainer.kubeflow.org`; `engines_lack` lists the
    missing permissions of each installed engine. `pod_security` is the level that the namespace enforces, or empty.
    `priority_classes` is None if they could not be read.
    """

    namespace: str
    found: bool = True
    lacks: tuple[str, ...] = ()
    engines_lack: Mapping[str, tuple[str, ...]] = {}
    asks: tuple[Ask, ...] = ()
    ceilings: tuple[Ceiling, ...] = ()
    bounds: tuple[Bound, ...] = ()
    queue: QueueFacts | None = None
    room: NodeCapacity | None = None
    blocked: tuple[Blocked, ...] = ()
    claims: tuple[Claim, ...] = ()
    priority_classes: tuple[str, ...] | None = None
    pod_security: str = ""
    inline_nfs: bool = True
    mesh: bool = False
    image: ImageAnswer | None = None
    unread: tuple[Unread, ...] = ()
