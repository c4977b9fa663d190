"""A job ⇄ the MPI Operator's MPIJob (kubeflow.org/v2beta1).

It serves what Trainer cannot: Intel MPI, MPICH, a launcher with an image of its own, elastic jobs. `trainjob` writes
jobs for Trainer.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

from mpijob.errors import Finding, InvalidJob
from mpijob.formats.kubernetes import pod_template
from mpijob.formats.kubernetes.metadata import controller_notes, passthrough, well_known
from mpijob.formats.kubernetes.metadata.passthrough import Foreign
from mpijob.formats.kubernetes.metadata.well_known import Document, Gang, Shape, from_labels, is_ours
from mpijob.formats.kubernetes.pod_reader import from_pods, stripped, understandable
from mpijob.formats.kubernetes.trainjob import (
    Reading,
    base_name,
    is_managed,
    job_metadata,
    remark,
    strip_metadata,
)
from mpijob.model import Elastic, Family, MPIJob, Role
from mpijob.model.spec.command import elastic_ranks

API, KIND = "kubeflow.org/v2beta1", "MPIJob"
_IMPLEMENTATIONS = {Family.OPENMPI: "OpenMPI", Family.INTEL: "Intel", Family.MPICH: "MPICH"}
# The operator appends these to the launcher's variables; ours would be duplicates.
_SET_BY_OPERATOR = frozenset(
    {"OMPI_MCA_orte_keep_fqdn_hostnames", "OMPI_MCA_orte_default_hostfile", "HYDRA_HOST_FILE"}
    | {"I_MPI_HYDRA_HOST_FILE", "I_MPI_PERHOST"}
)
ALL_ALIKE = "the MPI Operator creates workers that are all alike"
_EXPRESSED = ("slotsPerWorker", "mpiImplementation", "sshAuthMountPath")


def write(job: MPIJob, shape: Shape | None = None, foreign: Foreign | None = None) -> tuple[Document, ...]:
    """Return the one document that the MPI Operator needs; raise InvalidJob if it cannot express the job."""
    shape = shape or Shape()
    if shape.family not in _IMPLEMENTATIONS:
        message = f"the MPI Operator does not support the MPI library '{shape.family.value}'"
        raise well_known.refuse("mpi", message, f"use one of {', '.join(_IMPLEMENTATIONS)}")
    if job.groups:
        raise well_known.refuse("groups", ALL_ALIKE, "remove groups, or use Kubeflow Trainer")
    # The operator has no webhook: it would report a name that is too long in an event only, with an empty status.
    well_known.refuse_long_names(job, shape, f"-worker-{job.most_workers - 1}")
    document: Document = {
        "apiVersion": API,
        "kind": KIND,
        "metadata": job_metadata(job, shape),
        "spec": _spec(job, shape),
    }
    passthrough.annotate(document, job, native(document))
    return passthrough.merged((document,), foreign or Foreign())


@understandable
def read(documents: Sequence[Mapping[str, Any]]) -> Reading:
    """Return the job of an MPIJob, its fields that no job has, and what changes when it is written again."""
    document = next((document for document in documents if document.get("kind") == KIND), None)
    if document is None:
        raise InvalidJob("there is no MPIJob among the documents", hint=f"kind: {KIND}, apiVersion: {API}")
    if document.get("apiVersion") != API:
        version = document.get("apiVersion")
        raise InvalidJob(
            f"MPIJob of {version} is not served by the MPI Operator", hint=f"its version is {API}"
        )
    notes = document["metadata"].get("annotations") or {}
    job = passthrough.annotated_job(native(document), notes, launch_line(document))
    foreign = passthrough.beyond([_stripped(document)], _own_documents(job, family(document)))
    return Reading(job, foreign, tuple(_remarks(document)))


def family(document: Mapping[str, Any]) -> Family:
    """Return the MPI library that an MPIJob uses; the operator's default is Open MPI."""
    named = document["spec"].get("mpiImplementation") or "OpenMPI"
    found = next((family for family, name in _IMPLEMENTATIONS.items() if name == named), None)
    if found is None:
        known = ", ".join(_IMPLEMENTATIONS.values())
        raise InvalidJob(f"the MPI library {named!r} of an MPIJob is not known", hint=f"known are {known}")
    return found


def _spec(job: MPIJob, shape: Shape) -> Document:
    launcher = pod_template.template(job, shape, Role.LAUNCHER, without=_SET_BY_OPERATOR)
    main = launcher["spec"]["containers"][0]
    main["args"], _ = pod_template.launch_words(job, shape)
    if shape.family is not Family.OPENMPI and pod_template.launch_words(job, shape)[1]:
        # A user's own Hydra command has no -localhost, so workers must be able to resolve the launcher's name before
        # it runs.
        name = well_known.name(job, shape)
        main["env"].append({"name": "MPIJOB_SELF", "value": f"{name}-launcher.{name}"})
    worker = pod_template.template(job, shape, Role.WORKER)
    return {
        "slotsPerWorker": job.slots,
        "mpiImplementation": _IMPLEMENTATIONS[shape.family],
        "sshAuthMountPath": well_known.SSH,
        # The default creates the launcher with the workers, and mpirun fails until their sshd runs.
        "launcherCreationPolicy": "WaitForWorkersReady",
        "runPolicy": _run_policy(job, shape),
        "mpiReplicaSpecs": {"Launcher": _replicas(1, launcher), "Worker": _replicas(job.workers, worker)},
    }


def _replicas(count: int, template: Document) -> Document:
    # The operator warns about a restart policy in the template, and ignores it.
    del template["spec"]["restartPolicy"]
    return {"replicas": count, "restartPolicy": "Never", "template": template}


