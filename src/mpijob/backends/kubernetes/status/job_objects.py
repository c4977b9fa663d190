"""Finding a job among a cluster's objects, and everything that belongs to it.

A job is found by the name of its object, which the API server lets nobody take twice, and by its owner. Labels
(`mpijob.dev/job`, `/uid`, `/attempt`) only say which of those objects belong together (`metadata/identity`).
Reads of different kinds go side by side. One that is refused or not served leaves its part empty, and what was
refused is handed back beside the rest: what can still be told is told.
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
_PASSED_OVER = (403, 404)
_JOB_NAME = "batch.kubernetes.io/job-name"
EventsOf = Callable[[str, str], list[Document]]


class Found(msgspec.Struct, frozen=True):
    """The engine's object of a job's newest attempt, and of the attempts before it."""

    kind: Kind
    job: Document
    earlier: tuple[Document, ...] = ()

    @property
    def name(self) -> str:
        """The object's own name."""
        return str(self.job["metadata"]["name"])

    @property
    def first(self) -> str:
        """The name of the first attempt's object, which what all attempts share is called by."""
        oldest = (self.earlier or (self.job,))[0]
        name, attempt = str(oldest["metadata"]["name"]), attempt_of(oldest)
        return name.removesuffix(f"-a{attempt}") if attempt > 1 else name

    @property
    def attempts(self) -> tuple[Found, ...]:
        """Each attempt before the newest one, with those before it."""
        return tuple(Found(self.kind, job, self.earlier[:at]) for at, job in enumerate(self.earlier))

    @property
    def path(self) -> str:
        """Where the object is."""
        return self.kind.path(self.job["metadata"]["namespace"], self.name)

    @property
    def ref(self) -> JobRef:
        """The job's address."""
        return ref_of(self.job)


def ref_of(job: Mapping[str, Any]) -> JobRef:
    """Return the address of the job that an engine's object is of."""
    return identity.of(job["metadata"]).ref


def attempt_of(job: Mapping[str, Any]) -> int:
    """Return which attempt an engine's object is."""
    return identity.of(job["metadata"]).attempt


def find(
    api: Api, ref: JobRef, served: Callable[[], frozenset[str]], me: Callable[[], str] = lambda: ""
) -> Found:
    """Return the job's newest attempt; without a uid, of the newest job of that name. Raise NotFound.

    `me` is asked for the caller's user name where jobs of several people have the name.
    """
    refused: list[ApiError] = []
    found = [*_candidates(api, ref, served(), refused)]
    if ref.uid:
        found = [one for one in found if ref_of(one[1]).uid == ref.uid]
    if not found:
        raise refused[0] if refused else no_such_job(ref)
    found = _of_one_owner(found, ref, me)
    uid = ref_of(max(found, key=_age)[1]).uid
    attempts = sorted((one for one in found if ref_of(one[1]).uid == uid), key=lambda one: attempt_of(one[1]))
    kind, newest = attempts[-1]
    return Found(kind, newest, tuple(job for _, job in attempts[:-1]))


def _of_one_owner(
    found: list[tuple[Kind, Document]], ref: JobRef, me: Callable[[], str]
) -> list[tuple[Kind, Document]]:
    """Return the objects of one owner: the caller, else whoever holds the object of that very name, else the first.

    So nobody's job is taken for another's because it came later and bears the same label.
    """
    owners = [identity.owner_of(job["metadata"]) for _, job in found]
    if len({*owners}) == 1:
        return found
    holder = next(
        (owners[at] for at, (_, job) in enumerate(found) if job["metadata"]["name"] == ref.name), None
    )
    eldest = owners[found.index(min(found, key=_age))]
    chosen = caller if (caller := me()) in owners else eldest if holder is None else holder
    return [one for one, owner in zip(found, owners, strict=True) if owner == chosen]


def of_name(api: Api, namespace: str, name: str, served: frozenset[str]) -> list[Document]:
    """Return every engine's object that a job of this name has or had."""
    return [job for _, job in _candidates(api, JobRef(namespace, name), served, [])]


