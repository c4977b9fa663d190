"""The test bed keeps its promises: users, rights, queues, GPUs on paper, policies, images that fail fast."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from testbed import images, places, versions

pytestmark = pytest.mark.testbed
Kubectl = Callable[..., subprocess.CompletedProcess[str]]
RESTRICTED = {"runAsNonRoot": True, "runAsUser": 1000660000, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@pytest.fixture
def kubectl(kubeconfig_of: Callable[[str], Path]) -> Kubectl:
    """Return kubectl as a user."""

    def run(user: str, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        argv = ["kubectl", f"--kubeconfig={kubeconfig_of(user)}", *words]
        return subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=120, check=False)

    return run


@pytest.fixture
def pods(kubectl: Kubectl) -> Iterator[Callable[..., str]]:
    """Return what creates a pod in a team's namespace as one of its members; all are deleted afterwards."""
    made: list[tuple[str, str]] = []

    def create(name: str, command: str, *, image: str = "openmpi4", user: str = "alice", **more: Any) -> str:
        done = kubectl(user, "create", "--filename=-", stdin=json.dumps(a_pod(name, command, image, **more)))
        assert done.returncode == 0, done.stderr
        made.append((user, name))
        return name

    yield create
    for user, name in made:
        kubectl(user, "delete", "pod", name, "--grace-period=0", "--force", "--ignore-not-found")


def a_pod(
    name: str, command: str, image: str, *, resources: Any = None, probe: Any = None
) -> Mapping[str, Any]:
    container = {
        "name": "main",
        "image": f"{places.IMAGES}/{image}:1",
        "command": ["sh", "-c", command],
        "securityContext": CONTAINER,
        "resources": resources or {"requests": {"cpu": "10m"}},
    }
    spec = {"restartPolicy": "Never", "securityContext": RESTRICTED, "terminationGracePeriodSeconds": 1}
    if probe:
        container["readinessProbe"] = probe
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {**spec, "containers": [container]},
    }


def becomes(question: Callable[[], str], wanted: str, seconds: float = 180) -> str:
    """Ask until the answer holds what is wanted, or the time is over; return the last answer."""
    end = time.monotonic() + seconds
    while wanted not in (answer := question()) and time.monotonic() < end:
        time.sleep(0.3)
    return answer


@pytest.mark.parametrize(
    ("user", "verb", "what", "namespace", "may"),
    [
        ("alice", "create", "trainjobs.trainer.kubeflow.org", "team-a", "yes"),
        ("alice", "create", "trainingruntimes.trainer.kubeflow.org", "team-a", "yes"),
        ("alice", "create", "mpijobs.kubeflow.org", "team-a", "yes"),
        ("alice", "create", "pods/exec", "team-a", "yes"),
        ("alice", "get", "secrets", "team-a", "yes"),
        ("alice", "list", "secrets", "team-a", "no"),
        ("alice", "create", "jobsets.jobset.x-k8s.io", "team-a", "no"),
        ("alice", "list", "trainjobs.trainer.kubeflow.org", "team-b", "no"),
        ("alice", "list", "nodes", "team-a", "no"),
        ("bob", "create", "trainjobs.trainer.kubeflow.org", "team-b", "yes"),
        ("bob", "get", "pods", "team-a", "no"),
        ("carol", "list", "workloads.kueue.x-k8s.io", "team-a", "yes"),
        ("dave", "list", "workloads.kueue.x-k8s.io", "team-a", "no"),
        ("auditor", "list", "trainjobs.trainer.kubeflow.org", "team-b", "yes"),
        ("auditor", "get", "secrets", "team-a", "no"),
        ("auditor", "create", "trainjobs.trainer.kubeflow.org", "team-a", "no"),
    ],
)
def test_every_user_may_do_what_their_role_says_and_no_more(
    kubectl: Kubectl, user: str, verb: str, what: str, namespace: str, may: str
) -> None:
    answer = kubectl(user, "auth", "can-i", verb, what, f"--namespace={namespace}")
    assert answer.stdout.strip() == may, answer.stderr


def test_the_versions_are_the_pinned_ones(kubectl: Kubectl) -> None:
    server = json.loads(kubectl("admin", "version", "--output=json").stdout)["serverVersion"]["gitVersion"]
    deployments = kubectl("admin", "get", "deployments", "--all-namespaces", "--output=json").stdout
    assert server == versions.KUBERNETES
    for engine in ("jobset", "trainer", "mpi-operator", "kueue"):
        assert images.name_of(engine) in deployments


@pytest.mark.security
def test_a_pod_that_asks_for_privileges_is_refused(kubectl: Kubectl) -> None:
    pod = json.dumps(a_pod("root", "true", "openmpi4")).replace("1000660000", "0")
    refused = kubectl("alice", "create", "--filename=-", stdin=pod)
    assert 'violates PodSecurity "restricted' in refused.stderr


