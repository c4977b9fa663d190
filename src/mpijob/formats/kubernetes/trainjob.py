"""A job ⇄ Kubeflow Trainer's TrainJob with a TrainingRuntime of its own (trainer.kubeflow.org/v1alpha1).

`mpijob` writes jobs for the MPI Operator.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mpijob.errors import Finding, InvalidJob, Severity
from mpijob.formats.kubernetes import placement, pod_template
from mpijob.formats.kubernetes.metadata import (
    controller_notes,
    identity,
    passthrough,
    well_known,
    worker_groups,
)
from mpijob.formats.kubernetes.metadata.passthrough import Foreign
from mpijob.formats.kubernetes.metadata.well_known import Document, Gang, Order, Shape, from_labels, is_ours
from mpijob.formats.kubernetes.metadata.worker_groups import NODE
from mpijob.formats.kubernetes.pod_reader import from_pods, resources, strip_labels, stripped, understandable
from mpijob.model import Family, MPIJob, Role, WorkerGroup

API = "trainer.kubeflow.org/v1alpha1"
RUNTIME, JOB = "TrainingRuntime", "TrainJob"
_RUNTIMES = (RUNTIME, "ClusterTrainingRuntime")
_STEP_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
# The Kubeflow SDK ignores runtimes without it.
_FRAMEWORK_LABEL = "trainer.kubeflow.org/framework"
_SERVER_FIELDS = (
    *(
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "managedFields",
        "selfLink",
        "ownerReferences",
    ),
    *("finalizers", "deletionTimestamp", "deletionGracePeriodSeconds", "name", "namespace", "generateName"),
)
# Trainer's Secret with the job's key.
KEY_SUFFIX = "-mpi-ssh-auth"
# JobSet's limit for `dependsOn`.
_MAX_DEPENDS_ON = 5
# The random suffix of a Job's pods.
_RANDOM_SUFFIX = "x" * 5
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_TRAINER_FIELDS = ("image", "command", "args", "env", "numNodes", "numProcPerNode", "resourcesPerNode")


class Reading(msgspec.Struct, frozen=True):
    """A job read from documents, with their fields that no job has, and remarks on differences."""

    job: MPIJob
    foreign: Foreign = Foreign()
    remarks: tuple[Finding, ...] = ()


def write(job: MPIJob, shape: Shape | None = None, foreign: Foreign | None = None) -> tuple[Document, ...]:
    """Return the runtime and the job, in the order of creation; raise InvalidJob if Trainer cannot run the job."""
    shape = shape or Shape()
    if shape.family is not Family.OPENMPI:
        message = f"Trainer starts Open MPI only, and the job uses {shape.family.value}"
        raise well_known.refuse("mpi", message, "use the MPI Operator for this job")
    hosts = (workers.host("", workers.number - 1) for workers in worker_groups.of(job))
    well_known.refuse_long_names(
        job, shape, f"-launcher-0-0-{_RANDOM_SUFFIX}", *(f"{host}-{_RANDOM_SUFFIX}" for host in hosts)
    )
    # Each job has a runtime: `spec.trainer.image` sets the launcher's image only, and neither resources nor variables
    # of workers can be set in a TrainJob (trainer#2825, trainer#4030).
    documents = (_runtime(job, shape), _trainjob(job, shape))
    passthrough.annotate(documents[1], job, native(documents))
    if job.groups:
        documents[1]["metadata"].setdefault("annotations", {}).update(worker_groups.written(job))
    return passthrough.merged(documents, foreign or Foreign())


@understandable
def read(documents: Sequence[Mapping[str, Any]]) -> Reading:
    """Return the job of a TrainJob and its runtime; without the runtime, what the TrainJob itself expresses."""
    trainjob = _of_kind(documents, (JOB,))
    if trainjob is None:
        raise InvalidJob("there is no TrainJob among the documents", hint=f"kind: {JOB}, apiVersion: {API}")
    notes = trainjob["metadata"].get("annotations") or {}
    job = passthrough.annotated_job(native(documents), notes, launch_line(documents))
    foreign = passthrough.beyond(_without_expressed(documents), _own_documents(job))
    return Reading(job, foreign, tuple(_remarks(documents)))


def _runtime(job: MPIJob, shape: Shape) -> Document:
    # Trainer applies numNodes of a runtime to the replicated job with the trainer label, which is the launcher. The
    # number of workers is in the TrainJob, from which Trainer sets it for `node`.
    spec: Document = {"mlPolicy": {"numNodes": 1, "mpi": _mpi_policy(job)}}
    if shape.gang is Gang.COSCHEDULING:
        seconds = math.ceil(job.gang_timeout_seconds)
        spec["podGroupPolicy"] = {"coscheduling": {"scheduleTimeoutSeconds": seconds}}
    elif shape.gang is Gang.VOLCANO:
        spec["podGroupPolicy"] = {"volcano": {}}
    spec["template"] = {"spec": _jobset(job, shape)}
    if shape.gang is Gang.VOLCANO and job.queue:
        spec["template"]["metadata"] = {"annotations": {well_known.VOLCANO_QUEUE_ANNOTATION: job.queue}}
    labels = {_FRAMEWORK_LABEL: "mpi"} | well_known.labels(job, shape)
    metadata = {"name": well_known.name(job, shape), "namespace": job.namespace, "labels": labels}
    return {"apiVersion": API, "kind": RUNTIME, "metadata": metadata, "spec": spec}


def _mpi_policy(job: MPIJob) -> Document:
    return {
        "numProcPerNode": job.slots,
        "mpiImplementation": "OpenMPI",
        "sshAuthMountPath": well_known.SSH,
        # With True there are two pods for one node (trainer#3954), and the launcher needs a worker's resources.
        "runLauncherAsNode": False,
    }


def _jobset(job: MPIJob, shape: Shape) -> Document:
    # The launcher starts when the workers are ready, but not in a pod group: Trainer counts the launcher in
    # `minMember`, and a gang that waits for a launcher that waits for the gang never starts. There the launcher
    # itself waits.
    workers = _workers_of(job, shape)
    order = Order.READY if shape.gang is Gang.NONE and len(workers) <= _MAX_DEPENDS_ON else Order.OPEN
    launcher = _replicated("launcher", pod_template.template(job, shape, Role.LAUNCHER, order=order))
    launcher["template"]["metadata"] = {"labels": {_STEP_LABEL: "trainer"}}
    if order is Order.READY:
        launcher["dependsOn"] = [{"name": worker["name"], "status": "Ready"} for worker in workers]
    return {
        # Names must resolve before a pod is ready: the workers' daemons call the launcher back.
        "network": {"publishNotReadyAddresses": True},
        # Workers run sshd and never complete.
        "successPolicy": {"operator": "All", "targetReplicatedJobs": ["launcher"]},
        "replicatedJobs": [*workers, launcher],
    }


def _workers_of(job: MPIJob, shape: Shape) -> list[Document]:
    """Return the replicated jobs of the workers. Trainer sets the number of workers without a group."""
    if not job.groups:
        return [_replicated(NODE, pod_template.template(job, shape, Role.WORKER))]
    found = []
    for part in job.parts:
        template = pod_template.group_template(part, shape, well_known.name(job, shape) + KEY_SUFFIX)
        found.append(_replicated(part.group or NODE, template))
        if part.group:
            found[-1]["template"]["spec"] |= {
                "parallelism": part.job.workers,
                "completions": part.job.workers,
            }
    return found


def _replicated(name: str, template: Document) -> Document:
    # The default backoffLimit of 6 would repeat a failed mpirun silently.
    return {"name": name, "replicas": 1, "template": {"spec": {"backoffLimit": 0, "template": template}}}


def _trainjob(job: MPIJob, shape: Shape) -> Document:
    words, _ = pod_template.launch_words(job, shape)
    spec: Document = {
        "runtimeRef": {
            "apiGroup": "trainer.kubeflow.org",
            "kind": RUNTIME,
            "name": well_known.name(job, shape),
        },
        "trainer": {"numNodes": _nodes(job), "numProcPerNode": job.slots, "args": words},
    }
    if job.deadline_seconds is not None:
        spec["activeDeadlineSeconds"] = max(1, math.ceil(job.deadline_seconds))
    if shape.suspend:
        spec["suspend"] = True
    return {"apiVersion": API, "kind": JOB, "metadata": job_metadata(job, shape), "spec": spec}


def _nodes(job: MPIJob) -> int:
    """Return numNodes. If all workers are in groups there is no job `node`, and Trainer applies it to none."""
    first = job.parts[0]
    return job.workers if first.group else first.job.workers


def job_metadata(job: MPIJob, shape: Shape) -> Document:
    """Return the metadata of the engine's job object."""
    labels = well_known.labels(job, shape)
    if job.queue and shape.gang is not Gang.VOLCANO:
        labels[well_known.QUEUE_LABEL] = job.queue
    if shape.program:
        labels[well_known.PROGRAM_LABEL] = shape.program
    if shape.workload_priority:
        labels[well_known.PRIORITY_LABEL] = shape.workload_priority
    name = well_known.name(job, shape)
    return {"name": name, "namespace": job.namespace, "labels": labels}


