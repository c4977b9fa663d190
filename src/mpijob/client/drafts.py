"""A job that is still being written: read with everything that is wrong in it, written as a job file."""

from __future__ import annotations

from mpijob.client.judging import read_job
from mpijob.model import MPIJob
from mpijob.model.describe import FIELDS as _DESCRIBED
from mpijob.model.describe import Description

_PARTS = {"Resources": ("resources", "launcher"), "Launch": ("launch",), "Code": ("code",), "Retry": ("retry",),
          "Placement": ("placement",), "Signal": ("signal",), "Retention": ("retention",)}  # fmt: skip


def _paths(key: str) -> list[str]:
    kind, _, field = key.partition(".")
    return [field] if kind == "MPIJob" else [f"{part}.{field}" for part in _PARTS.get(kind, ())]


FIELDS: dict[str, Description] = {path: said for key, said in _DESCRIBED.items() for path in _paths(key)}


def read(text: str) -> MPIJob:
    """Return the job of a job file, YAML or JSON; raise InvalidJob with everything that is wrong."""
    return read_job(text)


def write(job: MPIJob) -> str:
    """Return the job as a job file."""
    from mpijob.dialects import jobfile

    return jobfile.write(job)
