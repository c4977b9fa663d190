"""An AdmissionReview read into what is judged, and the changes that make an ordinary job safe.

Only what is missing is added: an explicit word of the user stands, and is judged. Nobody is trusted here: requests of
the cluster's own engines do not reach us (`cluster.trust`). The neighbour `trainjob` reads
jobs with their runtimes, `mpijob` those of the MPI Operator, `pod_templates` what their pods would be given.
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
    # Queues lay patches over it: those are judged.
    "TrainJob": ("trainer", "runtimeRef", "initializer"),
    "MPIJob": ("mpiReplicaSpecs", "slotsPerWorker", "mpiImplementation", "sshAuthMountPath"),
}


def read(review: Mapping[str, Any], runtime: Mapping[str, Any] | None = None) -> Incoming:
    """Return the request of an AdmissionReview; `runtime` is the one that a TrainJob names."""
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
    told = _told({**document, "kind": kind, "metadata": {**metadata, "name": name}}, runtime)
    job = told.job
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
        contradictions=() if updating else told.contradictions,
        egress=() if updating else _egress(document, runtime, request.get("namespace", "")),
        job=job,
        unreadable=told.unreadable,
        gpus=told.gpus,
        worker_gpus=told.worker_gpus,
        queue=labels.get(well_known.QUEUE_LABEL, ""),
        deadline_seconds=_policy(document, kind).get("activeDeadlineSeconds"),
        rewritten=frozenset(_rewritten(document, old, kind)) if updating else frozenset(),
        # Judged when they were new.
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
    """Return whose a job is: the annotation has the name in full."""
    return identity.owner_of(document.get("metadata") or {})


def _uid_is_own(uid: str, namespace: str, user: str) -> bool:
    return not uid or job_uid.belongs_to(uid, namespace, user)


def _reidentified(document: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[str]:
    """Yield the labels and annotations of a job's identity that an update adds, changes or takes away."""
    now, before = document.get("metadata") or {}, old.get("metadata") or {}
    for place, keys in (("labels", _IDENTITY_LABELS), ("annotations", _IDENTITY_NOTES)):
        told, was = now.get(place) or {}, before.get(place) or {}
        yield from (f"metadata.{place}[{key}]" for key in keys if told.get(key) != was.get(key))


