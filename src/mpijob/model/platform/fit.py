"""Would a job start now, wait, or never fit: the answer, and what a broker that sees more than a user adds to facts."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from mpijob.model.platform.cluster import NodeCapacity, QueueFacts
from mpijob.model.spec.amounts import Amounts


class Verdict(StrEnum):
    """The four answers."""

    NOW = "fits now"
    WAITS = "waits"
    NEVER = "can never fit"
    UNKNOWN = "not known"


class Seen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a broker hands over for one job of one user: numbers, no names of others.

    `position` is the job's place among those that wait, from 1; `ahead` what those before it ask for, by resource.
    `wait_range` is from when to when it may start, seconds from now, `wait_seconds` the likely time, by the `basis` of
    so many jobs that ended; `wait_basis` says so as a sentence.
    """

    place: str
    capacity: Amounts = Amounts()
    free: Amounts = Amounts()
    room_known: bool = False
    queue: QueueFacts | None = None
    room: NodeCapacity | None = None
    position: int | None = None
    ahead: Mapping[str, float] = {}
    wait_range: tuple[float, float] | None = None
    wait_seconds: float | None = None
    basis: int = 0
    wait_basis: str = ""


class Fit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether a job fits now, with numbers; `starts_now` is the maximum number of workers that would start now.

    `reason` is what a job waits for, without the position and the estimate that `message` ends with.
    """

    verdict: Verdict
    message: str
    reason: str = ""
    hint: str = ""
    position: int | None = None
    ahead_jobs: int = 0
    ahead: Mapping[str, float] = {}
    wait_range: tuple[float, float] | None = None
    wait_seconds: float | None = None
    basis: int = 0
    wait_basis: str = ""
    starts_now: int | None = None
