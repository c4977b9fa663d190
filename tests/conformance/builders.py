"""Small jobs that mean the same on every engine. Times are generous: only broken engines wait that long."""

from __future__ import annotations

from typing import Any

from mpijob import Client, Job, MPIJob, Phase
from mpijob.model import Resources

PATIENCE = 60.0


def a_job(name: str = "job", script: str = "true", **fields: Any) -> MPIJob:
    fields.setdefault("workers", 2)
    fields.setdefault("grace_seconds", 1.0)
    fields.setdefault("resources", Resources(cpu="500m", memory="256Mi"))
    return MPIJob(name=name, command=("sh", "-c", script), **fields)


def says_hello(name: str = "hello", **fields: Any) -> MPIJob:
    return a_job(name, "echo hello from $MPIJOB_RANK of $MPIJOB_WORLD", **fields)


def runs_long(name: str = "long", **fields: Any) -> MPIJob:
    return a_job(name, "echo begun; sleep 300", **fields)


def fails_on_worker_1(name: str = "bad", **fields: Any) -> MPIJob:
    return a_job(name, 'if [ "$MPIJOB_RANK" = 1 ]; then exit 3; fi; sleep 300', **fields)


def fills_the_place(name: str, script: str = "sleep 300", **fields: Any) -> MPIJob:
    """Return a job of which two do not fit at once."""
    return a_job(name, script, resources=Resources(cpu="1500m", memory="256Mi"), **fields)


def running(client: Client, job: MPIJob) -> Job:
    """Return the job once it runs."""
    handle = client.submit(job)
    handle.wait(PATIENCE, {Phase.RUNNING})
    return handle


def finished(client: Client, job: MPIJob) -> Job:
    """Return the job once it has ended, however it did."""
    handle = client.submit(job)
    handle.wait(PATIENCE)
    return handle
