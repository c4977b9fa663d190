"""The changes of a job's objects for cancel, suspend, resume, scale and delete.

Every action is noted on the engine's object first (annotations), so that the state is right even if the
caller is killed. A job is ended through its launcher: its exit is what the engine treats as the end, and its
log is kept; only pods that do not react are deleted. A job in a queue is suspended through its Workload,
because Kueue resumes an admitted job that is suspended otherwise.
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
_POLL_SECONDS = 0.2
_SETTLE_SECONDS = 30.0
# Kueue creates the Workload a moment after the job.
_WORKLOAD_SECONDS = 5.0
_UNKNOWN_USER = "the user"
# $1 is the grace time in seconds. `kill -1` reaches all processes of the container but PID 1, which then exits itself.
_END = """\
kill -s TERM 1 2>/dev/null
left=$1
while [ "$left" -gt 0 ]; do sleep 1; left=$((left - 1)); done
kill -s KILL -1 2>/dev/null
"""


def mark(api: Api, found: Found, reason: str, message: str, **annotations: str | None) -> None:
    """Note an action on the job's object, and set or remove (None) annotations with it."""
    done = (*user_actions.read(found.job), UserAction(api.now(), reason, message))
    notes: dict[str, str | None] = {f"{well_known.DOMAIN}/{key}": value for key, value in annotations.items()}
    notes[well_known.ACTS_ANNOTATION] = user_actions.written(done)
    api.patch(found.path, {"metadata": {"annotations": notes}})


def stamp(api: Api) -> str:
    """Return the cluster's time as annotations contain it."""
    return datetime.fromtimestamp(api.now(), UTC).isoformat(timespec="milliseconds")


def cancel(api: Api, found: Found, seen: Objects, grace_seconds: float, by: str = _UNKNOWN_USER) -> None:
    """End the job and keep its record; `by` is the user."""
    mark(api, found, user_actions.CANCELLED, f"cancelled by {by}", cancelled=stamp(api))
    _stop(api, found, seen, grace_seconds)


def end_early(
    api: Api, found: Found, seen: Objects, reason: str, message: str, grace_seconds: float = 0.0
) -> None:
    """End a job that could not start, or may not continue, and keep the reason."""
    note = {well_known.GIVEN_UP_ANNOTATION.rpartition("/")[2]: given_up(stamp(api), reason, message)}
    mark(api, found, user_actions.GIVEN_UP, message, **note)
    _stop(api, found, seen, grace_seconds)


def finish(api: Api, found: Found, seen: Objects) -> None:
    """End a job whose end was noted by a process that was killed before it ended it."""
    _stop(api, found, seen, 0.0)


def _stop(api: Api, found: Found, seen: Objects, grace_seconds: float) -> None:
    launcher = launcher_of(seen.pods)
    # Through the launcher, so that its log is complete.
    if launcher is not None and "running" in state_of(launcher):
        _end_launcher(api, launcher, grace_seconds)
    elif found.kind is resources.TRAINJOB and seen.pods:
        delete_pods(api, seen.pods, grace_seconds=0)
    else:
        _keep_suspended(api, found, seen)


def suspend(api: Api, found: Found, seen: Objects, by: str = _UNKNOWN_USER) -> None:
    mark(api, found, user_actions.SUSPENDED, f"suspended by {by}", suspended=stamp(api))
    if (workload := _workload(api, found, seen)) is not None:
        _activate(api, workload, active=False)
    else:
        _set_suspended(api, found, suspended=True)


def resume(api: Api, found: Found, seen: Objects, by: str = _UNKNOWN_USER) -> None:
    """Start a suspended job again, as its next attempt."""
    mark(api, found, user_actions.RESUMED, f"queued again by {by}", suspended=None)
    if well_known.AFTER_ANNOTATION in (found.job["metadata"].get("annotations") or {}):
        # It waits for other jobs; `reconcile` starts it.
        return
    if seen.workload is not None:
        _activate(api, seen.workload, active=True)
    else:
        _set_suspended(api, found, suspended=False)


def refuse_scaling(found: Found, workers: int) -> None:
    """Raise Unsupported if the engine or the queue of a job does not allow another size."""
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