@pytest.mark.parametrize("image", ["openmpi4", "openmpi5", "mpich", "intel"])
def test_an_mpi_image_runs_ranks_as_an_arbitrary_user(
    kubectl: Kubectl, pods: Callable[..., str], image: str
) -> None:
    program = "from mpi4py import MPI; print('sum', MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank + 1))"
    # more ranks than cores are fine, in the words of both Open MPIs; without a passwd entry there is no home
    settings = "OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe"
    command = f'HOME=/tmp {settings} mpirun -n 2 python -c "{program}"'
    name = pods(f"ranks-{image}", command, image=image)
    phase = ("get", "pod", name, "--output=jsonpath={.status.phase}")
    ended = becomes(lambda: kubectl("alice", *phase).stdout, "Succeeded")
    said = kubectl("alice", "logs", name).stdout
    assert (ended, said.count("sum 3")) == ("Succeeded", 2), said


def test_an_image_without_sshd_has_none(kubectl: Kubectl, pods: Callable[..., str]) -> None:
    name = pods("no-sshd", "mpirun --version && ls /usr/sbin/sshd /usr/bin/ssh", image="nosshd")
    phase = ("get", "pod", name, "--output=jsonpath={.status.phase}")
    assert becomes(lambda: kubectl("alice", *phase).stdout, "Failed") == "Failed"
    assert "mpirun (Open MPI) 4" in kubectl("alice", "logs", name).stdout


def test_an_unknown_image_fails_within_seconds_and_says_so(
    kubectl: Kubectl, pods: Callable[..., str]
) -> None:
    name = pods("no-image", "true", image="nowhere")
    events = ("get", "events", f"--field-selector=involvedObject.name={name}", "--output=yaml")
    assert "nowhere:1: not found" in becomes(
        lambda: kubectl("alice", *events).stdout, "not found", seconds=15
    )


@pytest.mark.alone
def test_gpus_that_exist_on_paper_are_counted(kubectl: Kubectl, pods: Callable[..., str]) -> None:
    name = pods("nine-gpus", "true", resources={"limits": {"nvidia.com/gpu": "9"}})
    why = ("get", "pod", name, "--output=jsonpath={.status.conditions[*].message}")
    assert "Insufficient nvidia.com/gpu" in becomes(lambda: kubectl("alice", *why).stdout, "Insufficient")


def test_a_network_policy_is_enforced_and_names_are_found(kubectl: Kubectl, pods: Callable[..., str]) -> None:
    server = pods(
        "server", "exec python -m http.server 8000", probe={"tcpSocket": {"port": 8000}, "periodSeconds": 1}
    )
    near, far = pods("near", "sleep 600"), pods("far", "sleep 600", user="bob")
    for user, name in (("alice", server), ("alice", near), ("bob", far)):
        ready = kubectl(user, "wait", f"pod/{name}", "--for=condition=Ready", "--timeout=60s")
        assert ready.returncode == 0, ready.stderr
    address = kubectl("alice", "get", "pod", server, "--output=jsonpath={.status.podIP}").stdout

    def reach(user: str, name: str) -> str:
        done = kubectl(user, "exec", name, "--", "nc", "-z", "-w", "2", address, "8000")
        return "reached" if done.returncode == 0 else "refused"

    assert (reach("alice", near), reach("bob", far)) == ("reached", "reached")
    found = kubectl("bob", "exec", far, "--", "getent", "hosts", "kubernetes.default.svc.cluster.local")
    assert found.stdout.split()[0] == places.API_SERVICE_IP
    try:
        kubectl("admin", "create", "--filename=-", stdin=json.dumps(a_policy()))
        assert becomes(lambda: reach("bob", far), "refused") == "refused"
        assert reach("alice", near) == "reached"
    finally:
        kubectl("admin", "delete", "networkpolicy", "own-team", "--namespace=team-a")


def a_policy() -> Mapping[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "own-team", "namespace": "team-a"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": {}}]}]},
    }


def test_a_claim_gets_a_volume_that_any_user_can_write(kubectl: Kubectl) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "claim"},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    kubectl("alice", "create", "--filename=-", stdin=json.dumps(claim))
    phase = ("get", "persistentvolumeclaim", "claim", "--output=jsonpath={.status.phase}")
    try:
        assert becomes(lambda: kubectl("alice", *phase).stdout, "Bound", seconds=30) == "Bound"
    finally:
        kubectl("alice", "delete", "persistentvolumeclaim", "claim")


@pytest.mark.parametrize(("labels", "managed"), [({}, False), ({"kueue.x-k8s.io/queue-name": "main"}, True)])
def test_kueue_holds_jobs_of_its_queue_and_leaves_the_others_alone(
    kubectl: Kubectl, labels: Mapping[str, str], managed: bool
) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "node", "image": "none"}]}}
    job = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "kept", "namespace": "team-a", "labels": labels},
        "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": template}}}]},
    }
    stored = kubectl(
        "admin", "create", "--dry-run=server", "--output=json", "--filename=-", stdin=json.dumps(job)
    )
    assert json.loads(stored.stdout)["spec"].get("suspend", False) is managed, stored.stderr
