"""Objects as an API server would answer them, built from what our own dialects write; times count from 0."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tests.unit.cluster_support import a_job

from mpijob.backends.kubernetes.status import derive_state
from mpijob.backends.kubernetes.status.derive_state import Objects
from mpijob.formats.kubernetes import mpijob, trainjob
from mpijob.formats.kubernetes.metadata.well_known import Shape
from mpijob.model import Family, JobState, MPIJob, Phase

BEGIN = 1_794_700_000
NOW = BEGIN + 100.0
Document = dict[str, Any]
_CONTAINER = "node"


def stamp(seconds: float) -> str:
    """Return a time so many seconds after the beginning, as Kubernetes writes it."""
    return datetime.fromtimestamp(BEGIN + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(
    kind: str, status: bool = True, reason: str = "", message: str = "", at: float = 60
) -> Document:
    return {
        "type": kind, "status": str(status), "reason": reason or kind, "message": message,
        "lastTransitionTime": stamp(at),
    }  # fmt: skip


def event(
    kind: str, name: str, reason: str, message: str, at: float = 30, *, warning: bool = True
) -> Document:
    return {
        "kind": "Event", "involvedObject": {"kind": kind, "name": name}, "reason": reason, "message": message,
        "type": "Warning" if warning else "Normal", "lastTimestamp": stamp(at),
    }  # fmt: skip


# -- how a pod stands -----------------------------------------------------------------------------
def unscheduled(message: str, reason: str = "Unschedulable") -> Document:
    return {"phase": "Pending", "conditions": [condition("PodScheduled", False, reason, message, 5)]}


def waiting(reason: str, message: str = "", *, init: bool = False, at: float = 5) -> Document:
    where = "initContainerStatuses" if init else "containerStatuses"
    status = {"name": "mpijob-prepare" if init else _CONTAINER, "ready": False, "restartCount": 0}
    status["state"] = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "conditions": [condition("PodScheduled", at=at)], where: [status]}


def running(at: float = 10, *, ready: bool = True, restarts: int = 0) -> Document:
    status = {"name": _CONTAINER, "ready": ready, "restartCount": restarts}
    status["state"] = {"running": {"startedAt": stamp(at)}}
    known = [condition("PodScheduled", at=5), condition("Ready", ready, at=at)]
    return {"phase": "Running", "conditions": known, "containerStatuses": [status]}


def ended(code: int, at: float, reason: str = "", message: str = "", began: float = 10) -> Document:
    done = {"exitCode": code, "reason": reason or ("Completed" if code == 0 else "Error"), "message": message}
    done |= {"startedAt": stamp(began), "finishedAt": stamp(at)}
    status = {"name": _CONTAINER, "ready": False, "restartCount": 0, "state": {"terminated": done}}
    known = [condition("PodScheduled", at=5), condition("Ready", False, "PodFailed", at=at)]
    phase = "Succeeded" if code == 0 else "Failed"
    return {"phase": phase, "conditions": known, "containerStatuses": [status]}


class Cluster:
    """One job of ours on a cluster, in the making: tests put its pods and conditions where they need them."""

    def __init__(
        self, job: MPIJob | None = None, shape: Shape | None = None, *, operator: bool = False
    ) -> None:
        self.spec = job or a_job()
        self.shape = shape or Shape(uid="u-1", family=Family.MPICH if operator else Family.OPENMPI)
        documents = copy.deepcopy((mpijob if operator else trainjob).write(self.spec, self.shape))
        *before, self.job = documents
        self.operator = operator
        self.runtime = before[0] if before else None
        self.job["metadata"] |= {"uid": "a-uid", "creationTimestamp": stamp(0)}
        self.pods: dict[str, Document] = {}
        self.events: list[Document] = []
        self.more: dict[str, Any] = {}

    def worker(self, index: int, status: Mapping[str, Any], **metadata: Any) -> Cluster:
        return self._pod("worker", index, status, metadata)

    def workers(self, status: Mapping[str, Any]) -> Cluster:
        for index in range(self.spec.workers):
            self.worker(index, status)
        return self

    def launcher(self, status: Mapping[str, Any], **metadata: Any) -> Cluster:
        return self._pod("launcher", 0, status, metadata)

    def condition(self, *args: Any, **kwargs: Any) -> Cluster:
        self.job.setdefault("status", {}).setdefault("conditions", []).append(condition(*args, **kwargs))
        return self

    def note(self, annotation: str, value: str) -> Cluster:
        self.job["metadata"].setdefault("annotations", {})[annotation] = value
        return self

    def told(self, *args: Any, **kwargs: Any) -> Cluster:
        self.events.append(event(*args, **kwargs))
        return self

    def seen(self, **more: Any) -> Objects:
        given = {
            "job": self.job,
            "runtime": self.runtime,
            "pods": [*self.pods.values()],
            "events": self.events,
        }
        return Objects(**(given | self.more | more))

    def name_of(self, role: str, index: int) -> str:
        job = self.job["metadata"]["name"]
        if self.operator:
            return f"{job}-worker-{index}" if role == "worker" else f"{job}-launcher-x7k2p"
        return f"{job}-{'node' if role == 'worker' else 'launcher'}-0-{index}-x7k2p"

    def _pod(self, role: str, index: int, status: Mapping[str, Any], metadata: Mapping[str, Any]) -> Cluster:
        template = copy.deepcopy(self._template(role))
        name = self.name_of(role, index)
        host = name if self.operator else name.rpartition("-")[0]
        about = template["metadata"] | {"name": name, "namespace": self.spec.namespace, "uid": f"uid-{name}"}
        about |= {"creationTimestamp": stamp(4)} | dict(metadata)
        about["labels"] = about["labels"] | self._labels(role, index)
        spec = template["spec"] | {"hostname": host, "restartPolicy": "Never"}
        placed = any(
            one["type"] == "PodScheduled" and one["status"] == "True" for one in status["conditions"]
        )
        spec |= {"nodeName": f"node-{index + 1}"} if placed else {}
        self.pods[name] = {"metadata": about, "spec": spec, "status": dict(status)}
        return self

    def _template(self, role: str) -> Document:
        if self.operator:
            found: Document = self.job["spec"]["mpiReplicaSpecs"][role.capitalize()]["template"]
            return found
        assert self.runtime is not None
        jobs = self.runtime["spec"]["template"]["spec"]["replicatedJobs"]
        wanted = "node" if role == "worker" else "launcher"
        return next(one["template"]["spec"]["template"] for one in jobs if one["name"] == wanted)

    def _labels(self, role: str, index: int) -> dict[str, str]:
        if self.operator:
            job = "training.kubeflow.org/"
            return {f"{job}job-role": role, f"{job}replica-index": str(index)}
        rjob = "node" if role == "worker" else "launcher"
        return {
            "jobset.sigs.k8s.io/replicatedjob-name": rjob,
            "batch.kubernetes.io/job-completion-index": str(index),
        }


def census(job: MPIJob, *, name: str = "bert", ranks: int | None = None, size: int | None = None) -> str:
    """Return what a launcher writes when it has counted the ranks."""
    lines = [
        f"mpijob-census rank={rank} size={size or job.world} local={rank % job.slots} "
        f"host={name}-node-0-{rank // job.slots} node=node-{rank // job.slots + 1} gpus={job.resources.gpu}"
        for rank in range(job.world if ranks is None else ranks)
    ]
    return "\n".join([*lines, f"mpijob-world ranks={size or job.world} gap=0", ""])


# -- looking --------------------------------------------------------------------------------------
COUNTED = census(a_job())


def derive(cluster: Cluster, log: str | None = COUNTED, **more: Any) -> JobState:
    """Return what is derived of a job; its launcher's log says that the world is proved unless it is given."""
    return derive_state.derive(cluster.seen(**more), now=NOW, launcher_log=log)


def at_work(**fields: Any) -> Cluster:
    """A job whose launcher and workers run."""
    return Cluster(a_job(**fields)).workers(running(10)).launcher(running(12))


def done(code: int = 0, at: float = 60) -> Cluster:
    """A job whose launcher has ended; its workers still run."""
    return Cluster().workers(running(10)).launcher(ended(code, at, began=12))


def standing(state: JobState) -> tuple[Phase, str]:
    """Return the phase with its reason."""
    return state.phase, state.reason
