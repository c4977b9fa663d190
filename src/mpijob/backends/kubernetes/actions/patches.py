"""Cancel, suspend, resume, scale, delete: what a user does to a job that is there.

Every act leaves a mark on the engine's object first (annotations), so that the state tells it whatever
becomes of the caller. A job ends through its launcher, whose exit is the engine's own sign of the end and
whose log stays; only what does not listen is deleted. Kueue starts what it has admitted again when somebody
suspends it, so a queued job is put to rest through its Workload.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from mpijob.backends.kubernetes.client import exec_stream, resources
from mpijob.backends.kubernetes.client.api import Api, ApiError
from mpijob.backends.kubernetes.logs.pod_logs import launcher_of, state_of
from mpijob.backends.kubernetes.status import job_objects
from mpijob.backends.kubernetes.status.derive_state import Document, Objects
from mpijob.backends.kubernetes.status.job_objects import Found
from mpijob.backends.kubernetes.submit import owner_references
from mpijob.errors import Unsupported
from mpijob.formats.kubernetes import pod_template as pod_words
from mpijob.formats.kubernetes.metadata import user_actions, well_known
from mpijob.formats.kubernetes.metadata.user_actions import UserAction
from mpijob.formats.status.status_reader import given_up

_ENDED = ("Succeeded", "Failed")
_LOOK_SECONDS = 0.2
_SETTLE_SECONDS = 30.0
_WORKLOAD_SECONDS = 5.0
_SOMEBODY = "the user"
# $1 seconds: ask the launcher to end, then end everything that it started; its own exit follows from that
_END = """\
kill -s TERM 1 2>/dev/null
left=$1
while [ "$left" -gt 0 ]; do sleep 1; left=$((left - 1)); done
kill -s KILL -1 2>/dev/null
"""


def mark(api: Api, found: Found, reason: str, message: str, **annotations: str | None) -> None:
    """Note an act on the job's object, and set or take away annotations with it."""
    done = (*user_actions.read(found.job), UserAction(api.now(), reason, message))
    notes: dict[str, str | None] = {f"{well_known.DOMAIN}/{key}": value for key, value in annotations.items()}
    notes[well_known.ACTS_ANNOTATION] = user_actions.written(done)
    api.patch(found.path, {"metadata": {"annotations": notes}})


def stamp(api: Api) -> str:
    """Return the present time of the cluster as annotations hold it."""
    return datetime.fromtimestamp(api.now(), UTC).isoformat(timespec="milliseconds")


def cancel(api: Api, found: Found, seen: Objects, grace_seconds: float, by: str = _SOMEBODY) -> None:
    """End the job and keep its record, and whose will it was."""
    mark(api, found, user_actions.CANCELLED, f"cancelled by {by}", cancelled=stamp(api))
    _stop(api, found, seen, grace_seconds)


def give_up(
    api: Api, found: Found, seen: Objects, reason: str, message: str, grace_seconds: float = 0.0
) -> None:
    """End a job that could not start, or may not go on, and keep the record of why."""
    note = {well_known.GIVEN_UP_ANNOTATION.rpartition("/")[2]: given_up(stamp(api), reason, message)}
    mark(api, found, user_actions.GIVEN_UP, message, **note)
    _stop(api, found, seen, grace_seconds)


def finish(api: Api, found: Found, seen: Objects) -> None:
    """End what is left of a job whose end somebody noted and could not bring about."""
    _stop(api, found, seen, 0.0)


def _stop(api: Api, found: Found, seen: Objects, grace_seconds: float) -> None:
    launcher = launcher_of(seen.pods)
    if launcher is not None and "running" in state_of(launcher):
        _end_launcher(api, launcher, grace_seconds)
    elif found.kind is resources.TRAINJOB and seen.pods:
        delete_pods(api, seen.pods, grace_seconds=0)
    else:
        _rest(api, found, seen)


def suspend(api: Api, found: Found, seen: Objects, by: str = _SOMEBODY) -> None:
    """Put the job to rest: its pods go, with the grace that the job gave them."""
    mark(api, found, user_actions.SUSPENDED, f"suspended by {by}", suspended=stamp(api))
    if (workload := _workload(api, found, seen)) is not None:
        _activate(api, workload, active=False)
    else:
        _set_suspended(api, found, suspended=True)


def resume(api: Api, found: Found, seen: Objects, by: str = _SOMEBODY) -> None:
    """Let a job that rests start again, as its next attempt."""
    mark(api, found, user_actions.RESUMED, f"queued again by {by}", suspended=None)
    if well_known.AFTER_ANNOTATION in (found.job["metadata"].get("annotations") or {}):
        return  # it waits for others, and starts when they have succeeded
    if seen.workload is not None:
        _activate(api, seen.workload, active=True)
    else:
        _set_suspended(api, found, suspended=False)


