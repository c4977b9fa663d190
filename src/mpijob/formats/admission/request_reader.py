"""Reads an AdmissionReview for `admission/webhook`, and builds the patch that every job gets.

The patch only adds what is missing: explicit values of the user stay and are checked. `trainjob` and `mpijob` read
the jobs, `pod_templates` their pods. Requests of the cluster's own engines do not get here (`cluster.trust`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from mpijob.errors import MpiJobError
from mpijob.formats.admission import gpu_count, pod_templates
from mpijob.formats.kubernetes import mpijob, network_policy, trainjob
from mpijob.formats.kubernetes.metadata import controller_notes, identity, passthrough, well_known
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.runtimes import builtin, lint
from mpijob.model import MPIJob, job_uid
from mpijob.model.platform.admission_request import Incoming, Pods
from mpijob.model.spec.network import Destination
from mpijob.model.spec.quantity import NONE, parse

_IDENTITY_LABELS = (
    well_known.UID_LABEL,
    well_known.JOB_LABEL,
    well_known.ATTEMPT_LABEL,
    well_known.OWNER_LABEL,
    well_known.MANAGED_LABEL,
)
_IDENTITY_NOTES = (well_known.OWNER_LABEL, well_known.OWNER_GROUPS, well_known.REST_ANNOTATION)
_JOBS = ("TrainJob", "MPIJob")
_FIXED = {
    # Queues patch TrainJobs (`runtimePatches`): patches are checked too.
    "TrainJob": ("trainer", "runtimeRef", "initializer"),
    "MPIJob": ("mpiReplicaSpecs", "slotsPerWorker", "mpiImplementation", "sshAuthMountPath"),
}


def read(review: Mapping[str, Any], runtime: Mapping[str, Any] | None = None) -> Incoming:
    """Return an AdmissionReview's request; `runtime` is the one that a TrainJob names."""
    request = review["request"]
    document, old = request.get("object") or {}, request.get("oldObject") or {}
    kind, metadata = request["kind"]["kind"], document.get("metadata") or {}
    user, groups = request["userInfo"].get("username", ""), tuple(request["userInfo"].get("groups") or ())
    labels, updating = _labels(document), request["operation"] == "UPDATE"
    brought = runtime is not None and runtime.get("kind") == "TrainingRuntime" and not updating
    given = [document, *([runtime] if runtime is not None and brought else ())]
    pods = tuple(
        one for part in given for one in pod_templates.read(part, str(part.get("kind") or kind), runtime)
    )
    before = tuple(pod_templates.read(old, kind, runtime))
    name = metadata.get("name") or request.get("name") or metadata.get("generateName", "")
    result = _read_job({**document, "kind": kind, "metadata": {**metadata, "name": name}}, runtime)
    job = result.job
    scaled = updating and kind == "MPIJob" and _is_scaled(job, document, old)
    image = job.image if job is not None and not updating else ""
    return Incoming(
        operation=request["operation"],
        kind=kind,
        namespace=request.get("namespace", ""),
        name=name,
        user=user,
        groups=groups,
        uid=labels.get(well_known.UID_LABEL, ""),
        uid_is_own=_uid_is_own(labels.get(well_known.UID_LABEL, ""), request.get("namespace", ""), user),
        owner=owner(document),
        reidentified=tuple(_reidentified(document, old)) if updating else (),
        contradictions=() if updating else result.contradictions,
        egress=() if updating else _egress(document, runtime, request.get("namespace", "")),
        job=job,
        unreadable=result.unreadable,
        gpus=result.gpus,
        worker_gpus=result.worker_gpus,
        queue=labels.get(well_known.QUEUE_LABEL, ""),
        deadline_seconds=_policy(document, kind).get("activeDeadlineSeconds"),
        rewritten=frozenset(_rewritten(document, old, kind)) if updating else frozenset(),
        # Unchanged pods were checked when they were new.
        pods=() if updating and pods == before else pods,
        images=tuple(sorted({*_images(document, pods), image} - {"", *_images(old, before)})),
        classes=tuple(sorted({*_classes(document, pods)} - {"", *_classes(old, before)})),
        secrets=_newly(pod_templates.secrets, given, old),
        config_maps=_newly(pod_templates.config_maps, given, old),
        changed=tuple(_changed(kind, document, old, scaled)) if updating else (),
        scaled=scaled,
        traps=() if trainjob.is_managed(document) else lint.lint(document) or (),
    )


