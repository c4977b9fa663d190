"""Compare jobs: the fields in which their specs differ, and the result of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from mpijob.accounting import build
from mpijob.client.history import accounts
from mpijob.client.observe import one_attempt
from mpijob.errors import InvalidJob
from mpijob.model import JobKey, JobRef, JobState, LauncherState, MPIJob, Phase
from mpijob.model.status.accounts import Account
from mpijob.observation.redaction import masking

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend


class Column(msgspec.Struct, frozen=True):
    """One of the compared jobs or attempts, with its result; `cause` is the code of the cause of failure."""

    ref: JobRef
    phase: Phase
    duration_seconds: float | None
    result: str
    account: Account | None = None
    run: int = 0
    attempt: int = 1
    reason: str = ""
    cause: str = ""
    nodes: tuple[str, ...] = ()
    exit_code: int | None = None
    launcher: LauncherState | None = None


class Difference(msgspec.Struct, frozen=True):
    """One field of the spec with its value in each compared job."""

    field: str
    values: tuple[Any, ...]


class Comparison(msgspec.Struct, frozen=True):
    """The compared jobs, side by side."""

    jobs: tuple[Column, ...]
    differences: tuple[Difference, ...]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the other jobs match the first; `percent` is the largest difference of durations."""

    same: bool
    percent: float
    limit: float
    why: str = ""


def judge(found: Comparison, limit: float) -> Verdict:
    """Return whether all jobs ended as the first did, in a time that differs from its by at most `limit` percent.

    >>> from mpijob.model import JobRef, Phase
    >>> old = Column(JobRef("cv", "old"), Phase.SUCCEEDED, 60.0, "")
    >>> new = Column(JobRef("cv", "new"), Phase.SUCCEEDED, 69.0, "")
    >>> judge(Comparison((old, new), ()), 10).why
    'new took 69 s, 15 % more than old with 60 s; at most 10 % is the limit'
    """
    first, *others = found.jobs
    percent, widest = max(((_percent(first, one), one) for one in others), key=lambda pair: abs(pair[0]))
    ended = next((one for one in others if one.phase is not first.phase), None)
    if ended is not None:
        why = f"{ended.ref.name} ended as {ended.phase.value}, {first.ref.name} as {first.phase.value}"
    elif abs(percent) > limit:
        way = "more" if percent > 0 else "less"
        why = (
            f"{widest.ref.name} took {widest.duration_seconds:.4g} s, {abs(percent):.3g} % {way} than "
            f"{first.ref.name} with {first.duration_seconds:.4g} s; at most {limit:g} % is the limit"
        )
    else:
        why = ""
    return Verdict(same=not why, percent=round(percent, 2), limit=limit, why=why)


def _percent(first: Column, other: Column) -> float:
    for one in (first, other):
        if one.duration_seconds is None:
            raise InvalidJob(
                f"{one.ref.name} has not ended, so its duration is unknown",
                hint=f"wait until it has ended: mpijob wait {one.ref.name}",
            )
    if not first.duration_seconds or other.duration_seconds is None:
        return 0.0 if not other.duration_seconds else float("inf")
    return (other.duration_seconds / first.duration_seconds - 1) * 100


def compare(
    pairs: Sequence[tuple[MPIJob, JobState]], used: Mapping[JobKey, Account] | None = None
) -> Comparison:
    """Return how two or more jobs differ; `used` adds their accounts. Secret values are masked.

    >>> from mpijob import Client, MPIJob
    >>> from mpijob.backends.memory import MemoryBackend
    >>> client = Client(MemoryBackend())
    >>> first = client.run(MPIJob(name="two", workers=2, command=["true"]))
    >>> second = first.clone("four", workers=4)
    >>> [(one.field, one.values) for one in client.compare("two", "four").differences]
    [('workers', (2, 4))]
    """
    if len(pairs) < 2:
        raise InvalidJob(f"{len(pairs)} job given to compare", hint="name at least two")
    # Compared unmasked, shown masked: two different secrets differ.
    flat = [dict(flatten(spec)) for spec, _ in pairs]
    shown = [dict(flatten(masking.masked_job(spec))) for spec, _ in pairs]
    fields = [field for field in dict.fromkeys(key for one in flat for key in one) if field != "name"]
    differing = [field for field in fields if any(one.get(field) != flat[0].get(field) for one in flat)]
    return Comparison(
        tuple(_column(state, (used or {}).get(state.ref.key)) for _, state in pairs),
        tuple(Difference(field, tuple(one.get(field) for one in shown)) for field in differing),
    )


def attempts(refs: Sequence[JobRef], wanted: Sequence[int], backend: Backend) -> Comparison:
    """Compare attempts of one job, whose configuration is the same."""
    numbers = list(dict.fromkeys(wanted))
    if len(refs) != 1 or len(numbers) < 2:
        raise InvalidJob(
            f"{len(numbers)} attempt numbers and {len(refs)} jobs given to compare",
            hint="specify one job and at least two of its attempts, or several jobs without attempts",
        )
    used = accounts.of_attempts(refs[0], backend, numbers)
    columns = [
        _column(one_attempt.state_of(refs[0], backend, number), account)
        for number, account in zip(numbers, used, strict=True)
    ]
    return Comparison(tuple(columns), ())


def flatten(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Return the fields of a spec by path (`resources.memory`), with defaults."""
    if isinstance(value, msgspec.Struct):
        parts: Mapping[str, Any] = {name: getattr(value, name) for name in value.__struct_fields__}
    elif isinstance(value, Mapping):
        parts = value
    else:
        return [(path, msgspec.to_builtins(value))]
    return [pair for key, part in parts.items() for pair in flatten(part, f"{path}.{key}".lstrip("."))]


def _column(state: JobState, account: Account | None) -> Column:
    duration = None if state.finished is None else state.duration_seconds(state.finished)
    cause = state.findings[0].message if state.findings else state.message
    first = state.findings[0] if state.findings and state.phase is Phase.FAILED else None
    return Column(
        state.ref,
        state.phase,
        duration,
        cause,
        account,
        run=state.run,
        attempt=state.attempt,
        reason=state.reason,
        cause="" if first is None else first.code,
        nodes=tuple(sorted({worker.node for worker in state.workers if worker.node})),
        exit_code=build.exit_code(state),
        launcher=state.launcher,
    )