def _run_policy(job: MPIJob, shape: Shape) -> Document:
    # Defaults: workers keep running after the launcher has ended, and a failed mpirun is tried six times more.
    policy: Document = {"cleanPodPolicy": "Running", "backoffLimit": 0}
    if job.deadline_seconds is not None:
        policy["activeDeadlineSeconds"] = max(1, math.ceil(job.deadline_seconds))
    if shape.ttl_seconds is not None:
        policy["ttlSecondsAfterFinished"] = shape.ttl_seconds
    if shape.suspend:
        policy["suspend"] = True
    if shape.gang is not Gang.NONE:
        policy["schedulingPolicy"] = _scheduling(job, shape)
    return policy


def _scheduling(job: MPIJob, shape: Shape) -> Document:
    # Not the default, workers and launcher: the launcher is created when the workers are ready, so the gang would
    # never be complete (mpi-operator#608). An elastic job can start with its least number of workers.
    seconds = math.ceil(job.gang_timeout_seconds)
    policy: Document = {"minAvailable": job.fewest_workers, "scheduleTimeoutSeconds": seconds}
    if job.queue and shape.gang is Gang.VOLCANO:
        policy["queue"] = job.queue
    if name := pod_template.priority_class(job, shape):
        policy["priorityClass"] = name
    return policy


def native(document: Mapping[str, Any]) -> MPIJob:
    """Return the job as told by the fields that the operator itself uses, without our annotation."""
    spec, metadata = document["spec"], document["metadata"]
    launcher, worker = _replica(spec, "Launcher"), _replica(spec, "Worker")
    launcher_pod = launcher["template"]["spec"]
    pod = (worker.get("template") or {}).get("spec") or launcher_pod
    policy = spec.get("runPolicy") or {}
    deadline, queue = policy.get("activeDeadlineSeconds"), controller_notes.queue(document)
    queue = queue or str((policy.get("schedulingPolicy") or {}).get("queue") or "")
    family_or_auto = Family.AUTO if family(document) is Family.OPENMPI else family(document)
    slots, pod_fields = int(spec.get("slotsPerWorker") or 1), from_pods(pod, launcher_pod)
    return MPIJob(
        name=base_name(metadata),
        namespace=metadata.get("namespace") or "default",
        mpi=family_or_auto,
        workers=int(worker.get("replicas") or 1),
        slots=slots,
        elastic=_elastic(pod_fields["command"], slots),
        deadline_seconds=None if deadline is None else float(deadline),
        **(from_labels(metadata.get("labels") or {}) | {"queue": queue} | pod_fields),
    )


def launch_line(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the launcher's arguments."""
    container = pod_template.container_of(_replica(document["spec"], "Launcher")["template"]["spec"])
    return tuple(well_known.unescape_variables(str(word)) for word in container.get("args") or ())


def _elastic(command: tuple[str, ...], slots: int) -> Elastic | None:
    """Return the worker limits in the options of an elastic Horovod command: the MPIJob has no field for them."""
    least, most = elastic_ranks(command)
    if most is None:
        return None
    return Elastic(min_workers=max(1, -(-(least or 1) // slots)), max_workers=max(1, most // slots))


def _replica(spec: Mapping[str, Any], role: str) -> Mapping[str, Any]:
    found = (spec.get("mpiReplicaSpecs") or {}).get(role) or {}
    if not found and role == "Launcher":
        raise InvalidJob("the MPIJob has no Launcher", hint="mpiReplicaSpecs needs Launcher and Worker")
    return dict(found)


def _own_documents(job: MPIJob, family: Family) -> tuple[Document, ...]:
    try:
        return write(job, Shape(family=family))
    except InvalidJob:
        return ()


def _stripped(document: Mapping[str, Any]) -> Document:
    rest = copy.deepcopy(dict(document))
    managed = is_managed(document)
    strip_metadata(rest)
    spec, policy = rest["spec"], rest["spec"].get("runPolicy") or {}
    for field in _EXPRESSED:
        spec.pop(field, None)
    policy.pop("activeDeadlineSeconds", None)
    if well_known.QUEUE_LABEL in (document["metadata"].get("labels") or {}):
        policy.pop("suspend", None)
    for replica in (spec["mpiReplicaSpecs"].get(role) for role in ("Launcher", "Worker")):
        if replica is None:
            continue
        replica.pop("replicas", None)
        _strip_template(replica, document, managed)
    return rest


def _strip_template(replica: Document, document: Mapping[str, Any], managed: bool) -> None:
    """Remove what the job expresses from a replica's pod template.

    A launcher's different image stays, and so do resources that were not written here: a job has one amount for both
    request and limit.
    """
    main = pod_template.container_of(replica["template"]["spec"])
    image, job_image = main.get("image"), native(document).image
    resources = None if managed or is_ours(main) else main.get("resources")
    replica["template"] = stripped(replica["template"], managed=managed)
    rest: Any = pod_template.container_of(replica["template"]["spec"])
    if image and image != job_image:
        rest["image"] = image
    if resources:
        rest["resources"] = resources


def _remarks(document: Mapping[str, Any]) -> list[Finding]:
    spec = document["spec"]
    found = []
    if spec.get("runLauncherAsWorker"):
        found.append(
            remark("workers", "the launcher also runs ranks, but the check of the ranks expects none on it")
        )
    if "Worker" not in (spec.get("mpiReplicaSpecs") or {}):
        found.append(remark("workers", "the MPIJob has no workers; one is added"))
    worker = pod_template.container_of(((_replica(spec, "Worker").get("template") or {}).get("spec")) or {})
    if (worker.get("command") or worker.get("args")) and not is_ours(worker):
        found.append(
            remark("command", "the workers' own command is replaced: they run sshd as an ordinary user")
        )
    return found
