"""Jobs that wait for other jobs (`after`).

`prep` must succeed, `any:prep` must end, `failed:prep` must fail or be cancelled. A job starts when all of them have
ended as required, and never if one has ended otherwise. Engines look the jobs up and call `judge`; all messages are
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from mpijob.errors import Finding
from mpijob.model.ref import JobRef
from mpijob.model.status.state import JobState, Phase

WAITING, FAILED = "WaitingForJobs", "DependencyFailed"
_ENDED = {Phase.SUCCEEDED: "succeeded", Phase.FAILED: "failed", Phase.CANCELLED: "was cancelled"}
_MARK = ":"


class End(StrEnum):
    """How a job must have ended for another one to start."""

    SUCCEEDED = "succeeded"
    ANY = "any"
    FAILED = "failed"


class After(NamedTuple):
    """One entry of `after`: a job's name, and how it must have ended."""

    name: str
    end: End = End.SUCCEEDED

    def __str__(self) -> str:
        return self.name if self.end is End.SUCCEEDED else f"{self.end.value}{_MARK}{self.name}"


def checked(entry: str) -> After:
    """Return an entry of `after`; raise ValueError for a word before the colon that there is not.

    >>> checked("any:prep")
    After(name='prep', end=<End.ANY: 'any'>)
    """
    word, mark, name = entry.partition(_MARK)
    return After(name, End(word)) if mark else After(entry)


def parsed(entry: str) -> After:
    """Return an entry of `after`; one with an unknown prefix (written by hand) must succeed."""
    try:
        return checked(entry)
    except ValueError:
        return After(entry.partition(_MARK)[2])


def names(after: Iterable[str]) -> tuple[str, ...]:
    return tuple(parsed(entry).name for entry in after)


class Dependency(msgspec.Struct, frozen=True):
    """A job that another job depends on: its phase (None if it does not exist), and the required end."""

    ref: JobRef
    phase: Phase | None = None
    message: str = ""
    end: End = End.SUCCEEDED

    @classmethod
    def of(cls, ref: JobRef, state: JobState | None, end: End = End.SUCCEEDED) -> Dependency:
        """Return the dependency on a job, which may be deleted."""
        return cls(ref, end=end) if state is None else cls(state.ref, state.phase, state.message, end)

    @property
    def met(self) -> bool:
        """Whether it has ended as required; a deleted job counts as ended."""
        if self.end is End.ANY:
            return self.phase is None or self.phase.final
        wanted = (Phase.FAILED, Phase.CANCELLED) if self.end is End.FAILED else (Phase.SUCCEEDED,)
        return self.phase in wanted

    @property
    def never(self) -> bool:
        """Whether it can no longer end as required."""
        return not self.met and (self.phase is None or self.phase.final)


def of_entries(
    after: Iterable[str], known: Iterable[tuple[JobRef, JobState | None]]
) -> tuple[Dependency, ...]:
    """Return the dependencies for the entries of `after`, with the phases of those jobs."""
    wanted = {one.name: one.end for one in map(parsed, after)}
    return tuple(Dependency.of(ref, state, wanted.get(ref.name, End.SUCCEEDED)) for ref, state in known)


def unmet(known: Iterable[Dependency]) -> tuple[JobRef, ...]:
    """Return the jobs that have not ended as required, by uid: a later job of the same name does not count."""
    return tuple(one.ref for one in known if not one.met)


class Judgement(NamedTuple):
    """The result: the entries that are still waited for, or the finding that the job will never start."""

    waits: tuple[str, ...] = ()
    finding: Finding | None = None


def judge(name: str, dependencies: Iterable[Dependency]) -> Judgement:
    """Return whether a job may start. A dependency that can never be met decides, also while others run."""
    known = tuple(dependencies)
    for one in known:
        if one.never:
            return Judgement(finding=_never(name, one))
    return Judgement(tuple(str(After(one.ref.name, one.end)) for one in known if not one.met))


def _never(name: str, one: Dependency) -> Finding:
    wanted = "failed" if one.end is End.FAILED else "succeeded"
    what = f"was deleted before it {wanted}" if one.phase is None else _ENDED[one.phase]
    why = f" ({one.message})" if one.message and one.phase is Phase.FAILED else ""
    whom = "which it waits for" + (" to fail" if one.end is End.FAILED else "")
    hint = f"see why with: mpijob why {one.ref.name}; when it has succeeded: mpijob retry {name}"
    return Finding(
        code="DEPENDENCY_FAILED",
        field="after",
        message=f"not started: job '{one.ref.name}', {whom}, {what}{why}",
        hint="there is nothing for it to do" if one.end is End.FAILED else hint,
    )


def refused(state: JobState, finding: Finding, now: float) -> JobState:
    """Return the state of a job that will never start because of another job."""
    return msgspec.structs.replace(
        state, phase=Phase.FAILED, reason=FAILED, message=finding.message, waiting_for="",
        finished=state.finished or now, findings=(finding,),
    )  # fmt: skip


def waiting(state: JobState, waits: Sequence[str], otherwise: str) -> JobState:
    """Return the state of a job with what it waits for; `otherwise` is the message if nothing is left."""
    text = sentence(waits) if waits else otherwise
    return msgspec.structs.replace(state, message=text, waiting_for=text)


_TO = {End.SUCCEEDED: "to succeed", End.ANY: "to end", End.FAILED: "to fail"}


def sentence(entries: Sequence[str]) -> str:
    """Return what a job waits for: `Waiting for job 'prep' to succeed`, `Waiting for job 'train' to end`."""
    found = [*map(parsed, entries)]
    groups = {end: [one.name for one in found if one.end is end] for end in End}
    return "Waiting for " + ", and for ".join(
        _jobs(named, _TO[end]) for end, named in groups.items() if named
    )


def _jobs(named: Sequence[str], to: str) -> str:
    quoted = [f"'{name}'" for name in named]
    listed = quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
    return f"job{'s' if len(quoted) > 1 else ''} {listed} {to}"
