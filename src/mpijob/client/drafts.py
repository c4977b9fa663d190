"""A job that is still being written: read with everything that is wrong in it, written as a job file."""

from __future__ import annotations

from mpijob.client.judging import read_job
from mpijob.model import MPIJob


def read(text: str) -> MPIJob:
    """Return the job of a job file, YAML or JSON; raise InvalidJob with everything that is wrong."""
    return read_job(text)


def write(job: MPIJob) -> str:
    """Return the job as a job file."""
    from mpijob.dialects import jobfile

    return jobfile.write(job)
