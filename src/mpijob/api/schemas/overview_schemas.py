"""The values of the place at a glance; `overview_rows` makes them."""

from __future__ import annotations

import msgspec

from mpijob.api.schemas.job_schemas import JobRow
from mpijob.model import Facts


class Waiting(msgspec.Struct, frozen=True):
    """One waiting job: position, reason, estimated wait with its range, and the basis of the estimate."""

    row: JobRow
    position: int | None
    estimate_seconds: float | None
    range_seconds: tuple[float, float] | None = None
    basis: str = ""


class Share(msgspec.Struct, frozen=True):
    """Number of jobs of a user or namespace."""

    name: str
    jobs: int
    going: int
    failed: int
    busy_seconds: float


class Pattern(msgspec.Struct, frozen=True):
    """A cause of several failed jobs, with the newest of them."""

    cause: str
    jobs: int
    newest: JobRow


class Overview(msgspec.Struct, frozen=True):
    """Overview of an engine: free capacity, waiting jobs, usage and failures."""

    facts: Facts
    room: str
    waiting: tuple[Waiting, ...]
    counts: dict[str, int]
    owners: tuple[Share, ...]
    namespaces: tuple[Share, ...]
    patterns: tuple[Pattern, ...]
    waited_seconds: float | None
