"""Finds a job's object, and everything that belongs to it.

A job is found by the name of its object, which is unique at the API server, and by its owner. The labels
(`mpijob.dev/job`, `/uid`, `/attempt`) only group those objects (`metadata/identity`): any user can write
them. Different kinds are read concurrently. A read that is refused or not served leaves its part empty, and
the refusals are returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from mpijob.backends.common_errors import no_such_job
from mpijob.backends.kubernetes.client import concurrent, resources
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.formats.kubernetes.metadata import identity, well_known
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.model import JobRef

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.client.api import Api
    from mpijob.backends.kubernetes.status.derive_state import Objects

JOB_KINDS = (resources.TRAINJOB, resources.MPIJOB)
_IGNORED_STATUSES = (403, 404)
_JOB_NAME = "batch.kubernetes.io/job-name"
EventsOf = Callable[[str, str], list[Document]]


class Found(msgspec.Struct, frozen=True):
    """The engine's object of a job's newest attempt, and those of the attempts before it."""

    kind: Kind
    job: Document
    earlier: tuple[Document, ...] = ()

    @property
    def name(self) -> str:
        """The name of the newest object."""
        return str(self.job["metadata"]["name"])

    @property
    def first(self) -> str:
        """The name of the first attempt's object: shared objects are named after it."""
        oldest = (self.earlier or (self.job,))[0]
        name, attempt = str(oldest["metadata"]["name"]), attempt_of(oldest)
        return name.removesuffix(f"-a{attempt}") if attempt > 1 else name

    @property
    def attempts(self) -> tuple[Found, ...]:
        """Each attempt before the newest one, with those before it."""
        return tuple(Found(self.kind, job, self.earlier[:at]) for at, job in enumerate(self.earlier))

    @property
    def path(self) -> str:
        """The API path of the newest object."""
        return self.kind.path(self.job["metadata"]["namespace"], self.name)

    @property
    def ref(self) -> JobRef:
        """The job's reference."""
        return ref_of(self.job)


def ref_of(job: Mapping[str, Any]) -> JobRef:
    return identity.of(job["metadata"]).ref


def attempt_of(job: Mapping[str, Any]) -> int:
    return identity.of(job["metadata"]).attempt


def find(
    api: Api, ref: JobRef, served: Callable[[], frozenset[str]], me: Callable[[], str] = lambda: ""
) -> Found:
    """Return the job's newest attempt; without a uid, that of the newest job of the name. Raise NotFound.

    `me` is called for the caller's user name if jobs of several users have the name.
    """
    refused: list[ApiError] = []
    found = [*_candidates(api, ref, served(), refused)]
    if ref.uid:
        found = [candidate for candidate in found if ref_of(candidate[1]).uid == ref.uid]
    if not found:
        raise refused[0] if refused else no_such_job(ref)
    found = _of_one_owner(found, ref, me)
    uid = ref_of(max(found, key=_creation_order)[1]).uid
    attempts = sorted(
        (item for item in found if ref_of(item[1]).uid == uid), key=lambda item: attempt_of(item[1])
    )
    kind, newest = attempts[-1]
    return Found(kind, newest, tuple(job for _, job in attempts[:-1]))


def _of_one_owner(
    found: list[tuple[Kind, Document]], ref: JobRef, me: Callable[[], str]
) -> list[tuple[Kind, Document]]:
    # The caller's; else those of the user whose object has this very name; else those of the oldest object. Another
    # user's later job with the same label must not be taken for the job.
    owners = [identity.owner_of(job["metadata"]) for _, job in found]
    if len({*owners}) == 1:
        return found
    holder = next(
        (owners[at] for at, (_, job) in enumerate(found) if job["metadata"]["name"] == ref.name), None
    )
    oldest_owner = owners[found.index(min(found, key=_creation_order))]
    chosen = caller if (caller := me()) in owners else oldest_owner if holder is None else holder
    return [one for one, owner in zip(found, owners, strict=True) if owner == chosen]


