"""One job over many values: every combination becomes a job of its own, with a name that says which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from mpijob.client import changes
from mpijob.errors import InvalidJob
from mpijob.model import MPIJob

ARRAY_LABEL = "mpijob/array"
INDEX_LABEL = "mpijob/array-index"
MOST_JOBS = 1000


def expand(job: MPIJob, values: Mapping[str, Sequence[Any]]) -> tuple[MPIJob, ...]:
    """Return one job for each combination, the last value changing fastest.

    They are called `name-0`, `name-1`, … and carry the labels `mpijob/array` and `mpijob/array-index`.

    >>> from mpijob import MPIJob
    >>> from mpijob.client import sweep
    >>> job = MPIJob(name="train", command=["python", "train.py"])
    >>> jobs = sweep.expand(job, {"env.LR": ["0.1", "0.01"], "workers": [2, 4]})
    >>> [(one.name, one.workers, dict(one.env)) for one in jobs[:2]]
    [('train-0', 2, {'LR': '0.1'}), ('train-1', 4, {'LR': '0.1'})]
    """
    _refuse(values)
    width = len(str(prod(len(choices) for choices in values.values()) - 1))
    combinations = product(*values.values())
    return tuple(
        _one(job, index, f"{job.name}-{index:0{width}d}", dict(zip(values, combination, strict=True)))
        for index, combination in enumerate(combinations)
    )


def _one(job: MPIJob, index: int, name: str, wanted: Mapping[str, Any]) -> MPIJob:
    changed = changes.apply(job, wanted)
    labels = {**changed.labels, ARRAY_LABEL: job.name, INDEX_LABEL: str(index)}
    return changed.replace(name=name, labels=labels)


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
        raise InvalidJob(f"the array would be {count if values else 0} jobs; 1 to {MOST_JOBS} are possible")
