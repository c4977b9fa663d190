"""Job arrays: one job for each combination of values."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from mpijob.client.submit import resubmit
from mpijob.errors import InvalidJob
from mpijob.model import JobState, MPIJob

ARRAY_LABEL = "mpijob/array"
INDEX_LABEL = "mpijob/array-index"
ID_LABEL = "mpijob/array-id"
MOST_JOBS = 1000
_TIMED_ID = re.compile("[0-9a-f]{16}")


def submitted(job: MPIJob, values: Mapping[str, Sequence[Any]]) -> tuple[MPIJob, ...]:
    """Return the jobs of an array that is submitted now, with a label that no other array has."""
    # The time in nanoseconds, so that the newest of several arrays is known by it: a retried job is newer
    # than its array and keeps the label.
    label = {ID_LABEL: f"{time.time_ns():016x}"}
    return tuple(one.replace(labels={**one.labels, **label}) for one in expand(job, values))


def newest(states: Iterable[JobState]) -> tuple[JobState, ...]:
    """Return jobs without those of arrays that were submitted again later with fewer jobs."""
    states, last = tuple(states), dict[tuple[str, str], JobState]()
    for state in states:
        known = last.get(_array_of(state))
        if known is None or _submitted_at(state) > _submitted_at(known):
            last[_array_of(state)] = state
    return tuple(state for state in states if _id_of(state) == _id_of(last[_array_of(state)]))


def _array_of(state: JobState) -> tuple[str, str]:
    """Return the key of a job's array; a job without one is its own."""
    return state.ref.namespace, state.labels.get(ARRAY_LABEL) or f"/{state.ref.name}"


def _submitted_at(state: JobState) -> tuple[int, float]:
    """Return the order of arrays; ids without a time are from older versions."""
    match = _TIMED_ID.fullmatch(_id_of(state))
    return (int(match[0], 16), 0.0) if match else (0, state.created)


def _id_of(state: JobState) -> str:
    return state.labels.get(ID_LABEL, "")


def expand(job: MPIJob, values: Mapping[str, Sequence[Any]]) -> tuple[MPIJob, ...]:
    """Return one job for each combination, the last value changing fastest.

    They are called `name-0`, `name-1`, … and carry the labels `mpijob/array` and `mpijob/array-index`.

    >>> from mpijob import MPIJob
    >>> from mpijob.client import array
    >>> job = MPIJob(name="train", command=["python", "train.py"])
    >>> jobs = array.expand(job, {"env.LR": ["0.1", "0.01"], "workers": [2, 4]})
    >>> [(one.name, one.workers, dict(one.env)) for one in jobs[:2]]
    [('train-0', 2, {'LR': '0.1'}), ('train-1', 4, {'LR': '0.1'})]
    """
    _refuse(values)
    width = len(str(prod(len(choices) for choices in values.values()) - 1))
    combinations = product(*values.values())
    return tuple(
        _job_of(job, index, f"{job.name}-{index:0{width}d}", dict(zip(values, combination, strict=True)))
        for index, combination in enumerate(combinations)
    )


def _job_of(job: MPIJob, index: int, name: str, wanted: Mapping[str, Any]) -> MPIJob:
    changed = resubmit.apply(job, wanted)
    labels = {**changed.labels, ARRAY_LABEL: job.name, INDEX_LABEL: str(index)}
    limited = changed.concurrency
    if limited is not None and not limited.group:
        limited = limited.replace(group=job.name)
    return changed.replace(name=name, labels=labels, concurrency=limited)


def _refuse(values: Mapping[str, Any]) -> None:
    for field, choices in values.items():
        if isinstance(choices, str) or not isinstance(choices, Sequence) or not choices:
            raise InvalidJob(
                f"{field}: an array needs a list of values, at least one", hint="write [0.1, 0.01]"
            )
        if field in ("name", "namespace"):
            raise InvalidJob(
                f"{field} cannot vary in an array", hint="names are made from the job's own name"
            )
    count = prod(len(choices) for choices in values.values())
    if not values or count > MOST_JOBS:
        raise InvalidJob(f"the array has {count if values else 0} jobs; 1 to {MOST_JOBS} are allowed")