def owner(document: Mapping[str, Any]) -> str:
    """Return a job's owner: the annotation has the full name."""
    return identity.owner_of(document.get("metadata") or {})


def _uid_is_own(uid: str, namespace: str, user: str) -> bool:
    return not uid or job_uid.belongs_to(uid, namespace, user)


def _reidentified(document: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[str]:
    """Yield the identity labels and annotations that an update adds, changes or removes."""
    now, before = document.get("metadata") or {}, old.get("metadata") or {}
    for place, keys in (("labels", _IDENTITY_LABELS), ("annotations", _IDENTITY_NOTES)):
        result, was = now.get(place) or {}, before.get(place) or {}
        yield from (f"metadata.{place}[{key}]" for key in keys if result.get(key) != was.get(key))


def _newly(
    named: Callable[[Any], Iterator[str]], given: Iterable[Mapping[str, Any]], old: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return the names in the new documents that the old ones did not have."""
    return tuple(sorted({name for part in given for name in named(part.get("spec"))} - {*named(old)}))


def _egress(
    document: Mapping[str, Any], runtime: Mapping[str, Any] | None, namespace: str
) -> tuple[Destination, ...]:
    """Return the destinations in our annotation and in variables."""
    if document.get("kind", "") not in _JOBS:
        return ()
    metadata = {**(document.get("metadata") or {}), "namespace": namespace}
    return network_policy.egress({**document, "metadata": metadata}, runtime)


def runtime_name(document: Mapping[str, Any]) -> tuple[str, str]:
    """Return kind and name of a TrainJob's runtime."""
    reference = (document.get("spec") or {}).get("runtimeRef") or {}
    return reference.get("kind") or "ClusterTrainingRuntime", reference.get("name") or ""


def _images(document: Mapping[str, Any], pods: Iterable[Pods]) -> Iterator[str]:
    """Yield the images in a document: those of its pods, and those for its runtime."""
    trainer = (document.get("spec") or {}).get("trainer") or {}
    yield str(trainer.get("image") or "")
    yield from (image for pod in pods for image in pod.images)


def _classes(document: Mapping[str, Any], pods: Iterable[Pods]) -> Iterator[str]:
    """Yield the priority classes in a document: for pods, for Kueue, for the MPI Operator's gang."""
    policy = (document.get("spec") or {}).get("runPolicy") or {}
    yield str((policy.get("schedulingPolicy") or {}).get("priorityClass") or "")
    yield _labels(document).get(well_known.PRIORITY_LABEL, "")
    yield from (pod.priority_class for pod in pods)


def _policy(document: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return the part of a document with the deadline and the suspension."""
    spec = document.get("spec") or {}
    return (spec.get("runPolicy") if kind == "MPIJob" else spec) or {}


def _rewritten(document: Mapping[str, Any], old: Mapping[str, Any], kind: str) -> Iterator[str]:
    """Yield changes of queue and deadline; a suspended job may leave its queue, but not start in the same update."""
    now, before = _policy(document, kind), _policy(old, kind)
    if now.get("activeDeadlineSeconds") != before.get("activeDeadlineSeconds"):
        yield "deadline_seconds"
    queue, left = (_labels(one).get(well_known.QUEUE_LABEL, "") for one in (document, old))
    runs = not now.get("suspend") and bool(left or before.get("suspend"))
    if runs if not queue else queue != left:
        yield "queue"


def _labels(document: Mapping[str, Any]) -> Mapping[str, str]:
    return (document.get("metadata") or {}).get("labels") or {}


class _ReadJob(NamedTuple):
    """The MPI job of a document, with the GPUs of one worker and of all pods; or why it cannot be read."""

    job: MPIJob | None = None
    worker_gpus: int = 0
    gpus: int = 0
    unreadable: str = ""
    contradictions: tuple[str, ...] = ()


def _read_job(document: Mapping[str, Any], runtime: Mapping[str, Any] | None) -> _ReadJob:
    """Return a document's MPI job; empty for runtimes and other kinds of jobs."""
    try:
        job = _job(document, runtime)
        if job is None:
            return _ReadJob()
        for resources in (*(part.job.resources for part in job.parts), job.launcher):
            for amount in (resources.cpu, resources.memory):
                if amount != NONE:
                    # A malformed amount would pass every quota.
                    parse(amount)
        workers, gpus = gpu_count.count(document, runtime, job.workers)
        return _ReadJob(job, workers, gpus, contradictions=_contradictions(document, runtime))
    except MpiJobError as error:
        return _ReadJob(unreadable=error.message)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return _ReadJob(unreadable=f"{type(error).__name__}: {error}")


def _contradictions(document: Mapping[str, Any], runtime: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the fields in which our annotation contradicts the document."""
    notes = (document.get("metadata") or {}).get("annotations") or {}
    if document["kind"] == "MPIJob":
        return passthrough.contradictions(mpijob.native(document), notes, mpijob.launch_line(document))
    whole = [document, *([runtime] if runtime is not None else ())]
    return passthrough.contradictions(trainjob.native(whole), notes, trainjob.launch_line(whole))


# Users may write our annotation, so only one of its fields counts: the limits of an elastic job, which the document
# does not have.
def _job(document: Mapping[str, Any], runtime: Mapping[str, Any] | None) -> MPIJob | None:
    """Return the MPI job as its engine reads it."""
    if document["kind"] == "MPIJob":
        job = mpijob.native(document)
        elastic = passthrough.elastic(document["metadata"].get("annotations") or {})
        return job if job.elastic is not None else job.replace(elastic=elastic)
    if document["kind"] == "TrainJob" and runtime is not None and builtin.is_mpi(runtime):
        return trainjob.native([document, runtime])
    return None


def _is_scaled(job: MPIJob | None, document: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Whether an update changes the number of an MPIJob's workers and nothing else that must not change."""
    now, before = (_unscaled(one) for one in (document, old))
    if job is None or job.elastic is None or now != before:
        return False
    counts = [_workers(one).get("replicas") for one in (document, old)]
    return counts[0] != counts[1] and job.elastic.min_workers <= job.workers <= job.elastic.max_workers


def _workers(document: Mapping[str, Any]) -> Mapping[str, Any]:
    return ((document.get("spec") or {}).get("mpiReplicaSpecs") or {}).get("Worker") or {}


def _unscaled(document: Mapping[str, Any]) -> dict[str, Any]:
    replicas = dict((document.get("spec") or {}).get("mpiReplicaSpecs") or {})
    return replicas | {"Worker": {**_workers(document), "replicas": None}}


def _changed(kind: str, document: Mapping[str, Any], old: Mapping[str, Any], scaled: bool) -> Iterator[str]:
    """Yield changed fields of a job that must not change; of runtimes, only those of our own jobs."""
    now, before = document.get("spec") or {}, old.get("spec") or {}
    if kind in _FIXED:
        fixed = [name for name in _FIXED[kind] if not (scaled and name == "mpiReplicaSpecs")]
        yield from (f"spec.{name}" for name in fixed if now.get(name) != before.get(name))
    elif now != before and any(_labels(one).get(well_known.UID_LABEL) for one in (document, old)):
        yield "spec"


# -- what is added -----------------------------------------------------------------------------------
def patches(
    review: Mapping[str, Any],
    *,
    restricted: bool = True,
    deadline_seconds: float | None = None,
    queue: str = "",
) -> list[Document]:
    """Return the JSON patch for every job: owner, no service mesh, no token.

    Pods of a `restricted` namespace also get the security context that is required there; elsewhere an image may need
    root.
    """
    request = review["request"]
    document, kind = request.get("object") or {}, request["kind"]["kind"]
    patch = Patch(document)
    for path, template in pod_templates.templates(document, kind):
        _harmless(patch, path)
        if restricted:
            _restricted(patch, path, template.get("spec") or {})
    own = kind == "MPIJob" or bool(_labels(document).get(well_known.UID_LABEL))
    places = [path for path, _ in pod_templates.templates(document, kind)] if own else []
    _owned(patch, request["userInfo"], places)
    if kind in _JOBS:
        _limited(patch, document, kind, deadline_seconds, queue)
    return patch.operations


class Patch:
    """Builds a JSON patch; missing parents of a value are added."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document: Any = _copy(document)
        self.operations: list[Document] = []

    def put(self, path: str, value: Any, *, anyway: bool = False) -> None:
        """Set a value if it is missing; with `anyway` also if it is set."""
        at, here, steps = "", self._document, _steps(path)
        for step in steps[:-1]:
            at += f"/{_escaped(step)}"
            below = _below(here, step)
            if below is None:
                below = {}
                _set(here, step, below)
                self.operations.append({"op": "add", "path": at, "value": {}})
            here = below
        found = _below(here, steps[-1])
        if (found is None) or (anyway and found != value):
            _set(here, steps[-1], value)
            self.operations.append({"op": "add", "path": f"{at}/{_escaped(steps[-1])}", "value": value})


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(one) for key, one in value.items()}
    return [_copy(one) for one in value] if isinstance(value, list) else value


def _steps(path: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


def _below(here: Any, step: str) -> Any:
    return here[int(step)] if isinstance(here, list) else here.get(step)


def _set(here: Any, step: str, value: Any) -> None:
    here[int(step) if isinstance(here, list) else step] = value


def _harmless(patch: Patch, path: str) -> None:
    """Keep service meshes (label and annotation, for different versions) and service account tokens out."""
    istio = _escaped("sidecar.istio.io/inject")
    patch.put(f"{path}/metadata/labels/{istio}", "false", anyway=True)
    patch.put(f"{path}/metadata/annotations/{istio}", "false", anyway=True)
    patch.put(f"{path}/metadata/labels/{_escaped('istio.io/dataplane-mode')}", "none")
    patch.put(f"{path}/spec/automountServiceAccountToken", False)


def _restricted(patch: Patch, path: str, spec: Mapping[str, Any]) -> None:
    # A pod that asks for root is left to the checks.
    if (spec.get("securityContext") or {}).get("runAsUser") != 0:
        patch.put(f"{path}/spec/securityContext/runAsNonRoot", True)
    patch.put(f"{path}/spec/securityContext/seccompProfile", {"type": "RuntimeDefault"})
    for field in ("initContainers", "containers"):
        for index, _ in enumerate(spec.get(field) or ()):
            own = f"{path}/spec/{field}/{index}/securityContext"
            patch.put(f"{own}/allowPrivilegeEscalation", False)
            patch.put(f"{own}/capabilities/drop", ["ALL"])


def _owned(patch: Patch, who: Mapping[str, Any], places: Iterable[str]) -> None:
    """Set owner and cost labels to the authenticated user, whatever the document says."""
    user, groups = str(who.get("username", "")), "\n".join(who.get("groups") or ())
    patch.put(f"/metadata/annotations/{_escaped(well_known.OWNER_GROUPS)}", groups, anyway=True)
    for place in ("", *places):
        if label := well_known.as_label(user):
            patch.put(f"{place}/metadata/labels/{_escaped(well_known.OWNER_LABEL)}", label, anyway=True)
            patch.put(
                f"{place}/metadata/labels/{_escaped(well_known.COST_PREFIX + 'user')}", label, anyway=True
            )
        patch.put(f"{place}/metadata/annotations/{_escaped(well_known.OWNER_LABEL)}", user, anyway=True)


def _limited(
    patch: Patch, document: Mapping[str, Any], kind: str, deadline_seconds: float | None, queue: str
) -> None:
    if deadline_seconds is not None:
        above = "/spec/runPolicy" if kind == "MPIJob" else "/spec"
        patch.put(f"{above}/activeDeadlineSeconds", max(1, int(deadline_seconds)))
    if not queue:
        return
    waits = controller_notes.read(document) if _policy(document, kind).get("suspend") else None
    if waits is None:
        patch.put(f"/metadata/labels/{_escaped(well_known.QUEUE_LABEL)}", queue)
    elif not waits.queue:
        # With the queue's label it would start before the other jobs have ended.
        place = f"/metadata/annotations/{_escaped(well_known.AFTER_ANNOTATION)}"
        patch.put(place, controller_notes.written(controller_notes.Note(waits.jobs, queue)), anyway=True)