def _newly(
    named: Callable[[Any], Iterator[str]], given: Iterable[Mapping[str, Any]], old: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return the names that documents give to pods and that were not given before."""
    return tuple(sorted({name for part in given for name in named(part.get("spec"))} - {*named(old)}))


def _egress(
    document: Mapping[str, Any], runtime: Mapping[str, Any] | None, namespace: str
) -> tuple[Destination, ...]:
    """Return where a job wants its pods to go: by our annotation and by its variables."""
    if document.get("kind", "") not in _JOBS:
        return ()
    metadata = {**(document.get("metadata") or {}), "namespace": namespace}
    return network_policy.egress({**document, "metadata": metadata}, runtime)


def runtime_name(document: Mapping[str, Any]) -> tuple[str, str]:
    """Return kind and name of the runtime that a TrainJob names."""
    reference = (document.get("spec") or {}).get("runtimeRef") or {}
    return reference.get("kind") or "ClusterTrainingRuntime", reference.get("name") or ""


def _images(document: Mapping[str, Any], pods: Iterable[Pods]) -> Iterator[str]:
    """Yield the images that a document names: in its pods, and for whatever its runtime starts."""
    trainer = (document.get("spec") or {}).get("trainer") or {}
    yield str(trainer.get("image") or "")
    yield from (image for pod in pods for image in pod.images)


def _classes(document: Mapping[str, Any], pods: Iterable[Pods]) -> Iterator[str]:
    """Yield the priority classes that a document names: for its pods, for Kueue, for a gang of the MPI Operator."""
    policy = (document.get("spec") or {}).get("runPolicy") or {}
    yield str((policy.get("schedulingPolicy") or {}).get("priorityClass") or "")
    yield _labels(document).get(well_known.PRIORITY_LABEL, "")
    yield from (pod.priority_class for pod in pods)


def _policy(document: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return where a job says how long it may take, and whether it rests."""
    spec = document.get("spec") or {}
    return (spec.get("runPolicy") if kind == "MPIJob" else spec) or {}


def _rewritten(document: Mapping[str, Any], old: Mapping[str, Any], kind: str) -> Iterator[str]:
    """Yield what an update changes of queue and deadline; a job that rests may leave its queue, but not start so."""
    now, before = _policy(document, kind), _policy(old, kind)
    if now.get("activeDeadlineSeconds") != before.get("activeDeadlineSeconds"):
        yield "deadline_seconds"
    queue, left = (_labels(one).get(well_known.QUEUE_LABEL, "") for one in (document, old))
    runs = not now.get("suspend") and bool(left or before.get("suspend"))
    if runs if not queue else queue != left:
        yield "queue"


def _labels(document: Mapping[str, Any]) -> Mapping[str, str]:
    return (document.get("metadata") or {}).get("labels") or {}


class _Told(NamedTuple):
    """The MPI job of a document and the GPUs of one worker and of all its pods; or why it cannot be read."""

    job: MPIJob | None = None
    worker_gpus: int = 0
    gpus: int = 0
    unreadable: str = ""
    contradictions: tuple[str, ...] = ()


def _told(document: Mapping[str, Any], runtime: Mapping[str, Any] | None) -> _Told:
    """Return the MPI job, and nothing for a runtime and for jobs of other kinds."""
    try:
        job = _job(document, runtime)
        if job is None:
            return _Told()
        for resources in (*(part.job.resources for part in job.parts), job.launcher):
            for amount in (resources.cpu, resources.memory):
                if amount != NONE:
                    # What is no number could be held against no quota.
                    parse(amount)
        workers, gpus = gpu_count.count(document, runtime, job.workers)
        return _Told(job, workers, gpus, contradictions=_contradictions(document, runtime))
    except MpiJobError as error:
        return _Told(unreadable=error.message)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return _Told(unreadable=f"{type(error).__name__}: {error}")


def _contradictions(document: Mapping[str, Any], runtime: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the fields of which our annotation says something else than the document."""
    notes = (document.get("metadata") or {}).get("annotations") or {}
    if document["kind"] == "MPIJob":
        return passthrough.contradictions(mpijob.native(document), notes, mpijob.launch_line(document))
    whole = [document, *([runtime] if runtime is not None else ())]
    return passthrough.contradictions(trainjob.native(whole), notes, trainjob.launch_line(whole))


def _job(document: Mapping[str, Any], runtime: Mapping[str, Any] | None) -> MPIJob | None:
    """Return the MPI job as its engine reads it.

    Our annotation is the user's to write, so it is believed only in what no field tells: between how many workers
    a job goes on.
    """
    if document["kind"] == "MPIJob":
        job = mpijob.native(document)
        told = passthrough.elastic(document["metadata"].get("annotations") or {})
        return job if job.elastic is not None else job.replace(elastic=told)
    if document["kind"] == "TrainJob" and runtime is not None and builtin.is_mpi(runtime):
        return trainjob.native([document, runtime])
    return None


def _is_scaled(job: MPIJob | None, document: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Whether an update of an MPIJob changes the number of its workers, and nothing else that may not change."""
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
    """Yield the fields of a job that differ though a job does not change; of a runtime, those of our jobs' own."""
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
    """Return the changes, as a JSON patch, that every job gets: owner, no mesh, no token.

    Pods of a `restricted` namespace get the security context without which they would be refused there; elsewhere
    an image may need to be root, and is left alone.
    """
    request = review["request"]
    document, kind = request.get("object") or {}, request["kind"]["kind"]
    made = Patch(document)
    for path, template in pod_templates.templates(document, kind):
        _harmless(made, path)
        if restricted:
            _restricted(made, path, template.get("spec") or {})
    own = kind == "MPIJob" or bool(_labels(document).get(well_known.UID_LABEL))
    places = [path for path, _ in pod_templates.templates(document, kind)] if own else []
    _owned(made, request["userInfo"], places)
    if kind in _JOBS:
        _limited(made, document, kind, deadline_seconds, queue)
    return made.operations


class Patch:
    """A JSON patch as it grows: a value that is missing is added with all that must stand above it."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document: Any = _copy(document)
        self.operations: list[Document] = []

    def put(self, path: str, value: Any, *, anyway: bool = False) -> None:
        """Set a value where there is none; `anyway` also where there is another."""
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


def _harmless(made: Patch, path: str) -> None:
    """Keep a mesh away (label and annotation, as its generations want), and the token out."""
    istio = _escaped("sidecar.istio.io/inject")
    made.put(f"{path}/metadata/labels/{istio}", "false", anyway=True)
    made.put(f"{path}/metadata/annotations/{istio}", "false", anyway=True)
    made.put(f"{path}/metadata/labels/{_escaped('istio.io/dataplane-mode')}", "none")
    made.put(f"{path}/spec/automountServiceAccountToken", False)


def _restricted(made: Patch, path: str, spec: Mapping[str, Any]) -> None:
    # Who asks for root is judged, not helped.
    if (spec.get("securityContext") or {}).get("runAsUser") != 0:
        made.put(f"{path}/spec/securityContext/runAsNonRoot", True)
    made.put(f"{path}/spec/securityContext/seccompProfile", {"type": "RuntimeDefault"})
    for field in ("initContainers", "containers"):
        for index, _ in enumerate(spec.get(field) or ()):
            own = f"{path}/spec/{field}/{index}/securityContext"
            made.put(f"{own}/allowPrivilegeEscalation", False)
            made.put(f"{own}/capabilities/drop", ["ALL"])


def _owned(made: Patch, who: Mapping[str, Any], places: Iterable[str]) -> None:
    """Write down who asked and who pays, whatever the document says: an owner is not a claim."""
    user, groups = str(who.get("username", "")), "\n".join(who.get("groups") or ())
    made.put(f"/metadata/annotations/{_escaped(well_known.OWNER_GROUPS)}", groups, anyway=True)
    for place in ("", *places):
        if label := well_known.as_label(user):
            made.put(f"{place}/metadata/labels/{_escaped(well_known.OWNER_LABEL)}", label, anyway=True)
            made.put(
                f"{place}/metadata/labels/{_escaped(well_known.COST_PREFIX + 'user')}", label, anyway=True
            )
        made.put(f"{place}/metadata/annotations/{_escaped(well_known.OWNER_LABEL)}", user, anyway=True)


def _limited(
    made: Patch, document: Mapping[str, Any], kind: str, deadline_seconds: float | None, queue: str
) -> None:
    if deadline_seconds is not None:
        above = "/spec/runPolicy" if kind == "MPIJob" else "/spec"
        made.put(f"{above}/activeDeadlineSeconds", max(1, int(deadline_seconds)))
    if not queue:
        return
    waits = controller_notes.read(document) if _policy(document, kind).get("suspend") else None
    if waits is None:
        made.put(f"/metadata/labels/{_escaped(well_known.QUEUE_LABEL)}", queue)
    elif not waits.queue:
        # In the queue at once, it would start before the others end.
        place = f"/metadata/annotations/{_escaped(well_known.AFTER_ANNOTATION)}"
        made.put(place, controller_notes.written(controller_notes.Note(waits.jobs, queue)), anyway=True)
