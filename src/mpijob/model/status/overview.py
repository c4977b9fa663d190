"""An overview of a cluster for administrators: namespaces, jobs, quotas, and queues."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class View(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The root of the values here."""


class Line(View, frozen=True):
    """One limit of one resource: its source, its total, and how much is used."""

    source: str
    resource: str
    used: float
    most: float

    @property
    def percent(self) -> float:
        """How much of it is in use; of nothing, all is."""
        return 100.0 * self.used / self.most if self.most > 0 else (100.0 if self.used else 0.0)


class NamespaceView(View, frozen=True):
    """One namespace: number of jobs by phase, its GPUs, and its limits."""

    name: str
    jobs: Mapping[str, int] = {}
    gpus: float = 0.0
    lines: tuple[Line, ...] = ()
    queues: tuple[str, ...] = ()

    @property
    def running(self) -> int:
        """How many jobs hold resources."""
        return sum(self.jobs.get(phase, 0) for phase in ("Pending", "Initializing", "Running"))

    @property
    def waiting(self) -> int:
        """How many jobs wait."""
        return self.jobs.get("Queued", 0)


class QueueView(View, frozen=True):
    """One ClusterQueue: quota, usage, and number of waiting and running jobs."""

    name: str
    cohort: str = ""
    active: bool = True
    waiting: int = 0
    running: int = 0
    lines: tuple[Line, ...] = ()
    fair_share: float | None = None


class Preemption(View, frozen=True):
    """A preempted job: when, by whom, why, and when it resumes."""

    namespace: str
    job: str
    time: float = 0.0
    message: str = ""


class Alert(View, frozen=True):
    """A limit that is nearly or completely used."""

    namespace: str
    message: str
    percent: float


class ClusterView(View, frozen=True):
    """The whole cluster; `gpus` is the number of allocatable GPUs. `unread` lists what could not be read."""

    namespaces: tuple[NamespaceView, ...] = ()
    queues: tuple[QueueView, ...] = ()
    gpus: float = 0.0
    gpus_held: float = 0.0
    preemptions: tuple[Preemption, ...] = ()
    alerts: tuple[Alert, ...] = ()
    unread: tuple[str, ...] = ()
