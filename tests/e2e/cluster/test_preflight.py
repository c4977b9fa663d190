"""What is said before a job is sent, held against a real API server: its rights, limits, queues and machines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from testbed import places
from tests.e2e.cluster.support import eventually

from mpijob import Client, admission
from mpijob.backends.kubernetes.admin import runtimes as cluster
from mpijob.backends.kubernetes.auth.kubeconfig import load
from mpijob.backends.kubernetes.backend import KubernetesBackend
from mpijob.backends.kubernetes.client import discovery
from mpijob.backends.kubernetes.client import resources as kinds
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.backends.kubernetes.preflight import preflight
from mpijob.errors import Finding, InvalidJob, NotAllowed, NotFound, QuotaExceeded
from mpijob.formats.kubernetes import mpijob, pod_template
from mpijob.formats.kubernetes.metadata.well_known import LAUNCHER_CORES, Document, Shape
from mpijob.formats.runtimes import builtin as shipped
from mpijob.model import Family, Identity, MPIJob, Network, Placement, Resources, Role, Volume, VolumeKind
from mpijob.settings import CLUSTER, Settings

BOTH = (Role.WORKER, Role.LAUNCHER)
SMALL = Resources(cpu="50m", memory="64Mi")


@pytest.fixture(scope="module")
def api(kubeconfig: Path) -> Iterator[Api]:
    """Return the administrator's connection."""
    with Api(load(path=str(kubeconfig))) as api:
        yield api


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    """Return a namespace of the test's own; it is deleted afterwards."""
    name = f"preflight-{os.urandom(3).hex()}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted", "istio-injection": "enabled"}
    api.create(kinds.NAMESPACE.path(), _object(kinds.NAMESPACE, name, labels=labels))
    yield name
    api.delete(kinds.NAMESPACE.path("", name))


def _object(kind: Kind, name: str, *, labels: dict[str, str] | None = None, **parts: Any) -> Document:
    return {
        "apiVersion": kind.api,
        "kind": kind.name,
        "metadata": {"name": name, "labels": labels or {}},
    } | parts


def put(api: Api, kind: Kind, namespace: str, name: str, **parts: Any) -> None:
    """Create an object in a namespace."""
    api.create(kind.path(namespace), _object(kind, name, **parts))


OPEN = Network(isolated=False)  # brings no policy of its own, which would open what others close


def a_job(namespace: str, **fields: Any) -> MPIJob:
    base: dict[str, Any] = {"name": "preflight", "namespace": namespace, "workers": 2, "resources": SMALL}
    return MPIJob(**base | {"image": "example/mpi:1", "command": ("true",), "launcher": SMALL} | fields)


def told(api: Api, job: MPIJob, user: str = "admin") -> tuple[Finding, ...]:
    who = Identity(user)
    found = preflight.gather(api, job, discovery.served(api), Settings())
    return admission.admit(job, who, found.facts)


def codes(findings: tuple[Finding, ...]) -> set[str]:
    return {one.code for one in findings}


def _as(kubeconfig_of: Callable[[str], Path], user: str) -> Api:
    return Api(load(path=str(kubeconfig_of(user))))


@pytest.mark.security
@pytest.mark.testbed
@pytest.mark.req("A-edge-403", "FR-023", "FR-INT-001", "AC5")
@pytest.mark.parametrize(
    ("user", "place", "may"),
    [("alice", "team-a", True), ("bob", "team-a", False), ("auditor", "team-a", False)],
)
def test_the_servers_own_rights_decide(
    kubeconfig_of: Callable[[str], Path], user: str, place: str, may: bool
) -> None:
    with _as(kubeconfig_of, user) as api:
        if may:
            assert codes(told(api, a_job(place), user)) <= {"NOT_READ", "CLUSTER_NOTICE", "WILL_WAIT"}
            return
        with pytest.raises(NotAllowed) as caught:
            told(api, a_job(place), user)
    assert (
        caught.value.message == f"User '{user}' lacks 'create' permission for MPIJobs in namespace '{place}'"
    )
    assert "create trainjobs.trainer.kubeflow.org" in caught.value.hint


@pytest.mark.testbed
def test_what_a_plain_user_may_not_read_is_named(kubeconfig_of: Callable[[str], Path]) -> None:
    with _as(kubeconfig_of, "alice") as api:
        found = preflight.gather(api, a_job("team-a", queue="main"), discovery.served(api), Settings())
    assert found.facts.cluster is not None
    unread = {one.what for one in found.facts.cluster.unread}
    assert {"nodes", "pods of all namespaces", "ClusterQueues"} <= unread
    assert not found.facts.room_known