def refuse_scaling(found: Found, workers: int) -> None:
    """Raise where the engine, or the queue, of a job does not let its number of workers change."""
    if found.kind is not resources.MPIJOB:
        raise Unsupported(
            f"{found.ref} is a {found.kind.name}: only the MPI Operator's jobs can be scaled",
            hint=f"create a job of another size: mpijob clone {found.ref.name} --workers {workers}",
        )
    if _in_queue(found):
        raise Unsupported(
            f"{found.ref} belongs to queue {found.job['metadata']['labels'][well_known.QUEUE_LABEL]}: "
            "Kueue admits a job at one size, and would stop it and queue it again at another",
            hint="create elastic jobs without a queue, or clone the job at the other size",
        )


def scale(api: Api, found: Found, before: int, workers: int, by: str = _SOMEBODY) -> None:
    """Ask the MPI Operator for another number of workers; it makes and removes those of the highest numbers."""
    mark(api, found, user_actions.SCALED, f"scaled from {before} to {workers} workers by {by}")
    api.patch(found.path, {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": workers}}}})


def delete(api: Api, found: Found, jobs: Iterable[Document]) -> None:
    """Remove the engine's objects; what they own follows, and whoever wants the name waits for that.

    Not the other way round: as long as its TrainJob is there, Trainer makes a JobSet that is missing again, also
    for a TrainJob that is being deleted, and the job's pods with it.
    """
    for job in jobs:
        metadata = job["metadata"]
        path = found.kind.path(metadata["namespace"], metadata["name"])
        api.delete(path, uid=metadata["uid"], propagation="Background")
        owner_references.sweep(api, found.kind, job)


def delete_pods(api: Api, pods: Iterable[Document], *, grace_seconds: int | None) -> None:
    """Delete pods; one that is gone already is as good."""
    for pod in pods:
        metadata = pod["metadata"]
        try:
            api.delete(
                resources.POD.path(metadata["namespace"], metadata["name"]),
                grace_seconds=grace_seconds,
                uid=metadata["uid"],
            )
        except ApiError as error:
            if error.status not in (404, 409):
                raise


def until(happened: Callable[[], bool], seconds: float = _SETTLE_SECONDS) -> bool:
    """Wait until something has happened; return whether it did in the time given."""
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def _end_launcher(api: Api, launcher: Document, grace_seconds: float) -> None:
    """Ask the launcher from inside, where its log stays; delete it where that is refused or does nothing."""
    metadata = launcher["metadata"]
    path = resources.POD.path(metadata["namespace"], metadata["name"])
    main = pod_words.container_of(launcher["spec"])["name"]
    argv = ("/bin/sh", "-c", _END, "mpijob-end", str(max(0, round(grace_seconds))))
    try:
        exec_stream.capture(api, f"{path}/exec", argv, container=main)
    except (ApiError, OSError) as error:  # its end may cut the line; whether it ended is looked up below
        if isinstance(error, ApiError) and error.status == 403:  # who may not look inside asks the kubelet
            delete_pods(api, [launcher], grace_seconds=max(0, round(grace_seconds)))
            return
    ended = until(lambda: _has_ended(api.find(path)), 5.0)
    if not ended:
        delete_pods(api, [launcher], grace_seconds=0)


def _has_ended(pod: Document | None) -> bool:
    return pod is None or (pod.get("status") or {}).get("phase") in _ENDED


def _rest(api: Api, found: Found, seen: Objects) -> None:
    """A job without pods holds nothing; see to it that it stays so."""
    if (workload := _workload(api, found, seen)) is not None:
        try:
            _activate(api, workload, active=False)
            return
        except ApiError as error:
            if error.status != 403:
                raise
    _set_suspended(api, found, suspended=True, unqueued=_in_queue(found))  # nobody starts what is in no queue


def _in_queue(found: Found) -> bool:
    return well_known.QUEUE_LABEL in (found.job["metadata"].get("labels") or {})


def _workload(api: Api, found: Found, seen: Objects) -> Document | None:
    """Return the job's Workload, which Kueue makes a moment after the job: without it, it would start what rests."""
    end, workload = time.monotonic() + _WORKLOAD_SECONDS, seen.workload
    while workload is None and _in_queue(found) and time.monotonic() < end:
        try:
            workload = job_objects.workload(api, found.job)
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            return None  # nobody here may see it, or there is no Kueue
        if workload is None:
            time.sleep(_LOOK_SECONDS)
    return workload


def _activate(api: Api, workload: Document, *, active: bool) -> None:
    metadata = workload["metadata"]
    api.patch(resources.WORKLOAD.path(metadata["namespace"], metadata["name"]), {"spec": {"active": active}})


def _set_suspended(api: Api, found: Found, *, suspended: bool, unqueued: bool = False) -> None:
    trainer = found.kind is resources.TRAINJOB
    body = {"spec": {"suspend": suspended} if trainer else {"runPolicy": {"suspend": suspended}}}
    left = {"metadata": {"labels": {well_known.QUEUE_LABEL: None}}} if unqueued else {}
    api.patch(found.path, body | left)  # at once: admission lets no job leave its queue that does not rest