def scale(api: Api, found: Found, before: int, workers: int, by: str = _UNKNOWN_USER) -> None:
    """Set the number of workers; the MPI Operator adds or removes those with the highest numbers."""
    mark(api, found, user_actions.SCALED, f"scaled from {before} to {workers} workers by {by}")
    api.patch(found.path, {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": workers}}}})


def delete(api: Api, found: Found, jobs: Iterable[Document]) -> None:
    """Delete the engine's objects; the objects that they own are deleted by the cluster afterwards."""
    # In the background: with foreground deletion the JobSet would go first, and as long as a TrainJob exists, Trainer
    # creates a missing JobSet again, with its pods, even while the TrainJob is being deleted.
    for job in jobs:
        metadata = job["metadata"]
        path = found.kind.path(metadata["namespace"], metadata["name"])
        api.delete(path, uid=metadata["uid"], propagation="Background")
        owner_references.sweep(api, found.kind, job)


def delete_pods(api: Api, pods: Iterable[Document], *, grace_seconds: int | None) -> None:
    """Delete pods; ignores those that are gone or were replaced."""
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


def until(condition: Callable[[], bool], seconds: float = _SETTLE_SECONDS) -> bool:
    """Wait for a condition; return whether it became true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _end_launcher(api: Api, launcher: Document, grace_seconds: float) -> None:
    # From inside the pod, because deleting it deletes its log. It is deleted only if that is refused or has no effect.
    metadata = launcher["metadata"]
    path = resources.POD.path(metadata["namespace"], metadata["name"])
    main = pod_words.container_of(launcher["spec"])["name"]
    argv = ("/bin/sh", "-c", _END, "mpijob-end", str(max(0, round(grace_seconds))))
    try:
        exec_stream.capture(api, f"{path}/exec", argv, container=main)
    except (ApiError, OSError) as error:
        # The launcher's end may cut the connection; whether it ended is read below.
        # A user who may not exec can still delete the pod, which sends SIGTERM as well.
        if isinstance(error, ApiError) and error.status == 403:
            delete_pods(api, [launcher], grace_seconds=max(0, round(grace_seconds)))
            return
    ended = until(lambda: _has_ended(api.find(path)), 5.0)
    if not ended:
        delete_pods(api, [launcher], grace_seconds=0)


def _has_ended(pod: Document | None) -> bool:
    return pod is None or (pod.get("status") or {}).get("phase") in _ENDED


def _keep_suspended(api: Api, found: Found, seen: Objects) -> None:
    # The job has no pods; it must not get any.
    if (workload := _workload(api, found, seen)) is not None:
        try:
            _activate(api, workload, active=False)
            return
        except ApiError as error:
            if error.status != 403:
                raise
    # Kueue does not resume a job that has no queue label.
    _set_suspended(api, found, suspended=True, unqueued=_in_queue(found))


def _in_queue(found: Found) -> bool:
    return well_known.QUEUE_LABEL in (found.job["metadata"].get("labels") or {})


def _workload(api: Api, found: Found, seen: Objects) -> Document | None:
    # Waited for: if only the job were suspended, Kueue would create the Workload, admit it and resume the job.
    end, workload = time.monotonic() + _WORKLOAD_SECONDS, seen.workload
    while workload is None and _in_queue(found) and time.monotonic() < end:
        try:
            workload = job_objects.workload(api, found.job)
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            # Not readable for this user, or Kueue is not installed.
            return None
        if workload is None:
            time.sleep(_POLL_SECONDS)
    return workload


def _activate(api: Api, workload: Document, *, active: bool) -> None:
    metadata = workload["metadata"]
    api.patch(resources.WORKLOAD.path(metadata["namespace"], metadata["name"]), {"spec": {"active": active}})


def _set_suspended(api: Api, found: Found, *, suspended: bool, unqueued: bool = False) -> None:
    trainer = found.kind is resources.TRAINJOB
    body = {"spec": {"suspend": suspended} if trainer else {"runPolicy": {"suspend": suspended}}}
    unqueue = {"metadata": {"labels": {well_known.QUEUE_LABEL: None}}} if unqueued else {}
    # In one patch: our webhook lets only a suspended job leave its queue.
    api.patch(found.path, body | unqueue)