def _of_kind(documents: Sequence[Mapping[str, Any]], kinds: tuple[str, ...]) -> Mapping[str, Any] | None:
    return next((document for document in documents if document.get("kind") in kinds), None)


def pod_templates(runtime: Mapping[str, Any] | None) -> dict[str, Any]:
    jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"] if runtime else ()
    return {job["name"]: job["template"]["spec"]["template"] for job in jobs}


def native(documents: Sequence[Mapping[str, Any]]) -> MPIJob:
    """Return the job as told by the fields that Trainer itself uses, without our annotation."""
    trainjob, runtime = _of_kind(documents, (JOB,)), _of_kind(documents, _RUNTIMES)
    assert trainjob is not None
    metadata, trainer = trainjob["metadata"], trainjob["spec"].get("trainer") or {}
    policies = ((runtime or {}).get("spec") or {}).get("mlPolicy") or {}
    policy = policies.get("mpi") or {}
    templates = pod_templates(runtime)
    others = groups(runtime)
    first = NODE if NODE in templates or not others else others[0].name
    worker, launcher = (templates.get(name, {}).get("spec") or {} for name in (first, "launcher"))
    fields = from_labels(metadata.get("labels") or {}) | from_pods(
        worker, _completed_launcher(launcher, trainer)
    )
    fields["queue"] = controller_notes.queue(trainjob) or _volcano_queue(runtime)
    deadline = trainjob["spec"].get("activeDeadlineSeconds")
    return MPIJob(
        name=base_name(metadata),
        namespace=metadata.get("namespace") or "default",
        workers=sum(group.workers for group in others)
        + (
            0
            if first != NODE
            else _workers(trainer.get("numNodes") or policies.get("numNodes"), policy, templates)
        ),
        groups=others,
        slots=int(trainer.get("numProcPerNode") or policy.get("numProcPerNode") or 1),
        deadline_seconds=None if deadline is None else float(deadline),
        **fields,
    )


