"""Runs a user's command in a pod of the job, with this terminal."""

from __future__ import annotations

from mpijob.backends.kubernetes.client import exec_stream, resources
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.logs.pod_logs import launcher_of, workers_of
from mpijob.backends.kubernetes.status.derive_state import Document, Objects
from mpijob.errors import Conflict, NotFound
from mpijob.formats.kubernetes import pod_template as pod_words
from mpijob.model import JobState


def execute(
    api: Api,
    state: JobState,
    seen: Objects,
    argv: tuple[str, ...],
    *,
    worker: int | None,
    rank: int | None,
) -> int:
    """Run the command and return its exit code; in the launcher without `worker` and `rank`."""
    if rank is not None:
        worker = _worker_of(state, rank)
    pod = _pod(state, seen, worker)
    main = pod_words.container_of(pod["spec"])["name"]
    metadata = pod["metadata"]
    path = resources.POD.path(metadata["namespace"], metadata["name"], "exec")
    return exec_stream.execute(api, path, argv, container=main)


def _worker_of(state: JobState, rank: int) -> int:
    for known in state.ranks:
        if known.rank == rank:
            return known.worker
    raise NotFound(
        f"{state.ref} does not have rank {rank}, or its ranks are not known yet",
        hint=f"ranks are known after MPI has started: mpijob describe {state.ref.name}",
    )


def _pod(state: JobState, seen: Objects, worker: int | None) -> Document:
    pod = launcher_of(seen.pods) if worker is None else workers_of(seen.pods).get(worker)
    if pod is not None:
        return pod
    if worker is not None and worker >= state.workers_wanted:
        raise NotFound(
            f"{state.ref} has no worker {worker}", hint=f"its workers are 0 to {state.workers_wanted - 1}"
        )
    role = "launcher" if worker is None else f"worker {worker}"
    raise Conflict(f"the {role} of {state.ref} is not running: the job is {state.phase.value}")
