"""What job objects say in their own spec and status: TrainJob, MPIJob, and the kinds of kubeflow.org/v1.

`status_reader` combines this with pods, queue and events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mpijob.formats.kubernetes.metadata import well_known, worker_groups
from mpijob.formats.kubernetes.metadata.well_known import container_of
from mpijob.formats.kubernetes.metadata.worker_groups import Workers
from mpijob.formats.status.nested_fields import (
    conditions,
    holds,
    labels,
    moment,
    notes,
    number,
    part,
    parts,
    text,
)
from mpijob.model import Family, Phase, Role
from mpijob.model.platform.cluster_observation import Verdict

Document = Mapping[str, Any]
TRAINER, MPI_OPERATOR, TRAINING_OPERATOR = "trainer", "mpi-operator", "training-operator"
RJOB_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX_LABEL = "jobset.sigs.k8s.io/job-index"
RESTART_LABEL = "jobset.sigs.k8s.io/restart-attempt"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
_KUBEFLOW = "training.kubeflow.org/"
_FAMILIES = {"OpenMPI": Family.OPENMPI, "Intel": Family.INTEL, "MPICH": Family.MPICH, "": Family.OPENMPI}
_REPLICAS = ("mpi", "pytorch", "tf", "xgb", "paddle", "jax", "mx")
_FIRST = ("launcher", "master", "chief", "worker", "ps", "evaluator")
_INITIALIZERS = ("dataset-initializer", "model-initializer")


# A TrainJob has the conditions Suspended, Complete and Failed only: whether it runs is derived from counts and pods.
# An MPIJob and the v1 kinds have Created, Running, Suspended, Succeeded and Failed. A condition with status False
# says the opposite of its name.
class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """What a job object itself says of its shape and its phase."""

    engine: str
    name: str
    mpi: str = ""
    workers: int = 1
    slots: int = 1
    launched: bool = False
    launcher_works: bool = False
    image: str = ""
    suspended: bool = False
    verdict: Verdict | None = None
    shown: Phase | None = None
    deadline_seconds: float | None = None
    ordered: bool = False
    groups: tuple[Workers, ...] = ()

    @property
    def total_slots(self) -> int:
        return sum(group.number * group.slots for group in self.groups) or self.workers * self.slots


def of(job: Document, runtime: Document | None, jobset: Document | None) -> Kind:
    """Return what a job object says, with its runtime and its JobSet if they could be read."""
    if text(job, "kind") == "TrainJob":
        return _trainjob(job, runtime, jobset)
    return _kubeflow(job)


def is_ours(job: Document) -> bool:
    """Return whether a job object was written by mpijob."""
    return labels(job).get(
        well_known.MANAGED_LABEL
    ) == well_known.MANAGED_BY and well_known.JOB_LABEL in labels(job)


# -- Kubeflow Trainer -----------------------------------------------------------------------------
def _trainjob(job: Document, runtime: Document | None, jobset: Document | None) -> Kind:
    ours, policy = is_ours(job), part(runtime, "spec", "mlPolicy")
    mpi, trainer = part(policy, "mpi"), part(job, "spec", "trainer")
    launched = ours or "mpi" in policy or _has_launcher(job, jobset)
    works = mpi.get("runLauncherAsNode") is True
    groups = worker_groups.read(notes(job)) if ours else ()
    nodes = number(trainer, "numNodes") or number(policy, "numNodes") or 1
    verdict = ending(job, "Complete", "Failed") or ending(jobset, "Completed", "Failed")
    return Kind(
        engine=TRAINER,
        name="MPIJob" if ours else "TrainJob",
        mpi=Family.OPENMPI.value if launched else "",
        workers=sum(group.number for group in groups)
        # Trainer creates at least one node beside the launcher (trainer#3954).
        or (max(nodes, 2) if works else nodes),
        slots=number(trainer, "numProcPerNode") or number(mpi, "numProcPerNode") or 1,
        launched=launched,
        launcher_works=works,
        image=text(trainer, "image") or _runtime_image(runtime),
        suspended=part(job, "spec").get("suspend") is True,
        verdict=verdict,
        shown=None if verdict is not None else _shown_by_counts(job, jobset, launched),
        deadline_seconds=_seconds(part(job, "spec")),
        groups=groups,
    )


def _has_launcher(job: Document, jobset: Document | None) -> bool:
    named = [*parts(job, "status", "jobsStatus"), *parts(jobset, "spec", "replicatedJobs")]
    return any(text(name, "name") == "launcher" for name in named)


def _runtime_image(runtime: Document | None) -> str:
    jobs = parts(runtime, "spec", "template", "spec", "replicatedJobs")
    by_name = {text(job, "name"): part(job, "template", "spec", "template", "spec") for job in jobs}
    pod = by_name.get(worker_groups.NODE) or next(iter(by_name.values()), {})
    return text(container_of(pod), "image")


def _shown_by_counts(job: Document, jobset: Document | None, launched: bool) -> Phase | None:
    # Counts of Jobs, not of pods. They are not updated after the end.
    counts = parts(job, "status", "jobsStatus") or parts(jobset, "status", "replicatedJobsStatus")
    if not counts:
        return None
    ready = {text(count, "name") for count in counts if number(count, "ready") or number(count, "succeeded")}
    if launched:
        others = {text(count, "name") for count in counts} - {"launcher", *_INITIALIZERS}
        workers = Phase.INITIALIZING if others and ready >= others else Phase.PENDING
        return Phase.RUNNING if "launcher" in ready else workers
    return Phase.RUNNING if ready - set(_INITIALIZERS) else Phase.PENDING


# -- MPI Operator and Training Operator -----------------------------------------------------------
def _kubeflow(job: Document) -> Kind:
    spec, name = part(job, "spec"), text(job, "kind")
    replicas, policy = replica_specs(job), part(job, "spec", "runPolicy")
    operator = text(job, "apiVersion") == "kubeflow.org/v2beta1"
    is_mpi = name == "MPIJob"
    works = spec.get("runLauncherAsWorker") is True
    counts = {role: number(one, "replicas") or 1 for role, one in replicas.items()}
    family = _FAMILIES.get(text(spec, "mpiImplementation"))
    return Kind(
        engine=MPI_OPERATOR if operator else TRAINING_OPERATOR,
        name=name,
        mpi=family.value if is_mpi and family else "",
        workers=sum(n for role, n in counts.items() if not is_mpi or role != "launcher" or works),
        slots=number(spec, "slotsPerWorker") or 1,
        launched=is_mpi,
        launcher_works=works,
        image=_replica_image(replicas),
        suspended=policy.get("suspend") is True or spec.get("suspend") is True,
        verdict=ending(job, "Succeeded", "Failed"),
        shown=_shown_by_conditions(job),
        deadline_seconds=_seconds(policy),
        ordered=text(spec, "launcherCreationPolicy") == "WaitForWorkersReady",
    )


def replica_specs(job: Document) -> dict[str, Document]:
    """Return the replica specs of a kubeflow.org job by their names in lower case."""
    spec = part(job, "spec")
    found = next((part(spec, f"{one}ReplicaSpecs") for one in _REPLICAS if f"{one}ReplicaSpecs" in spec), {})
    return {str(role).lower(): part(found, role) for role in found}


def _replica_image(replicas: Mapping[str, Document]) -> str:
    ordered = sorted(replicas, key=lambda role: (role != "worker", role))
    images = (text(container_of(part(replicas[role], "template", "spec")), "image") for role in ordered)
    return next((image for image in images if image), "")


def _shown_by_conditions(job: Document) -> Phase | None:
    known = conditions(job)
    if holds(known.get("Running")):
        return Phase.RUNNING
    return Phase.PENDING if known else None


def deadline_of(job: Document) -> float | None:
    """Return the seconds that a job may run, None without a limit."""
    spec = part(job, "spec")
    return _seconds(spec) or _seconds(part(spec, "runPolicy"))


def _seconds(holder: Document) -> float | None:
    found = number(holder, "activeDeadlineSeconds")
    return None if found is None else float(found)


def ending(document: Document | None, good: str, bad: str) -> Verdict | None:
    """Return how an object has ended, by the names of its conditions for success and failure."""
    known = conditions(document)
    for name in (bad, good):
        if holds(known.get(name)):
            return _verdict(known[name], good=name == good)
    return None


def _verdict(condition: Document, *, good: bool) -> Verdict:
    reason = text(condition, "reason")
    return Verdict(
        good=good,
        reason=reason,
        message=text(condition, "message"),
        time=moment(condition, "lastTransitionTime") or 0.0,
        late=reason.startswith("DeadlineExceeded"),
    )


# -- whose pod ------------------------------------------------------------------------------------
def place(pod: Document, kind: Kind) -> tuple[Role, tuple[int, int, int]] | None:
    """Return a pod's role and its sort key among pods of that role, None for a helper (an initializer)."""
    pod_labels = labels(pod)
    if kind.engine == TRAINER:
        rjob = text(pod_labels, RJOB_LABEL)
        if rjob in _INITIALIZERS or not rjob:
            return None
        role = Role.LAUNCHER if kind.launched and rjob == "launcher" else Role.WORKER
        return role, (0, number(pod_labels, JOB_INDEX_LABEL) or 0, _completion(pod))
    named = (
        text(pod_labels, f"{_KUBEFLOW}replica-type").lower()
        or text(pod_labels, f"{_KUBEFLOW}job-role").lower()
    )
    index = number(pod_labels, f"{_KUBEFLOW}replica-index") or 0
    if kind.launched and named == "launcher":
        return Role.LAUNCHER, (0, 0, index)
    order = _FIRST.index(named) if named in _FIRST else len(_FIRST)
    return Role.WORKER, (0 if kind.launched else order, 0, index)


def worker_index(pod: Document) -> int:
    """Return a worker's number by its labels, for pods of any engine."""
    found = number(labels(pod), f"{_KUBEFLOW}replica-index")
    return found if found is not None else _completion(pod)


def _completion(pod: Document) -> int:
    found = number(labels(pod), COMPLETION_INDEX)
    index = found if found is not None else number(notes(pod), COMPLETION_INDEX) or 0
    # The completion index starts at 0 in each group.
    return index + (number(labels(pod), well_known.FIRST_LABEL) or 0)


def numbered(keys: Sequence[tuple[int, int, int]]) -> dict[tuple[int, int, int], int]:
    """Return the workers' numbers by key: their index, or their position if several replicated jobs count from 0."""
    groups = {key[:2] for key in keys}
    if len(groups) <= 1:
        return {key: key[2] for key in keys}
    return {key: position for position, key in enumerate(sorted(set(keys)))}
