"""The engines: JobSet, Trainer, MPI Operator and Kueue, installed from their own manifests.

A pod that is ready is not yet a webhook that answers: the proof is an object that the webhook guards.
"""

from __future__ import annotations

from testbed import manifests
from testbed.kubectl import apply_file, get, kubectl
from testbed.shell import retry

ENGINES = ("jobset", "trainer", "mpi-operator", "kueue")
_DEPLOYMENTS = (
    ("jobset-system", "jobset-controller-manager"),
    ("kubeflow-system", "kubeflow-trainer-controller-manager"),
    ("mpi-operator", "mpi-operator"),
    ("kueue-system", "kueue-controller-manager"),
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


def install() -> None:
    """Apply the manifests of every engine."""
    for name in ENGINES:
        apply_file(manifests.rendered(name))


def wait_until_available() -> None:
    """Wait until every engine has a ready pod."""
    for namespace, deployment in _DEPLOYMENTS:
        status = ("rollout", "status", f"deployment/{deployment}", "--timeout=180s")
        kubectl(f"--namespace={namespace}", *status, timeout_seconds=200)


def renew_worn() -> None:
    """Replace the pods of engines that were restarted again and again: a kubelet makes them wait longer each time."""
    for namespace, _ in _DEPLOYMENTS:
        for pod in get("pods", f"--namespace={namespace}")["items"]:
            told = pod["status"].get("containerStatuses") or ()
            if any(one["restartCount"] >= _WORN for one in told):
                kubectl(f"--namespace={namespace}", "delete", "pod", pod["metadata"]["name"], "--wait=true")


def prove() -> None:
    """Wait until every webhook answers, and Kueue's queue view too; nothing is created."""
    dry_run = ("create", "--dry-run=server", "--filename=-")
    retry("a webhook of the engines", lambda: kubectl(*dry_run, stdin=_GUARDED), seconds=90)
    view = _VISIBILITY.format(queue="shared")
    retry("the view into Kueue's queues", lambda: kubectl("get", "--raw", view), seconds=90)