def objects(
    api: Api,
    found: Found,
    served: frozenset[str],
    refused: list[ApiError],
    events: EventsOf | None = None,
) -> Objects:
    """Return everything that belongs to a job's newest attempt; refusals are added to those that are given.

    `events` are asked for the job's events, by namespace and name, by who keeps them at hand.
    """
    namespace, name = found.job["metadata"]["namespace"], found.name
    trainer = found.kind is resources.TRAINJOB
    wanted: dict[str, Callable[[], Any]] = {
        "pods": lambda: pods(api, found.kind, found.job),
        "events": lambda: events(namespace, name) if events else _events(api, namespace, name),
    }
    if trainer:
        wanted["jobs"] = partial(_jobs, api, found)
        wanted["jobset"] = lambda: api.find(resources.JOBSET.path(namespace, name))
        wanted["runtime"] = lambda: runtime(api, found.job)
    if resources.KUEUE_API in served and well_known.QUEUE_LABEL in (
        found.job["metadata"].get("labels") or {}
    ):
        wanted["workload"] = lambda: workload(api, found.job)
        wanted["position"] = lambda: _position(api, found.job)
    from mpijob.backends.kubernetes.status.derive_state import Objects  # a list needs none of it yet

    seen = side_by_side(wanted, refused=refused)
    if (asked := _asked_again(api, found, seen)) is not None:
        seen["jobs"] = side_by_side({"jobs": asked})["jobs"] or seen.get("jobs")
    if seen.get("workload"):
        seen["taker"] = _taker(api, seen["workload"])
    return Objects(job=found.job, **{key: value for key, value in seen.items() if value is not None})


def _asked_again(api: Api, found: Found, seen: Mapping[str, Any]) -> Callable[[], Any] | None:
    """Return how to read the batch Jobs once more, where a pod is missing that they may just have given up.

    A Job notes that a pod has ended before the pod goes; read side by side, the note may be missed and the pod too.
    """
    namespace, name = found.job["metadata"]["namespace"], found.name
    there = seen.get("pods") or []
    if found.kind is resources.TRAINJOB:
        lacks = any(_lacks_pods(job, there) for job in seen.get("jobs") or ())
        return partial(_jobs, api, found) if lacks else None
    launcher = f"{name}-launcher"
    if not there or any(pod["metadata"]["name"].startswith(f"{launcher}-") for pod in there):
        return None
    return lambda: [one for one in [api.find(resources.JOB.path(namespace, launcher))] if one is not None]


def _lacks_pods(job: Document, pods: list[Document]) -> bool:
    """Whether a batch Job counts more pods at work than there are."""
    name, active = job["metadata"]["name"], (job.get("status") or {}).get("active") or 0
    mine = [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(_JOB_NAME) == name]
    return active > len(mine)


def _jobs(api: Api, found: Found) -> list[Document]:
    path = resources.JOB.path(found.job["metadata"]["namespace"])
    return api.list(path, labels=_owned(found.kind, found.name)).items


def pods(api: Api, kind: Kind, job: Mapping[str, Any]) -> list[Document]:
    """Return the pods of one attempt."""
    metadata = job["metadata"]
    return api.list(resources.POD.path(metadata["namespace"]), labels=_owned(kind, metadata["name"])).items


def remains(api: Api, kind: Kind, job: Mapping[str, Any]) -> bool:
    """Whether anything of an attempt that was deleted is still there."""
    metadata = job["metadata"]
    left = api.find(kind.path(metadata["namespace"], metadata["name"]))
    if left is not None and left["metadata"]["uid"] == metadata["uid"]:
        return True
    uid = metadata["uid"]
    companions = () if kind is resources.MPIJOB else (resources.JOBSET, resources.TRAINING_RUNTIME)
    for companion in companions:
        left = api.find(companion.path(metadata["namespace"], metadata["name"]))
        if left is not None and any(
            one["uid"] == uid for one in left["metadata"].get("ownerReferences") or ()
        ):
            return True
    return bool(pods(api, kind, job))


def _owned(kind: Kind, name: str) -> str:
    """Return the selector of what an engine made for a job's object."""
    label = well_known.ENGINE_NAMES.get(kind.name, well_known.ENGINE_NAMES["MPIJob"])
    return f"{label}={name}"


def side_by_side(
    calls: Mapping[str, Callable[[], Any]],
    lanes: int = concurrent.MOST_AT_ONCE,
    *,
    refused: list[ApiError] | None = None,
) -> dict[str, Any]:
    """Return the answers of several reads made at once; None for one that is refused or not served.

    What the user may not see is added to `refused`.
    """
    answers = concurrent.together(calls, lanes)
    for answer in answers.values():
        if answer.error is not None and answer.error.status not in _PASSED_OVER:
            raise answer.error
        if answer.error is not None and answer.error.status == 403 and refused is not None:
            refused.append(answer.error)
    return {key: answer.value for key, answer in answers.items()}