@pytest.mark.req("FR-027", "FR-INT-002", "D-quota", "FR-RES-001", "SC-006", "AC4")
def test_a_quota_is_read_as_the_server_counts_it(api: Api, namespace: str) -> None:
    hard = {"requests.nvidia.com/gpu": "4", "pods": "8", "count/mpijobs.kubeflow.org": "0"}
    put(api, kinds.RESOURCE_QUOTA, namespace, "team", spec={"hard": hard})
    with pytest.raises(QuotaExceeded, match="Requested 8 GPUs, but project quota is 4"):
        told(api, a_job(namespace, resources=SMALL.replace(gpu=4)))
    with pytest.raises(QuotaExceeded, match=r"allows 0 mpijobs\.kubeflow\.org objects") as caught:
        told(api, a_job(namespace, mpi=Family.MPICH))
    (document,) = mpijob.write(a_job(namespace), Shape(family=Family.MPICH))
    refused = (api, kinds.MPIJOB, document, "exceeded quota", namespace)
    eventually(lambda: _is_refused(*refused), "the quota is heeded")
    assert caught.value.hint == "delete finished jobs, or ask for a larger quota"


@pytest.mark.req("FR-027", "FR-INT-002")
@pytest.mark.parametrize(
    ("limits", "resources"),
    [
        ({"type": "Container", "max": {"memory": "128Mi"}}, SMALL.replace(memory="256Mi")),
        ({"type": "Container", "min": {"cpu": "100m"}}, SMALL),
        ({"type": "Pod", "max": {"cpu": "200m"}}, SMALL.replace(cpu="300m")),
    ],
)
def test_what_a_limit_range_is_said_to_refuse_the_server_refuses(
    api: Api, namespace: str, limits: Document, resources: Resources
) -> None:
    """And what is said to pass is taken: launcher and worker are sent as a dry run."""
    put(api, kinds.LIMIT_RANGE, namespace, "sizes", spec={"limits": [limits]})
    large, launcher = a_job(namespace, resources=resources), Resources(cpu="100m", memory="64Mi")
    with pytest.raises(QuotaExceeded, match="LimitRange 'sizes' allows"):
        told(api, large)
    worker, words = _pod(large, Role.WORKER), f"per {limits['type']} is"
    eventually(lambda: _is_refused(api, kinds.POD, worker, words, namespace), "the range is heeded")
    small = a_job(namespace, resources=launcher, launcher=launcher)
    found = preflight.gather(api, small, discovery.served(api), Settings())
    admission.admit(small, Identity("a"), found.facts)
    cores = found.around.launcher_cores
    taken = [_send(api, small, role, launcher_cores=cores)["metadata"]["namespace"] for role in BOTH]
    assert taken == [namespace, namespace]


def _send(api: Api, job: MPIJob, role: Role, **shape: Any) -> Document:
    return api.create(kinds.POD.path(job.namespace), _pod(job, role, **shape), dry_run=True)


def _pod(job: MPIJob, role: Role, **shape: Any) -> Document:
    template = pod_template.template(job, Shape(user=preflight.PLAIN_USER, **shape), role)
    template["metadata"]["name"] = f"probe-{role.value}"
    return {"apiVersion": "v1", "kind": "Pod", **template}


def test_a_quota_on_limits_is_met_by_a_launcher_that_uses_no_more_than_it_asks_for(
    api: Api, namespace: str
) -> None:
    put(api, kinds.RESOURCE_QUOTA, namespace, "limits", spec={"hard": {"limits.cpu": "2"}})
    job = a_job(namespace)
    around = preflight.gather(api, job, discovery.served(api), Settings()).around
    words = "exceeded quota: limits"
    greedy, modest = (
        _pod(job, Role.LAUNCHER, launcher_cores=cores) for cores in (LAUNCHER_CORES, around.launcher_cores)
    )
    eventually(lambda: _is_refused(api, kinds.POD, greedy, words, namespace), "the quota is heeded")
    assert not _is_refused(api, kinds.POD, modest, words, namespace)


def _is_refused(api: Api, kind: kinds.Kind, body: Document, words: str, namespace: str) -> bool:
    try:
        api.create(kind.path(namespace), body, dry_run=True)
    except ApiError as error:
        return words in error.message
    return False


