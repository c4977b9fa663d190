"""Jobs that wait for other jobs: what becomes of a job, given where those stand that it waits for.

A job starts once all of them have succeeded, and never when one of them ended otherwise. Engines look the others
up and ask `judge`; the sentences are here because every engine, and a cluster's observation, tells them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from mpijob.errors import Finding
from mpijob.model.ref import JobRef
from mpijob.model.status.state import JobState, Phase

WAITING, FAILED = "WaitingForJobs", "DependencyFailed"
_ENDED = {Phase.FAILED: "failed", Phase.CANCELLED: "was cancelled"}


class Dependency(msgspec.Struct, frozen=True):
    """One job that another waits for: where it stands, None when there is no such job."""

    ref: JobRef
    phase: Phase | None = None
    message: str = ""

    @classmethod
    def of(cls, ref: JobRef, state: JobState | None) -> Dependency:
        """Return what is known of a job that may be gone."""
        return cls(ref) if state is None else cls(state.ref, state.phase, state.message)

    @property
    def never(self) -> bool:
        """Whether it will not succeed any more."""
        return self.phase is None or (self.phase.final and self.phase is not Phase.SUCCEEDED)


def unmet(known: Iterable[Dependency]) -> tuple[JobRef, ...]:
    """Return the jobs that have not succeeded yet, by their uid: a later job of the same name is not meant."""
    return tuple(one.ref for one in known if one.phase is not Phase.SUCCEEDED)


class Judgement(NamedTuple):
    """What follows: the jobs still waited for, or the finding that the job will never start."""

    waits: tuple[str, ...] = ()
    finding: Finding | None = None


def judge(name: str, dependencies: Iterable[Dependency]) -> Judgement:
    """Return what becomes of a job; one that failed decides it, also while others still run."""
    known = tuple(dependencies)
    for one in known:
        if one.never:
            return Judgement(finding=_never(name, one))
    return Judgement(tuple(one.ref.name for one in known if one.phase is not Phase.SUCCEEDED))


def _never(name: str, one: Dependency) -> Finding:
    what = "was deleted before it succeeded" if one.phase is None else _ENDED[one.phase]
    why = f" ({one.message})" if one.message and one.phase is Phase.FAILED else ""
    return Finding(
        code="DEPENDENCY_FAILED",
        field="after",
        message=f"not started: job '{one.ref.name}', which it waits for, {what}{why}",
        hint=f"see why with: mpijob why {one.ref.name}; when it has succeeded: mpijob retry {name}",
    )


def sentence(names: Sequence[str]) -> str:
    """Return what a job waits for: `Waiting for job 'prep' to succeed`."""
    quoted = [f"'{name}'" for name in names]
    listed = quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
    return f"Waiting for job{'s' if len(quoted) > 1 else ''} {listed} to succeed"
