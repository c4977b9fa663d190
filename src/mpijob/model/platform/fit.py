"""Whether a job would start now, and what a broker with more rights than the user adds to the facts."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from mpijob.model.platform.cluster import NodeCapacity, QueueFacts
from mpijob.model.spec.amounts import Amounts


class Verdict(StrEnum):
    """The possible answers."""

    NOW = "fits now"
    WAITS = "waits"
    NEVER = "can never fit"
    UNKNOWN = "not known"


class Seen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A broker's answer about one job of one user: numbers, without names of others.

    `position` is the job's place among the waiting ones, from 1; `ahead` are the requests of those before it, by
    resource. `wait_range` and `wait_seconds` are estimates from now, based on `basis` finished jobs; `wait_basis`
    says so in a sentence.
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