def groups(runtime: Mapping[str, Any] | None) -> tuple[WorkerGroup, ...]:
    """Return the groups of workers in a runtime of ours."""
    jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"] if runtime else ()
    return tuple(_group(job["name"], job["template"]["spec"]) for job in jobs if _is_group(job))


def _is_group(replicated: Mapping[str, Any]) -> bool:
    labels = (replicated["template"]["spec"]["template"].get("metadata") or {}).get("labels") or {}
    return bool(labels.get(well_known.GROUP_LABEL) == replicated["name"])


def _group(name: str, job: Mapping[str, Any]) -> WorkerGroup:
    template = job["template"]
    pod = template["spec"]
    return WorkerGroup(
        name=name,
        workers=int(job.get("parallelism") or 1),
        slots=int(template["metadata"]["labels"].get(well_known.SLOTS_LABEL) or 1),
        resources=resources(pod_template.container_of(pod)),
        placement=placement.read(pod, Shape()),
    )


def _volcano_queue(runtime: Mapping[str, Any] | None) -> str:
    metadata = (((runtime or {}).get("spec") or {}).get("template") or {}).get("metadata") or {}
    return str((metadata.get("annotations") or {}).get(well_known.VOLCANO_QUEUE_ANNOTATION) or "")


def launch_line(documents: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the launcher's arguments."""
    trainjob, runtime = _of_kind(documents, (JOB,)), _of_kind(documents, _RUNTIMES)
    launcher = pod_templates(runtime).get("launcher", {}).get("spec") or {}
    launcher_container = pod_template.container_of(
        _completed_launcher(launcher, (trainjob or {"spec": {}})["spec"].get("trainer") or {})
    )
    return tuple(well_known.unescape_variables(str(word)) for word in launcher_container.get("args") or ())


def base_name(metadata: Mapping[str, Any]) -> str:
    """Return the job's name, which objects of later attempts have in a label."""
    name = str((metadata.get("labels") or {}).get(well_known.JOB_LABEL) or "")
    return name if name and identity.fits(str(metadata["name"]), name) else str(metadata["name"])


def _workers(number: Any, policy: Mapping[str, Any], templates: Mapping[str, Any]) -> int:
    nodes = int(number or 1)
    has_both = policy.get("runLauncherAsNode") and "node" in templates
    # Trainer creates max(numNodes - 1, 1) nodes beside the launcher (trainer#3954).
    return max(nodes, 2) if has_both else nodes


def _completed_launcher(launcher: Mapping[str, Any], trainer: Mapping[str, Any]) -> Document:
    """Return the launcher's pod spec as Trainer completes it from the TrainJob."""
    pod = copy.deepcopy(dict(launcher)) or {"containers": [{"name": pod_template.CONTAINER}]}
    main: Any = pod_template.container_of(pod)
    for field in ("image", "command", "args"):
        if trainer.get(field):
            main[field] = trainer[field]
    if not is_ours(main) and trainer.get("resourcesPerNode"):
        main["resources"] = trainer["resourcesPerNode"]
    main["env"] = [*(main.get("env") or ()), *(trainer.get("env") or ())]
    return pod


def _own_documents(job: MPIJob) -> tuple[Document, ...]:
    """Return our documents for a job, none if it cannot be written (for example without an image)."""
    try:
        return write(job)
    except InvalidJob:
        return ()


def _without_expressed(documents: Sequence[Mapping[str, Any]]) -> list[Document]:
    managed = any(is_managed(document) for document in documents)
    return [_stripped(document, managed) for document in documents if document.get("kind") in (JOB, RUNTIME)]


def is_managed(document: Mapping[str, Any]) -> bool:
    """Return whether a document was written by mpijob."""
    labels = (document.get("metadata") or {}).get("labels") or {}
    return bool(labels.get(well_known.MANAGED_LABEL) == well_known.MANAGED_BY)


def _stripped(document: Mapping[str, Any], managed: bool) -> Document:
    rest = copy.deepcopy(dict(document))
    strip_metadata(rest)
    spec = rest["spec"]
    if rest["kind"] == JOB:
        spec.pop("runtimeRef", None)
        spec.pop("activeDeadlineSeconds", None)
        spec["trainer"] = {k: v for k, v in (spec.get("trainer") or {}).items() if k not in _TRAINER_FIELDS}
        strip_queue(document, spec)
    else:
        _strip_runtime(spec, managed)
    return rest


def _strip_runtime(spec: Document, managed: bool) -> None:
    spec.pop("mlPolicy", None)
    if managed:
        spec.pop("podGroupPolicy", None)
    for replicated_job in spec["template"]["spec"]["replicatedJobs"]:
        if replicated_job["name"] not in (NODE, "launcher") and not _is_group(replicated_job):
            # A job expresses nothing of such a replicated job (an initializer, say).
            continue
        replicated_job["template"]["spec"]["template"] = stripped(
            replicated_job["template"]["spec"]["template"], managed=managed
        )
        if managed:
            replicated_job.pop("dependsOn", None)


def strip_metadata(document: Document) -> None:
    """Remove what the API server has written and what a job expresses."""
    document.pop("status", None)
    metadata = document["metadata"]
    for field in _SERVER_FIELDS:
        metadata.pop(field, None)
    metadata.pop("labels", None)
    strip_labels(metadata)
    (metadata.get("annotations") or {}).pop(_LAST_APPLIED, None)


def strip_queue(document: Mapping[str, Any], spec: Document) -> None:
    """Remove what Kueue writes: it suspends the jobs of a queue, and patches them to start them."""
    if well_known.QUEUE_LABEL in ((document["metadata"].get("labels")) or {}):
        spec.pop("suspend", None)
    patches = [
        patch for patch in spec.get("runtimePatches") or () if not patch["manager"].startswith("kueue.")
    ]
    spec.pop("runtimePatches", None)
    if patches:
        spec["runtimePatches"] = patches


def _remarks(documents: Sequence[Mapping[str, Any]]) -> list[Finding]:
    trainjob, runtime = _of_kind(documents, (JOB,)), _of_kind(documents, _RUNTIMES)
    assert trainjob is not None
    found = []
    if runtime is None:
        name = (trainjob["spec"].get("runtimeRef") or {}).get("name", "")
        found.append(remark("image", f"the runtime {name} is missing in the input: its settings are unknown"))
    elif (runtime["spec"].get("mlPolicy") or {}).get("mpi", {}).get("runLauncherAsNode"):
        found.append(
            remark(
                "workers", "in the original the launcher also runs ranks; in mpijob every rank is on a worker"
            )
        )
    if (trainjob["spec"].get("initializer") or {}) and runtime is not None:
        found.append(
            remark("volumes", "initializers are kept, but the generated runtime has no job for them")
        )
    return found


def remark(field: str, message: str) -> Finding:
    """Return a finding about a difference to the original document."""
    return Finding(code="READ_DIFFERS", field=field, message=message, severity=Severity.NOTICE)