def of_name(api: Api, namespace: str, name: str, served: frozenset[str]) -> list[Document]:
    """Return all engine objects that have or had this job name."""
    return [job for _, job in _candidates(api, JobRef(namespace, name), served, [])]


def objects(
    api: Api,
    found: Found,
    served: frozenset[str],
    refused: list[ApiError],
    events: EventsOf | None = None,
) -> Objects:
    """Return everything that belongs to a job's newest attempt; refusals are appended to `refused`.

    `events` returns the job's events by namespace and name, for callers that have them in memory.
    """
    namespace, name = found.job["metadata"]["namespace"], found.name
    trainer = found.kind is resources.TRAINJOB
    calls: dict[str, Callable[[], Any]] = {
        "pods": lambda: pods(api, found.kind, found.job),
        "events": lambda: events(namespace, name) if events else _events(api, namespace, name),
    }
    if trainer:
        calls["jobs"] = partial(_jobs, api, found)
        calls["jobset"] = lambda: api.find(resources.JOBSET.path(namespace, name))
        calls["runtime"] = lambda: runtime(api, found.job)
    if resources.KUEUE_API in served and well_known.QUEUE_LABEL in (
        found.job["metadata"].get("labels") or {}
    ):
        calls["workload"] = lambda: workload(api, found.job)
        calls["position"] = lambda: _position(api, found.job)
    # Imported late for a quick start: a list of jobs needs it later.
    from mpijob.backends.kubernetes.status.derive_state import Objects

    results = read_concurrently(calls, refused=refused)
    if (reread := _reread_jobs(api, found, results)) is not None:
        results["jobs"] = read_concurrently({"jobs": reread})["jobs"] or results.get("jobs")
    if results.get("workload"):
        results["taker"] = _preemptor(api, results["workload"])
    return Objects(job=found.job, **{key: value for key, value in results.items() if value is not None})


def _reread_jobs(api: Api, found: Found, results: Mapping[str, Any]) -> Callable[[], Any] | None:
    """Return how to read the batch Jobs again, if a pod is missing that one of them may have replaced."""
    namespace, name = found.job["metadata"]["namespace"], found.name
    there = results.get("pods") or []
    if found.kind is resources.TRAINJOB:
        lacks = any(_lacks_pods(job, there) for job in results.get("jobs") or ())
        return partial(_jobs, api, found) if lacks else None
    launcher = f"{name}-launcher"
    if not there or any(pod["metadata"]["name"].startswith(f"{launcher}-") for pod in there):
        return None
    return lambda: [
        found_job
        for found_job in [api.find(resources.JOB.path(namespace, launcher))]
        if found_job is not None
    ]


def _lacks_pods(job: Document, pods: list[Document]) -> bool:
    """Return whether a batch Job counts more active pods than exist."""
    name, active = job["metadata"]["name"], (job.get("status") or {}).get("active") or 0
    mine = [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(_JOB_NAME) == name]
    return active > len(mine)


def _jobs(api: Api, found: Found) -> list[Document]:
    path = resources.JOB.path(found.job["metadata"]["namespace"])
    return api.list(path, labels=_engine_selector(found.kind, found.name)).items


def pods(api: Api, kind: Kind, job: Mapping[str, Any]) -> list[Document]:
    metadata = job["metadata"]
    return api.list(
        resources.POD.path(metadata["namespace"]), labels=_engine_selector(kind, metadata["name"])
    ).items


def remains(api: Api, kind: Kind, job: Mapping[str, Any]) -> bool:
    """Return whether anything of a deleted attempt still exists."""
    metadata = job["metadata"]
    left = api.find(kind.path(metadata["namespace"], metadata["name"]))
    if left is not None and left["metadata"]["uid"] == metadata["uid"]:
        return True
    uid = metadata["uid"]
    companions = () if kind is resources.MPIJOB else (resources.JOBSET, resources.TRAINING_RUNTIME)
    for companion in companions:
        left = api.find(companion.path(metadata["namespace"], metadata["name"]))
        if left is not None and any(
            owner["uid"] == uid for owner in left["metadata"].get("ownerReferences") or ()
        ):
            return True
    return bool(pods(api, kind, job))


