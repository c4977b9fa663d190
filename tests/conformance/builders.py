"""Small jobs that mean the same on every engine. Times are generous: only broken engines wait that long."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from mpijob import Client, Job, JobState, MPIJob, Phase
from mpijob.errors import NotFound
from mpijob.model import Resources

PATIENCE = 300.0  # seconds: only what is broken takes that long


@dataclass
class Place:
    """How large an engine's place is, in thousandths of a core, and what its jobs need to be told.

    One engine has four cores to give, another has a queue with a tenth of that; both are so small that
    two jobs which fill the place do not run at once. On a `batch_system` every
    job has a time limit, and starts in a cycle of its scheduler, a second or more after it could.
    """

    millicores: int = 4000
    image: str = ""
    queue: str = ""
    batch_system: bool = False
    namespaces: tuple[str, str] = ("team-a", "team-b")

    @property
    def starts_later(self) -> bool:
        """Whether a job that has its place still takes seconds to start: batch cycles, pods."""
        return self.batch_system or bool(self.image)

    def share(self, part: float, memory: str = "256Mi") -> Resources:
        """Return the resources of a worker that takes a part of the place."""
        return Resources(cpu=f"{round(self.millicores * part)}m", memory=memory)


place = Place()


def a_job(name: str = "job", script: str = "true", **fields: Any) -> MPIJob:
    fields.setdefault("workers", 2)
    fields.setdefault("grace_seconds", 1.0)
    fields.setdefault("resources", place.share(1 / 8))
    if place.image:
        fields.setdefault("image", place.image)
        fields.setdefault("queue", place.queue)
        fields.setdefault("launcher", place.share(1 / 40))
    return MPIJob(name=name, command=("sh", "-c", script), **fields)


def says_hello(name: str = "hello", **fields: Any) -> MPIJob:
    return a_job(name, "echo hello from $MPIJOB_RANK of $MPIJOB_WORLD", **fields)


def runs_long(name: str = "long", **fields: Any) -> MPIJob:
    return a_job(name, "echo begun; sleep 300", **fields)


def fails_on_worker_1(name: str = "bad", **fields: Any) -> MPIJob:
    return a_job(name, 'if [ "$MPIJOB_RANK" = 1 ]; then exit 3; fi; sleep 300', **fields)


def fills_the_place(name: str, script: str = "sleep 300", **fields: Any) -> MPIJob:
    """Return a job of which two do not fit at once."""
    return a_job(name, script, resources=place.share(3 / 8), **fields)


def too_large(name: str = "huge") -> MPIJob:
    """Return a job that never fits: its workers alone want four times the place."""
    return a_job(name, workers=8, resources=place.share(1 / 2))


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


def placed(client: Client, name: str) -> JobState:
    """Return a waiting job's state once its place and the basis of its estimate are known: a cluster is slow."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        state = client.state(name)
        if state.queue_position is not None and state.wait_basis:
            return state
        time.sleep(0.1)
    return state


def is_gone(job: Job) -> bool:
    """Whether the place knows the job no more, or only by a record that says that it was deleted."""
    try:
        return job.state().deleted is not None
    except NotFound:
        return True
