"""How jobs differ: the parts of their specs that are not the same, and how each of them went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mpijob.errors import InvalidJob
from mpijob.model import JobRef, JobState, MPIJob, Phase
from mpijob.model.accounts import Account


class Column(msgspec.Struct, frozen=True):
    """One of the jobs compared, and how it went."""

    ref: JobRef
    phase: Phase
    duration_seconds: float | None
    result: str
    account: Account | None = None


class Difference(msgspec.Struct, frozen=True):
    """One part of the spec with its value in each job, in the order of the jobs."""

    field: str
    values: tuple[Any, ...]


class Comparison(msgspec.Struct, frozen=True):
    """The jobs side by side."""

    jobs: tuple[Column, ...]
    differences: tuple[Difference, ...]


def compare(
    pairs: Sequence[tuple[MPIJob, JobState]], accounts: Mapping[str, Account] | None = None
) -> Comparison:
    """Return how two or more jobs differ; `accounts`, by uid, add what they used.

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
    flat = [dict(flatten(spec)) for spec, _ in pairs]
    fields = [field for field in dict.fromkeys(key for one in flat for key in one) if field != "name"]
    rows = (Difference(field, tuple(one.get(field) for one in flat)) for field in fields)
    return Comparison(
        tuple(_column(state, (accounts or {}).get(state.ref.uid)) for _, state in pairs),
        tuple(row for row in rows if any(value != row.values[0] for value in row.values)),
    )


def flatten(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Return the parts of a spec with their paths (`resources.memory`), defaults included."""
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
    return Column(state.ref, state.phase, duration, cause, account)