def _engine_selector(kind: Kind, name: str) -> str:
    """Return the selector of the objects that an engine creates for a job."""
    label = well_known.ENGINE_NAMES.get(kind.name, well_known.ENGINE_NAMES["MPIJob"])
    return f"{label}={name}"


def read_concurrently(
    calls: Mapping[str, Callable[[], Any]],
    lanes: int = concurrent.MOST_AT_ONCE,
    *,
    refused: list[ApiError] | None = None,
) -> dict[str, Any]:
    """Return the results of several reads, None for one that is refused or not served; 403s are added to
    `refused`.
    """
    reads = concurrent.together(calls, lanes)
    for read in reads.values():
        if read.error is not None and read.error.status not in _IGNORED_STATUSES:
            raise read.error
        if read.error is not None and read.error.status == 403 and refused is not None:
            refused.append(read.error)
    return {key: read.value for key, read in reads.items()}


def _candidates(
    api: Api, ref: JobRef, served: frozenset[str], refused: list[ApiError]
) -> list[tuple[Kind, Document]]:
    # By our labels, else any object of this name: jobs of other tools have no labels of ours.
    if not ref.name:
        return _by_uid(api, ref, served, refused)
    labelled = _read(api, [kind for kind in JOB_KINDS if kind.api in served], _by_label, ref, refused)
    labelled = [(kind, job) for kind, job in labelled if ref_of(job).name == ref.name]
    if any(not ref.uid or ref_of(job).uid == ref.uid for _, job in labelled):
        return labelled
    plain = _read(
        api, [kind for kind in (*JOB_KINDS, *resources.OLDER) if kind.api in served], _by_name, ref, []
    )
    return [*labelled, *((kind, job) for kind, job in plain if ref_of(job).name == ref.name)]


def _by_uid(
    api: Api, ref: JobRef, served: frozenset[str], refused: list[ApiError]
) -> list[tuple[Kind, Document]]:
    # By our label, else by the API server's uid, which cannot be selected: all objects are read.
    ours = [kind for kind in JOB_KINDS if kind.api in served]
    labelled = _read(api, ours, _by_uid_label, ref, refused)
    if labelled:
        return labelled
    every = _read(api, [*ours, *(kind for kind in resources.OLDER if kind.api in served)], _all, ref, [])
    return [(kind, job) for kind, job in every if ref_of(job).uid == ref.uid]


def _read(
    api: Api,
    kinds: list[Kind],
    list_jobs: Callable[[Api, Kind, JobRef], list[Document]],
    ref: JobRef,
    refused: list[ApiError],
) -> list[tuple[Kind, Document]]:
    """Return what is found of several kinds, which are asked for side by side."""
    calls: dict[str, Callable[[], Any]] = {
        f"{kind.api}/{kind.plural}": partial(list_jobs, api, kind, ref) for kind in kinds
    }
    found = read_concurrently(calls, refused=refused)
    return [(kind, job) for kind, jobs in zip(kinds, found.values(), strict=True) for job in jobs or ()]


def _by_label(api: Api, kind: Kind, ref: JobRef) -> list[Document]:
    listed = api.list(kind.path(ref.namespace), labels=f"{well_known.JOB_LABEL}={ref.name}").items
    return [_with_type(job, kind) for job in listed]


def _by_uid_label(api: Api, kind: Kind, ref: JobRef) -> list[Document]:
    listed = api.list(kind.path(ref.namespace), labels=f"{well_known.UID_LABEL}={ref.uid}").items
    return [_with_type(job, kind) for job in listed]


def _all(api: Api, kind: Kind, ref: JobRef) -> list[Document]:
    return [_with_type(job, kind) for job in api.list(kind.path(ref.namespace)).items]


