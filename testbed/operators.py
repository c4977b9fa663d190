"""The engines: JobSet, Trainer, MPI Operator and Kueue, installed from their own manifests.

A pod that is ready is not yet a webhook that answers: the proof is an object that the webhook guards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from testbed import manifests
from testbed.kubectl import apply_file, get, kubectl
from testbed.shell import TestBedError, retry

ENGINES = ("jobset", "trainer", "mpi-operator", "kueue")
_DEPLOYMENTS = (
    ("kueue-system", "kueue-controller-manager"),  # the others' pods cannot be made while its webhook is away
    ("jobset-system", "jobset-controller-manager"),
    ("kubeflow-system", "kubeflow-trainer-controller-manager"),
    ("mpi-operator", "mpi-operator"),
)
_WORN = 2  # restarts: the third has to wait for forty seconds
_VISIBILITY = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/{queue}/pendingworkloads"
_GUARDED = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: proof, namespace: team-a, labels: {trainer.kubeflow.org/framework: mpi}}
spec:
  mlPolicy: {numNodes: 1}
  template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {
    restartPolicy: Never, containers: [{name: node, image: proof}]}}}}}]}}
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: proof, namespace: team-a}
spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {
  restartPolicy: Never, containers: [{name: node, image: proof}]}}}}}]}
---
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: proof, namespace: team-a}
spec: {mpiReplicaSpecs: {Launcher: {replicas: 1, template: {spec: {
  restartPolicy: Never, containers: [{name: node, image: proof}]}}}}}
"""
_A_POD = """\
apiVersion: v1
kind: Pod
metadata: {name: proof, namespace: default}
spec: {restartPolicy: Never, containers: [{name: node, image: proof}]}
"""


def install() -> None:
    """Apply the manifests of every engine."""
    for name in ENGINES:
        apply_file(manifests.rendered(name))


def wait_until_available() -> None:
    """Wait until every engine has a ready pod."""
    for namespace, deployment in _DEPLOYMENTS:
        _wait_until_available(namespace, deployment, 180)


def _wait_until_available(namespace: str, deployment: str, seconds: int) -> None:
    status = ("rollout", "status", f"deployment/{deployment}", f"--timeout={seconds}s")
    kubectl(f"--namespace={namespace}", *status, timeout_seconds=seconds + 20)


def come_back() -> None:
    """Wait until every engine has a ready pod again after a fault; a failure tells how the pods stand.

    How often a kubelet has restarted them the API server may learn late, so worn ones are looked for again and again.
    None is replaced before pods can be made: who tries in vain waits longer each time, up to a quarter of an hour.
    """

    def all_there() -> None:
        for namespace, deployment in _DEPLOYMENTS:
            _renew_worn(namespace)
            _wait_until_available(namespace, deployment, 20)
            kubectl("create", "--dry-run=server", "--filename=-", stdin=_A_POD)

    try:
        retry("the engines' return", all_there, seconds=300)
    except TestBedError as error:
        raise TestBedError(f"{error}; {'; '.join(_standings())}") from error


def _renew_worn(namespace: str) -> None:
    """Replace the pods of an engine that was restarted again and again: a kubelet makes them wait longer each time."""
    for pod in _pods(namespace):
        if any(one["restartCount"] >= _WORN for one in _containers(pod)):
            kubectl(f"--namespace={namespace}", "delete", "pod", pod["metadata"]["name"], "--wait=true")


def _standings() -> Iterator[str]:
    for namespace, _ in _DEPLOYMENTS:
        for pod in _pods(namespace):
            told = [f"{one['restartCount']} restarts, {one['state']}" for one in _containers(pod)]
            yield f"{pod['metadata']['name']} {pod['status'].get('phase')}: {', '.join(told) or pod['status']}"


def _pods(namespace: str) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = get("pods", f"--namespace={namespace}")["items"]
    return found


def _containers(pod: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return pod["status"].get("containerStatuses") or ()


def prove() -> None:
    """Wait until every webhook answers, and Kueue's queue view too; nothing is created."""
    dry_run = ("create", "--dry-run=server", "--filename=-")
    retry("a webhook of the engines", lambda: kubectl(*dry_run, stdin=_GUARDED), seconds=90)
    view = _VISIBILITY.format(queue="shared")
    retry("the view into Kueue's queues", lambda: kubectl("get", "--raw", view), seconds=90)
