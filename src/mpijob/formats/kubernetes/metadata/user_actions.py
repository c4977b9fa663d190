"""What users did to a job, as the engine notes it on the job's own object: the truth outlives the caller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from mpijob import codec
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.status.nested_fields import text

SUSPENDED, RESUMED, CANCELLED, RETRYING = "Suspended", "Resumed", "Cancelled", "Retrying"
GIVEN_UP, SCALED = "GivenUp", "Scaled"


class UserAction(NamedTuple):
    """One thing done to a job: when (seconds since the epoch), what, and in a sentence."""

    time: float
    reason: str
    message: str


def read(job: Mapping[str, Any]) -> tuple[UserAction, ...]:
    """Return what was done to a job, in order; an annotation that somebody spoilt tells nothing."""
    noted = text(job, "metadata", "annotations", well_known.ACTS_ANNOTATION) or "[]"
    try:
        return tuple(codec.decode(noted, list[UserAction]))
    except (msgspec.DecodeError, msgspec.ValidationError):
        return ()


def written(acts: Iterable[UserAction]) -> str:
    """Return acts as the annotation holds them."""
    return msgspec.json.encode([*acts]).decode()


def resumed(job: Mapping[str, Any]) -> int:
    """Return how often a job was resumed: each time is an attempt more."""
    return sum(act.reason == RESUMED for act in read(job))


def resumed_at(job: Mapping[str, Any]) -> float | None:
    """Return when a job was resumed last: since then its attempt waits."""
    return max((act.time for act in read(job) if act.reason == RESUMED), default=None)