@pytest.mark.req("D-preflight-net", "FR-SEC-004")
def test_policies_of_the_namespace_are_found(api: Api, namespace: str) -> None:
    spec = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    put(api, kinds.NETWORK_POLICY, namespace, "deny-all", spec=spec)
    said = {one.message for one in told(api, a_job(namespace, network=OPEN)) if one.code == "NETWORK_BLOCKED"}
    assert "NetworkPolicy deny-all blocks port 2222 (ssh) from the launcher to the workers" in said
    assert len(said) == 4
    inside: list[Document] = [{"podSelector": {}}]
    opened = spec | {
        "ingress": [{"from": inside}],
        "egress": [{"to": inside}, {"ports": [{"protocol": "UDP", "port": 53}]}],
    }
    put(api, kinds.NETWORK_POLICY, namespace, "inside", spec=opened)
    assert "NETWORK_BLOCKED" not in codes(told(api, a_job(namespace, network=OPEN)))


@pytest.mark.req("D-istio", "D-scc")
def test_the_namespaces_own_labels_are_obeyed(api: Api, namespace: str) -> None:
    assert "CLUSTER_NOTICE" in codes(told(api, a_job(namespace)))
    nfs = Volume(mount="/data", kind=VolumeKind.NFS, source="server:/data")
    with pytest.raises(NotAllowed, match="restricted Pod Security level"):
        told(api, a_job(namespace, volumes=(nfs,)))
    with pytest.raises(ApiError, match="restricted volume types"):
        api.create(
            kinds.POD.path(namespace), _pod(a_job(namespace, volumes=(nfs,)), Role.WORKER), dry_run=True
        )


@pytest.mark.testbed
@pytest.mark.req("FR-028", "FR-RES-005")
def test_queues_are_found_with_their_quota(api: Api) -> None:
    with pytest.raises(NotFound, match="queue 'mian' does not exist in namespace 'team-a'") as caught:
        told(api, a_job("team-a", queue="mian"))
    assert "did you mean 'main'?" in caught.value.hint
    with pytest.raises(QuotaExceeded, match="but queue 'main' gives at most"):
        told(api, a_job("team-a", queue="main", resources=SMALL.replace(cpu="1500m")))
    found = preflight.gather(api, a_job("team-a", queue="main"), discovery.served(api), Settings())
    assert found.around.kueue
    assert found.facts.cluster is not None
    assert found.facts.cluster.queue is not None
    shares = {one.resource: one for one in found.facts.cluster.queue.shares or ()}
    assert {"cpu", "memory", "nvidia.com/gpu"} <= set(shares)
    assert all(0 <= one.free <= one.most for one in shares.values())


@pytest.mark.req("FR-RES-001", "A-edge-gpu")
@pytest.mark.alone
def test_machines_are_counted_as_the_scheduler_counts_them(api: Api, namespace: str) -> None:
    with pytest.raises(QuotaExceeded, match=r"has .* in total|largest machine"):
        told(api, a_job(namespace, workers=90, resources=SMALL.replace(cpu="900")))
    nowhere = Placement(node_selector={"nowhere": "true"})
    with pytest.raises(QuotaExceeded, match=r"none of the .* nodes accepts this job's pods"):
        told(api, a_job(namespace, placement=nowhere))
    facts = preflight.gather(api, a_job(namespace), discovery.served(api), Settings()).facts
    held = api.get(kinds.POD.path(), fieldSelector="status.phase=Running")["items"]
    assert facts.room_known
    assert facts.free.cores <= facts.capacity.cores
    assert (facts.free.cores < facts.capacity.cores) is bool(held)


