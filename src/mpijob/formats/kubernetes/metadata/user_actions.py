"""Users' actions on a job, in an annotation of the job's own object: they are known after the caller has ended."""

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
    """One action: its time in seconds since the epoch, its kind, and a message."""

    time: float
    reason: str
    message: str


def read(job: Mapping[str, Any]) -> tuple[UserAction, ...]:
    """Return the actions on a job, in order; none if the annotation is malformed."""
    text_of_annotation = text(job, "metadata", "annotations", well_known.ACTS_ANNOTATION) or "[]"
    try:
        return tuple(codec.decode(text_of_annotation, list[UserAction]))
    except (msgspec.DecodeError, msgspec.ValidationError):
        return ()


def written(acts: Iterable[UserAction]) -> str:
    """Return the annotation's value."""
    return msgspec.json.encode([*acts]).decode()


def resumed(job: Mapping[str, Any]) -> int:
    """Return how often a job was resumed; each time is an additional attempt."""
    return sum(act.reason == RESUMED for act in read(job))


def resumed_at(job: Mapping[str, Any]) -> float | None:
    """Return when a job was resumed last, None if it never was."""
    return max((act.time for act in read(job) if act.reason == RESUMED), default=None)
