"""What a cluster says about itself to one user and for one job, in numbers and names.

Its engine reads these values; `admission` judges over them and says every sentence about them. Amounts
go by the cluster's own resource names (`nvidia.com/gpu`), because limits are set for those. What could
not be read is named in `unread`, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class Known(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The root of the values here: frozen, keyword only."""


class Ask(Known, frozen=True):
    """What one launcher or one worker asks for, by resource name."""

    role: str
    requests: Mapping[str, float] = {}
    limits: Mapping[str, float] = {}


class Ceiling(Known, frozen=True):
    """One line of a namespace's hard limits, and what this job would add to it."""

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
    """What a namespace allows one container, or one pod, of one resource."""

    name: str
    scope: str
    resource: str
    least: float | None = None
    most: float | None = None
    default: float | None = None
    ratio: float | None = None


class Share(Known, frozen=True):
    """What a queue may give of one resource in one flavour: `most` when all others are idle, `free` now."""

    flavor: str
    resource: str
    most: float
    free: float


class QueueFacts(Known, frozen=True):
    """A queue for jobs: `shares` is None where its quota cannot be read."""

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
    """How many workers of this job the machines could hold: now, and if nothing else ran."""

    now: int
    ever: int
    machines: int
    usable: int
    passed_over: Mapping[str, int] = {}
    largest: Mapping[str, float] = {}
    grows: bool = False


class Flow(StrEnum):
    """What a job's pods must be able to reach."""

    SSH = "ssh"
    DATA = "data"
    DNS = "dns"


class Blocked(Known, frozen=True):
    """A way that the namespace's network policies leave closed, and the policies that close it."""

    flow: Flow
    policies: tuple[str, ...]
    direction: str = ""


class Claim(Known, frozen=True):
    """A volume claim that the job names; `modes` is empty when it is not there."""

    name: str
    found: bool = True
    modes: tuple[str, ...] = ()


class Asked(StrEnum):
    """What a registry said about a job's image."""

    THERE = "there"
    MISSING = "missing"
    UNKNOWN = "unknown"


class ImageAnswer(Known, frozen=True):
    """The answer of a registry to whether it has an image.

    `why` is the registry's name, or why there is no answer. `held` is True when a machine of the cluster has the
    image already, `refuse` when the user wants a job whose image is missing to be refused.
    """

    image: str
    asked: Asked
    why: str = ""
    held: bool = False
    refuse: bool = False


class Unread(Known, frozen=True):
    """Something that could not be read, why, and what therefore nobody knows."""

    what: str
    why: str
    unknown: str


class ClusterFacts(Known, frozen=True):
    """Everything that was read for one job.

    `lacks` names rights as `create trainjobs.trainer.kubeflow.org`; `engines_lack` says for each engine
    that is there which rights are missing to use it. `pod_security` is the level that the namespace
    enforces, "" for none. `priority_classes` is None where they could not be read.
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