def _by_name(api: Api, kind: Kind, ref: JobRef) -> list[Document]:
    found = api.find(kind.path(ref.namespace, ref.name))
    return [] if found is None else [_with_type(found, kind)]


def _with_type(job: Document, kind: Kind) -> Document:
    """Add kind and apiVersion, which the API server leaves out of list items."""
    return {"apiVersion": kind.api, "kind": kind.name} | job


def _creation_order(one: tuple[Kind, Document]) -> tuple[str, int]:
    return str(one[1]["metadata"]["creationTimestamp"]), attempt_of(one[1])


def runtime(api: Api, job: Document) -> Document | None:
    """Return the runtime that a TrainJob refers to; None if it does not exist."""
    reference = job["spec"].get("runtimeRef") or {}
    if reference.get("kind") == "TrainingRuntime":
        return api.find(
            resources.TRAINING_RUNTIME.path(job["metadata"]["namespace"], reference.get("name", ""))
        )
    return api.find(resources.CLUSTER_RUNTIME.path("", reference.get("name", "")))


def workload(api: Api, job: Mapping[str, Any]) -> Document | None:
    """Return Kueue's Workload of a job; None if it has not created one."""
    namespace, uid = job["metadata"]["namespace"], job["metadata"]["uid"]
    found = api.list(resources.WORKLOAD.path(namespace), labels=f"kueue.x-k8s.io/job-uid={uid}").items
    return found[-1] if found else None


def _preemptor(api: Api, workload: Document) -> Document | None:
    # It may be in another namespace, where most users may not list Workloads; then its own namespace is tried.
    # Imported late for a quick start: only jobs in a queue need it.
    from mpijob.formats.status import kueue_workload

    if not (uid := kueue_workload.taker(workload)):
        return None
    for namespace in ("", workload["metadata"]["namespace"]):
        try:
            found = api.list(resources.WORKLOAD.path(namespace), labels=f"kueue.x-k8s.io/job-uid={uid}").items
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            continue
        return found[0] if found else None
    return None


def _position(api: Api, job: Document) -> int | None:
    """Return the job's place in its queue from 0; None if unknown."""
    # Kueue serves the visibility API itself; while it is down, the job is shown without a position.
    metadata = job["metadata"]
    queue = metadata["labels"][well_known.QUEUE_LABEL]
    if not job["spec"].get("suspend", (job["spec"].get("runPolicy") or {}).get("suspend")):
        # Only suspended jobs wait in a queue.
        return None
    path = resources.PENDING.path(metadata["namespace"], queue, "pendingworkloads")
    try:
        pending = api.get(path).get("items") or ()
    except ApiError:
        return None
    for item in pending:
        owners = item["metadata"].get("ownerReferences") or ()
        if any(owner["uid"] == metadata["uid"] for owner in owners):
            return int(item.get("positionInLocalQueue", 0))
    return None


def _events(api: Api, namespace: str, name: str) -> list[Document]:
    """Return the events of the job's objects."""
    # Imported late for a quick start: a list of jobs needs none of it.
    from mpijob.formats.kubernetes.metadata import controller_notes

    # All events of the namespace: a field selector takes one object's name, and a job has many objects.
    events = api.list(resources.EVENT.path(namespace)).items
    return [
        event
        for event in events
        if belongs((event.get("involvedObject") or {}).get("name", ""), name)
        and not controller_notes.is_own(event)
    ]


def belongs(object_name: str, name: str) -> bool:
    """Return whether an object is the job's, by its name.

    `bert`, `bert-node-0-1-x7k2p`, `trainjob-bert-4f2a1`; not `bert-large`.
    """
    for prefix in ("", "trainjob-", "mpijob-"):
        rest = object_name.removeprefix(prefix)
        if rest == name or rest.startswith((f"{name}-node-", f"{name}-launcher", f"{name}-worker-")):
            return True
        # Kueue names a Workload KIND-NAME-HASH with five characters.
        if prefix and rest.startswith(f"{name}-") and len(rest) - len(name) == 6:
            return True
    return False