@pytest.mark.req("SC-015-rwo")
def test_claims_are_found(api: Api, namespace: str) -> None:
    data = Volume(mount="/data", kind=VolumeKind.CLAIM, source="data")
    with pytest.raises(NotFound, match="volume claim 'data' does not exist"):
        told(api, a_job(namespace, volumes=(data,)))
    claim = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
    spec = {
        "accessModes": ["ReadWriteOncePod"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "none",
    }
    put(api, claim, namespace, "data", spec=spec)
    with pytest.raises(InvalidJob, match="only one node can mount it"):
        told(api, a_job(namespace, volumes=(data,)))


def test_names_are_taken_by_jobs_that_are_there(api: Api, namespace: str) -> None:
    spec: Document = {
        "mpiReplicaSpecs": {"Launcher": {"template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}}}
    }
    spec |= {"runPolicy": {"suspend": True}}
    put(api, kinds.MPIJOB, namespace, "preflight", spec=spec)
    found = preflight.gather(api, a_job(namespace), discovery.served(api), Settings())
    assert found.facts.taken_names == {"preflight"}
    assert found.around.names == {"preflight"}


@pytest.mark.long
@pytest.mark.testbed
@pytest.mark.req("D-preflight-net", "FR-SEC-004")
def test_what_is_said_of_policies_is_what_packets_find(api: Api, namespace: str) -> None:
    """A small job runs where nothing is warned of, and does not where port 2222 is said to be blocked."""
    one = msgspec.structs.replace(
        shipped.shipped("openmpi"), name=f"net-{namespace}", resources=Resources(cpu="200m", memory="200Mi")
    )
    runtime = shipped.document(one, image=f"{places.IMAGES}/openmpi4:1", user=preflight.PLAIN_USER)
    inside: Document = {"from": [{"podSelector": {}}]}
    closed = {"podSelector": {}, "ingress": [inside | {"ports": [{"protocol": "TCP", "port": 80}]}]}
    cluster.install(api, runtime)
    try:
        # ingress alone: the bed's kube-router lets a packet in that an egress rule of the same machine let out
        put(api, kinds.NETWORK_POLICY, namespace, "some", spec=closed)
        assert "NETWORK_BLOCKED" in codes(told(api, a_job(namespace, network=OPEN)))
        assert _tried(api, runtime, namespace, until="RUNTIME_TRIAL")
        api.patch(kinds.NETWORK_POLICY.path(namespace, "some"), {"spec": closed | {"ingress": [inside]}})
        assert "NETWORK_BLOCKED" not in codes(told(api, a_job(namespace, network=OPEN)))
        assert _tried(api, runtime, namespace, until="RUNTIME_OK")
    finally:
        api.delete(kinds.CLUSTER_RUNTIME.path("", one.name))


def _tried(api: Api, runtime: Document, namespace: str, *, until: str) -> bool:
    """Try until the network has caught up with its policies, which takes some seconds on a busy machine."""
    tries = (verdict for _ in range(4) for verdict in cluster.run_test(api, runtime, namespace, seconds=120))
    return any(verdict.code == until for verdict in tries)


POLICIES = Kind("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies")
BINDINGS = Kind(POLICIES.api, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings")


@pytest.fixture
def site(api: Api, namespace: str) -> Iterator[str]:
    """Return a namespace where a policy of the cluster's own, which no client knows, refuses one registry's images."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    only = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    cel = "object.spec.containers.all(c, !c.image.startsWith('elsewhere/'))"
    policy = {
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": only},
        "validations": [{"expression": cel, "message": "images come from our own registry"}],
    }
    binding = {"policyName": namespace, "validationActions": ["Deny"]}
    api.create(POLICIES.path(), _object(POLICIES, namespace, spec=policy))
    api.create(BINDINGS.path(), _object(BINDINGS, namespace, spec=binding))
    yield namespace
    api.delete(BINDINGS.path("", namespace))
    api.delete(POLICIES.path("", namespace))


@pytest.mark.req("B-dryrun")
@pytest.mark.parametrize("family", [Family.OPENMPI, Family.MPICH])
def test_the_servers_dry_run_judges_everything_and_keeps_nothing(
    api: Api, site: str, kubeconfig: Path, family: Family
) -> None:
    """A TrainJob and an MPIJob, with their pods: what a policy refuses is refused now and not by silence later."""
    settings = Settings(engine=CLUSTER, kubeconfig=str(kubeconfig), namespace=site)
    client = Client(KubernetesBackend(settings), settings=settings)

    def judged(image: str) -> str:
        try:
            notices = client.plan(a_job(site, mpi=family, image=image), server=True).notices
        except InvalidJob as error:
            return str(error)
        return next(one.message for one in notices if one.code == "SERVER_DRY_RUN")

    assert judged("example/mpi:1").endswith("; nothing was created")
    refused = "images come from our own registry"  # the server needs a moment to hear of a policy
    eventually(lambda: refused in judged("elsewhere/mpi:1"), "the policy is told")
    for kind in (kinds.TRAINJOB, kinds.TRAINING_RUNTIME, kinds.MPIJOB, kinds.POD):
        assert api.list(kind.path(site)).items == []
