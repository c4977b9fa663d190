"""Machines, policies, claims and names of a cluster: what is read before a job is sent, and what is said."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.preflight_support import (
    JANE,
    NAMESPACE,
    SERVED,
    FakeApi,
    a_job,
    a_node,
    a_pod,
    a_policy,
    gathered,
    one,
    refused,
    told,
    with_gpus,
)

from mpijob import admission
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.backends.kubernetes.preflight import preflight
from mpijob.errors import Conflict, InvalidJob, NotAllowed, NotFound, QuotaExceeded, Severity
from mpijob.model import Family, MPIJob, Network, Placement, Resources, Volume, VolumeKind

CLAIM = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")


@pytest.fixture
def api() -> FakeApi:
    return with_gpus()


def an_open_job() -> MPIJob:
    """Return a job that brings no network policy of its own."""
    return a_job(network=Network(isolated=False))


# -- machines


@pytest.mark.req("FR-RES-001", "A-edge-gpu")
def test_more_than_all_machines_have_is_refused(api: FakeApi) -> None:
    error = refused(api, a_job(workers=16, resources=Resources(gpu=4)), QuotaExceeded)
    assert error.message == "Requested 64 GPUs, but this cluster has 32 in total."
    assert "at most 8 workers" in error.hint


def test_what_pods_hold_is_not_free_and_finished_ones_hold_nothing(api: FakeApi) -> None:
    for number in range(3):
        a_pod(api, f"held-{number}", f"gpu-{number}", gpu="8")
    a_pod(api, "over", "gpu-3", gpu="8", phase="Succeeded")
    job = a_job(workers=4, resources=Resources(gpu=4))
    waiting = one(told(api, job), "WILL_WAIT")
    assert waiting.message == "Requested 16 GPUs but only 8 available."
    assert waiting.hint.endswith("2 workers of this size would start now")


def test_enough_in_sum_but_in_pieces_is_told(api: FakeApi) -> None:
    for number in range(4):
        a_pod(api, f"held-{number}", f"gpu-{number}", gpu="5")
    waiting = one(told(api, a_job(workers=3, resources=Resources(gpu=4))), "WILL_WAIT")
    assert "has enough free resources in total, but fragmented: 0 of 3 workers" in waiting.message


def test_a_worker_larger_than_every_machine_is_refused(api: FakeApi) -> None:
    error = refused(api, a_job(workers=1, resources=Resources(gpu=12)), QuotaExceeded)
    assert error.message == "each worker requests 12 GPUs, but the largest usable node has 8"
    assert error.findings[0].field == "resources.gpu"


def test_tainted_excluded_closed_and_unselected_machines_do_not_count() -> None:
    api = FakeApi()
    a_node(api, "plain", labels={"pool": "cpu"})
    a_node(api, "tainted", taints=[{"key": "gpu", "effect": "NoSchedule"}], labels={"pool": "gpu"})
    a_node(api, "soft", taints=[{"key": "spot", "effect": "PreferNoSchedule"}], labels={"pool": "gpu"})
    a_node(api, "bad", labels={"pool": "gpu"})
    api.objects[resources.NODE.path("", "bad")]["spec"]["unschedulable"] = True
    wish = Placement(node_selector={"pool": "gpu"}, exclude_nodes=("soft",))
    error = refused(api, a_job(placement=wish), QuotaExceeded)
    assert error.message.startswith("none of the 4 nodes accepts this job's pods: ")
    for reason in ("1 tainted gpu", "1 closed to new pods", "1 not selected", "1 excluded"):
        assert reason in error.message
    tolerant = wish.replace(tolerations=({"key": "gpu", "operator": "Exists"},))
    assert told(api, a_job(placement=tolerant)) == ()


def test_a_machine_that_is_not_ready_yet_makes_the_job_wait_and_is_no_reason_to_refuse_it() -> None:
    api = FakeApi()
    a_node(api, "down", taints=[{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}])
    a_node(api, "booting", taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    api.objects[resources.NODE.path("", "down")]["status"]["conditions"] = []
    waiting = [one.message for one in told(api, a_job(workers=2)) if one.code == "WILL_WAIT"]
    assert any("2 nodes are not ready" in message for message in waiting)
    assert refused(api, a_job(workers=500), QuotaExceeded).findings  # no node is large enough for these


def test_required_affinity_is_obeyed() -> None:
    api = FakeApi()
    a_node(api, "old", labels={"generation": "3"})
    a_node(api, "new", labels={"generation": "5"})
    rule = {"key": "generation", "operator": "Gt", "values": ["4"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    facts = gathered(api, a_job(placement=Placement(affinity=affinity))).facts
    assert facts.cluster is not None
    assert facts.cluster.room is not None
    assert (facts.cluster.room.machines, facts.cluster.room.usable) == (2, 1)


def test_pools_that_grow_make_too_few_machines_a_notice() -> None:
    api = FakeApi()
    a_node(api, "one", gpus=8, labels={"karpenter.sh/nodepool": "gpu"})
    waiting = told(api, a_job(workers=4, resources=Resources(gpu=8)))
    assert any("until nodes are added" in finding.message for finding in waiting)


def test_machines_that_may_not_be_seen_are_unknown_and_nothing_is_refused_for_them(api: FakeApi) -> None:
    api.refuse(resources.NODE, resources.POD)
    job = a_job(workers=90, resources=Resources(gpu=8))
    found = gathered(api, job).facts
    assert not found.room_known
    notice = one(admission.admit(job, JANE, found), "NOT_READ")
    assert "nodes (not allowed): free capacity of the nodes" in notice.message


@pytest.mark.parametrize(
    "kind",
    [
        resources.NAMESPACE,
        resources.RESOURCE_QUOTA,
        resources.LIMIT_RANGE,
        resources.NETWORK_POLICY,
        resources.LOCAL_QUEUE,
        resources.NODE,
        resources.POD,
        resources.RULES_REVIEW,
    ],
    ids=lambda kind: kind.plural,
)
def test_each_read_may_be_refused_and_is_then_named(api: FakeApi, kind: Kind) -> None:
    api.refuse(kind)
    assert one(told(api, a_job()), "NOT_READ").severity is Severity.NOTICE


# -- obstacles


@pytest.mark.req("D-preflight-net", "FR-SEC-004")
def test_a_policy_that_denies_everything_is_named_for_every_way(api: FakeApi) -> None:
    a_policy(api, "deny-all", podSelector={}, policyTypes=["Ingress", "Egress"])
    said = [one.message for one in told(api, an_open_job()) if one.code == "NETWORK_BLOCKED"]
    assert said == [
        "NetworkPolicy deny-all blocks port 2222 (ssh) from the launcher to the workers",
        "NetworkPolicy deny-all blocks MPI's data ports between workers",
        "NetworkPolicy deny-all blocks MPI's data ports from the workers to the launcher",
        "NetworkPolicy deny-all blocks port 53 (names) from the launcher to the cluster's DNS",
    ]


@pytest.mark.req("D-preflight-net")
def test_policies_add_up_and_one_that_opens_the_namespace_is_enough(api: FakeApi) -> None:
    a_policy(api, "deny-all", podSelector={}, policyTypes=["Ingress", "Egress"])
    a_policy(
        api, "inside", podSelector={}, policyTypes=["Ingress", "Egress"],
        ingress=[{"from": [{"podSelector": {}}]}], egress=[{"to": [{"podSelector": {}}]}],
    )  # fmt: skip
    (left,) = [one for one in told(api, an_open_job()) if one.code == "NETWORK_BLOCKED"]
    assert left.message == (
        "NetworkPolicies deny-all, inside block port 53 (names) from the launcher to the cluster's DNS"
    )
    names = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
    a_policy(api, "dns", podSelector={}, egress=[{"to": [names], "ports": [{"protocol": "UDP", "port": 53}]}],
             policyTypes=["Egress"])  # fmt: skip
    assert told(api, an_open_job()) == ()


@pytest.mark.parametrize(
    ("spec", "closed"),
    [
        ({"ingress": [{"ports": [{"port": 2222}]}]}, {"MPI's data ports"}),
        ({"ingress": [{"ports": [{"port": "ssh"}, {"port": 1024, "endPort": 65535}]}]}, set()),
        ({"ingress": [{"ports": [{"port": 32768, "endPort": 60999}]}]}, {"port 2222 (ssh)"}),
        ({"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]}, set()),
        ({"ingress": [{"from": [{"ipBlock": {"cidr": "203.0.113.0/24"}}]}]}, {"port 2222 (ssh)", "MPI's data ports"}),
        ({"ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "cv"}}}]}]}, set()),
        (
            {"ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "nlp"}}}]}]},
            {"port 2222 (ssh)", "MPI's data ports"},
        ),
        ({"podSelector": {"matchLabels": {"app": "database"}}}, set()),
        (
            {"podSelector": {"matchLabels": {"mpijob.dev/role": "worker"}}},
            {"port 2222 (ssh)", "MPI's data ports"},
        ),
        ({"egress": [{}]}, {"port 2222 (ssh)", "MPI's data ports"}),
        ({"policyTypes": ["Egress"], "egress": [{"ports": [{"port": 443}]}]},
         {"port 2222 (ssh)", "MPI's data ports", "port 53 (names)"}),
    ],
)  # fmt: skip
def test_what_a_policy_leaves_open_is_read_as_the_cluster_reads_it(
    api: FakeApi, spec: dict[str, Any], closed: set[str]
) -> None:
    api.put(resources.NAMESPACE, NAMESPACE, labels={"team": "cv"})
    a_policy(api, "some", **{"podSelector": {}} | spec)
    said = " ".join(one.message for one in told(api, an_open_job()) if one.code == "NETWORK_BLOCKED")
    assert {
        word for word in ("port 2222 (ssh)", "MPI's data ports", "port 53 (names)") if word in said
    } == closed


def test_a_namespace_that_may_not_be_read_gets_no_warning_for_labels_nobody_knows(api: FakeApi) -> None:
    api.refuse(resources.NAMESPACE)
    peer = {"namespaceSelector": {"matchLabels": {"team": "nlp"}}}
    a_policy(api, "some", podSelector={}, ingress=[{"from": [peer]}])
    assert not [one for one in told(api, an_open_job()) if one.code == "NETWORK_BLOCKED"]


@pytest.mark.req("D-scc")
def test_nfs_is_refused_where_the_namespace_is_restricted_unless_a_driver_mounts_it(api: FakeApi) -> None:
    level = {"pod-security.kubernetes.io/enforce": "restricted"}
    api.put(resources.NAMESPACE, NAMESPACE, labels=level)
    job = a_job(volumes=(Volume(mount="/data", kind=VolumeKind.NFS, source="server:/data"),))
    error = refused(api, job, NotAllowed)
    assert "enforces the restricted Pod Security level" in error.message
    assert error.findings[0].code == "POD_SECURITY"
    api.put(Kind("storage.k8s.io/v1", "CSIDriver", "csidrivers", namespaced=False), "nfs.csi.k8s.io")
    assert told(api, job) == ()
    assert gathered(api, job).around.nfs_driver == "nfs.csi.k8s.io"


@pytest.mark.req("SC-015-rwo")
def test_a_claim_for_one_machine_is_refused_where_several_would_need_it(api: FakeApi) -> None:
    api.put(CLAIM, "data", spec={"accessModes": ["ReadWriteOnce"]})
    job = a_job(volumes=(Volume(mount="/data", kind=VolumeKind.CLAIM, source="data"),))
    error = refused(api, job, InvalidJob)
    assert "volume claim 'data' is ReadWriteOnce: only one node can mount it" in error.message
    pinned = job.replace(placement=Placement(node_selector={"kubernetes.io/hostname": "gpu-1"}))
    assert told(api, pinned) == ()
    api.refuse(resources.NODE)
    assert one(told(api, job), "CLAIM_NOT_SHARED").severity is Severity.WARNING
    api.put(CLAIM, "data", spec={"accessModes": ["ReadWriteMany"]})
    assert not [one for one in told(api, job) if one.code == "CLAIM_NOT_SHARED"]


def test_a_claim_that_is_not_there_is_refused(api: FakeApi) -> None:
    job = a_job(volumes=(Volume(mount="/data", kind=VolumeKind.CLAIM, source="data"),))
    assert refused(api, job, NotFound).message == "volume claim 'data' does not exist in namespace 'team-cv'"


@pytest.mark.req("D-istio")
@pytest.mark.parametrize("label", [{"istio-injection": "enabled"}, {"istio.io/dataplane-mode": "ambient"}])
def test_a_service_mesh_is_told(api: FakeApi, label: dict[str, str]) -> None:
    api.put(resources.NAMESPACE, NAMESPACE, labels=label)
    assert "uses a service mesh" in one(told(api, a_job()), "CLUSTER_NOTICE").message


@pytest.mark.req("FR-029")
def test_priority_classes_are_found_by_our_words_and_unknown_ones_refused(api: FakeApi) -> None:
    api.put(resources.PRIORITY_CLASS, "high-priority", value=10)
    assert gathered(api, a_job(priority="high")).around.priority_classes == {"high": "high-priority"}
    error = refused(api, a_job(priority="hihg-priority"), NotFound)
    assert "did you mean 'high-priority'?" in error.hint
    api.refuse(resources.PRIORITY_CLASS)
    assert "PriorityClasses" in one(told(api, a_job(priority="gold")), "NOT_READ").message


# -- names, and what the planner is told


def test_an_unfinished_job_of_that_name_is_a_conflict_and_a_finished_one_is_not(api: FakeApi) -> None:
    api.put(resources.TRAINJOB, "bert", status={})
    assert "'bert' already exists" in refused(api, a_job(), Conflict).message
    over = [{"type": "Complete", "status": "True"}]
    api.put(resources.TRAINJOB, "bert", status={"conditions": over})
    api.put(resources.MPIJOB, "bert-r2", labels={"mpijob.dev/job": "bert"}, status={"conditions": over})
    found = gathered(api, a_job())
    assert found.facts.taken_names == frozenset()
    assert found.around.names == {"bert", "bert-r2"}


def test_openshift_chooses_the_user_itself(api: FakeApi) -> None:
    assert gathered(api, a_job()).around.user == preflight.PLAIN_USER
    around = gathered(api, a_job(), SERVED | {"security.openshift.io/v1"}).around
    assert around.openshift
    assert around.user is None


def test_locked_memory_is_asked_for_only_where_it_is_given(api: FakeApi) -> None:
    job = a_job(resources=Resources(others={"rdma/hca": 1}))
    a_node(api, "fast")
    api.objects[resources.NODE.path("", "fast")]["status"]["allocatable"]["rdma/hca"] = "8"
    assert gathered(api, job).around.ipc_lock
    level = {"pod-security.kubernetes.io/enforce": "baseline"}
    api.put(resources.NAMESPACE, NAMESPACE, labels=level)
    assert not gathered(api, job).around.ipc_lock
    assert not gathered(api, a_job()).around.ipc_lock


def test_gpus_of_test_machines_are_not_looked_for_by_the_census(api: FakeApi) -> None:
    assert gathered(api, a_job()).around.prove_gpus
    a_node(api, "fake", gpus=8, labels={"mpijob.dev/no-devices": "true"})
    assert not gathered(api, a_job()).around.prove_gpus


def test_only_what_the_job_and_the_cluster_need_is_read(api: FakeApi) -> None:
    gathered(api, a_job(mpi=Family.OPENMPI), frozenset({resources.TRAINER_API, resources.JOBSET_API}))
    asked = {path.rpartition("/")[2] for path in api.asked}
    assert not asked & {"localqueues", "clusterqueues", "mpijobs", "priorityclasses", "csidrivers"}
    assert len(api.asked) <= 9


def test_more_pods_than_can_be_counted_leave_what_is_free_unknown(api: FakeApi) -> None:
    api.objects[resources.POD.path()] = {"metadata": {"continue": "more"}, "items": []}
    facts = gathered(api, a_job()).facts
    assert facts.free == facts.capacity
    assert "more than" in one(admission.admit(a_job(), JANE, facts), "NOT_READ").message