def _candidates(
    api: Api, ref: JobRef, served: frozenset[str], refused: list[ApiError]
) -> list[tuple[Kind, Document]]:
    """Return the engines' objects of a job: by its labels, else anybody's object of that very name."""
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
    """Return the engines' objects of a job whose name nobody said: by our label, else by the server's own uid."""
    ours = [kind for kind in JOB_KINDS if kind.api in served]
    labelled = _read(api, ours, _by_uid_label, ref, refused)
    if labelled:
        return labelled
    every = _read(api, [*ours, *(kind for kind in resources.OLDER if kind.api in served)], _all, ref, [])
    return [(kind, job) for kind, job in every if ref_of(job).uid == ref.uid]


def _read(
    api: Api,
    of: list[Kind],
    how: Callable[[Api, Kind, JobRef], list[Document]],
    ref: JobRef,
    refused: list[ApiError],
) -> list[tuple[Kind, Document]]:
    """Return what is found of several kinds, which are asked for side by side."""
    calls: dict[str, Callable[[], Any]] = {
        f"{kind.api}/{kind.plural}": partial(how, api, kind, ref) for kind in of
    }
    found = side_by_side(calls, refused=refused)
    return [(kind, job) for kind, jobs in zip(of, found.values(), strict=True) for job in jobs or ()]


def _by_label(api: Api, kind: Kind, ref: JobRef) -> list[Document]:
    listed = api.list(kind.path(ref.namespace), labels=f"{well_known.JOB_LABEL}={ref.name}").items
    return [_whole(job, kind) for job in listed]


def _by_uid_label(api: Api, kind: Kind, ref: JobRef) -> list[Document]:
    listed = api.list(kind.path(ref.namespace), labels=f"{well_known.UID_LABEL}={ref.uid}").items
    return [_whole(job, kind) for job in listed]


def _all(api: Api, kind: Kind, ref: JobRef) -> list[Document]:
    return [_whole(job, kind) for job in api.list(kind.path(ref.namespace)).items]


def _by_name(api: Api, kind: Kind, ref: JobRef) -> list[Document]:
    found = api.find(kind.path(ref.namespace, ref.name))
    return [] if found is None else [_whole(found, kind)]


def _whole(job: Document, kind: Kind) -> Document:
    """Return an item of a list with the two words that lists leave out."""
    return {"apiVersion": kind.api, "kind": kind.name} | job


def _age(one: tuple[Kind, Document]) -> tuple[str, int]:
    return str(one[1]["metadata"]["creationTimestamp"]), attempt_of(one[1])


def runtime(api: Api, job: Document) -> Document | None:
    """Return the runtime that a TrainJob refers to, if it may be read."""
    reference = job["spec"].get("runtimeRef") or {}
    if reference.get("kind") == "TrainingRuntime":
        return api.find(
            resources.TRAINING_RUNTIME.path(job["metadata"]["namespace"], reference.get("name", ""))
        )
    return api.find(resources.CLUSTER_RUNTIME.path("", reference.get("name", "")))


def workload(api: Api, job: Mapping[str, Any]) -> Document | None:
    """Return Kueue's Workload of a job, if it has made one."""
    namespace, uid = job["metadata"]["namespace"], job["metadata"]["uid"]
    found = api.list(resources.WORKLOAD.path(namespace), labels=f"kueue.x-k8s.io/job-uid={uid}").items
    return found[-1] if found else None


def _taker(api: Api, workload: Document) -> Document | None:
    """Return the Workload for which a job had to make way, as far as this user may look for it."""
    from mpijob.formats.status import kueue_workload  # only for jobs in a queue

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
    """Return the job's place in its queue, from 0, where Kueue's visibility API tells it.

    It is served by Kueue itself: while that is away, a job is looked at without its place.
    """
    metadata = job["metadata"]
    queue = metadata["labels"][well_known.QUEUE_LABEL]
    if not job["spec"].get("suspend", (job["spec"].get("runPolicy") or {}).get("suspend")):
        return None  # it does not wait
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
    """Return the events of the job's objects, all of which carry its name in front."""
    from mpijob.formats.kubernetes.metadata import controller_notes  # a list needs none of it yet

    events = api.list(resources.EVENT.path(namespace)).items
    return [
        one
        for one in events
        if belongs((one.get("involvedObject") or {}).get("name", ""), name)
        and not controller_notes.is_own(one)
    ]


def belongs(object_name: str, name: str) -> bool:
    """Whether an object is the job's: `bert`, `bert-node-0-1-x7k2p`, `trainjob-bert-4f2a1`; not `bert-large`."""
    for prefix in ("", "trainjob-", "mpijob-"):
        rest = object_name.removeprefix(prefix)
        if rest == name or rest.startswith((f"{name}-node-", f"{name}-launcher", f"{name}-worker-")):
            return True
        if prefix and rest.startswith(f"{name}-") and len(rest) - len(name) == 6:
            return True
    return False
