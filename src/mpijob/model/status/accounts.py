"""Accounting records: what a job used and for how long, and queries for them."""

from __future__ import annotations

import msgspec

from mpijob.model.ref import JobRef
from mpijob.model.status.state import Phase, StepState

GIB = 1 << 30
HOUR = 3600.0


class Tally(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one worker used in one attempt, as sums over its samples."""

    worker: int
    attempt: int = 1
    first: float = 0.0
    last: float = 0.0
    cpu_seconds: float = 0.0
    byte_seconds: float = 0.0
    gpu_seconds: float = 0.0
    peak_bytes: int = 0
    samples: int = 0


class Account(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Accounting record of one job: owner, times, result, and resources allocated and used.

    Times are seconds since the epoch. `queued_seconds` is the time in the queue, `held_seconds` the time with
    allocated resources, over all attempts. Usage is known if `measured` is true. `program` is equal for jobs that run
    the same command, except for numbers in it.
    """

    ref: JobRef
    phase: Phase
    owner: str = ""
    queue: str = ""
    engine: str = ""
    mpi: str = ""
    image: str = ""
    program: str = ""
    labels: dict[str, str] = {}
    cost_labels: dict[str, str] = {}
    attempt: int = 1
    workers: int = 0
    ranks: int = 0
    nodes: tuple[str, ...] = ()

    created: float = 0.0
    started: float | None = None
    running: float | None = None
    ended: float | None = None
    deleted: float | None = None
    queued_seconds: float = 0.0
    held_seconds: float = 0.0

    exit_code: int | None = None
    reason: str = ""
    cause: str = ""
    message: str = ""

    cores: float = 0.0
    memory_bytes: int = 0
    gpus: int = 0
    worker_memory_bytes: int = 0
    core_hours: float = 0.0
    gib_hours: float = 0.0
    gpu_hours: float = 0.0
    measured: bool = False
    core_hours_used: float = 0.0
    gib_hours_used: float = 0.0
    gpu_hours_used: float = 0.0
    peak_bytes: int = 0
    steps: tuple[StepState, ...] = ()
    priority: int = 0
    deadline_seconds: float | None = None

    @property
    def counted(self) -> float:
        """The time that decides the month of a job's record: its end, or its start while it runs."""
        return self.ended or self.started or self.created


class AccountQuery(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Which accounts are wanted, newest first. Empty means all of them.

    `since` and `until` choose jobs that were there at some time between them, with `by_end` those that ended
    then. `namespace` "" means all; `uids` are jobs beside those of the `names`. `after` is the cursor of the page
    before.
    """

    namespace: str = ""
    names: tuple[str, ...] = ()
    uids: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    selector: str = ""
    queue: str = ""
    cause: str = ""
    program: str = ""
    since: float | None = None
    until: float | None = None
    by_end: bool = False
    limit: int = 100
    after: str = ""


class AccountPage(msgspec.Struct, frozen=True):
    """One page of accounting records, newest first; `after` is the cursor of the next page, empty at the end."""

    items: tuple[Account, ...]
    after: str = ""
