"""A job's network policy: who is let in, where its pods may go, and whose words open what."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kube_store import Store
from tests.unit.preflight_support import FakeApi, a_policy, gathered, with_gpus
from tests.unit.preflight_support import a_job as a_wish

from mpijob import checks
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.submit import create_objects, owner_references, planner
from mpijob.formats.kubernetes import mpijob, network_policy, network_policy_check, trainjob
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document, Shape
from mpijob.model import Family, MPIJob, Network, Secret
from mpijob.model.spec.network import Destination, Where, destination, destinations
from mpijob.settings import Settings

SHAPE = Shape(uid="abc", user=1000)


def a_job(**fields: Any) -> MPIJob:
    return MPIJob(**{"name": "bert", "namespace": "cv", "image": "x/y:1", "command": ("true",)} | fields)


def rules(document: Document, direction: str = "egress") -> list[Document]:
    return list(document["spec"][direction])


@pytest.mark.security
@pytest.mark.req("FR-025", "FR-SEC-004")
def test_only_the_jobs_own_pods_are_let_in_and_they_may_reach_each_other_and_dns() -> None:
    policy = network_policy.write(a_job(), SHAPE)
    labels = {"jobset.sigs.k8s.io/jobset-name": "bert", "mpijob.dev/uid": "abc"}
    own = {"podSelector": {"matchLabels": labels}}
    assert policy["spec"]["podSelector"] == own["podSelector"]
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert rules(policy, "ingress") == [{"from": [own]}]
    first, names = rules(policy)
    assert first == {"to": [own]}
    assert {one["port"] for one in names["ports"]} == {53, 5353}


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        ("internet", Destination(Where.INTERNET)),
        ("internet:443", Destination(Where.INTERNET, "", 443)),
        ("10.1.0.0/16", Destination(Where.BLOCK, "10.1.0.0/16")),
        ("10.1.2.3:5432", Destination(Where.BLOCK, "10.1.2.3/32", 5432)),
        ("[2001:db8::1]:443", Destination(Where.BLOCK, "2001:db8::1/128", 443)),
        ("2001:db8::/32", Destination(Where.BLOCK, "2001:db8::/32")),
        ("namespace/data", Destination(Where.NAMESPACE, "data")),
        ("minio.data.svc:9000", Destination(Where.NAMESPACE, "data")),
        ("minio.data.svc.cluster.local", Destination(Where.NAMESPACE, "data")),
        ("http://minio.data:9000", Destination(Where.NAMESPACE, "data")),
        ("minio:9000", Destination(Where.NAMESPACE, "cv")),
        ("s3.eu-west-1.amazonaws.com", Destination(Where.INTERNET, "", 443)),
        ("https://wandb.ai", Destination(Where.INTERNET, "", 443)),
        ("http://example.org:8080/x", Destination(Where.INTERNET, "", 8080)),
        ("postgresql://user:pw@10.0.0.9/db", Destination(Where.BLOCK, "10.0.0.9/32", 5432)),
        ("http://localhost:5000", None),
        ("127.0.0.1:5000", None),
    ],
)
def test_a_word_means_a_place(word: str, wanted: Destination | None) -> None:
    assert destination(word, "cv") == wanted


@pytest.mark.parametrize("word", ["", "s3://bucket/x", "10.0.0.1:http", "a b", "host:0", "namespace/A", "-x"])
def test_a_word_that_names_no_place_is_refused_before_anything_is_sent(word: str) -> None:
    found = [one for one in checks.run(a_job(network=Network(egress=(word,)))) if one.code == "BAD_NETWORK"]
    assert [one.field for one in found] == ["network.egress[0]"]
    assert "minio.data.svc" in found[0].hint


@pytest.mark.req("FR-SEC-005", "FR-INT-003")
def test_data_connections_and_the_tracking_server_open_by_themselves() -> None:
    env = {
        "AWS_S3_ENDPOINT": "http://minio.data.svc:9000",
        "MLFLOW_TRACKING_URI": "http://10.9.8.7:5000",
        "BUCKET": "s3://bucket/x",
        "TEXT": "see https://example.org for more",
        "LR": "0.1",
    }
    assert destinations((), env, "cv") == (
        Destination(Where.BLOCK, "10.9.8.7/32", 5000),
        Destination(Where.NAMESPACE, "data"),
    )
    block, data = rules(network_policy.write(a_job(env=env), SHAPE))[2:]
    assert block["to"] == [{"ipBlock": {"cidr": "10.9.8.7/32"}}]
    assert {one["port"] for one in block["ports"]} == {5000}
    assert data == {"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "data"}}}]}


@pytest.mark.security
@pytest.mark.req("R10")
def test_the_internet_is_open_only_when_asked_for_and_holds_no_private_address() -> None:
    assert not [one for one in rules(network_policy.write(a_job(), SHAPE)) if "0.0.0.0/0" in str(one)]
    wide = network_policy.write(a_job(network=Network(egress=("internet:443",))), SHAPE)
    block = rules(wide)[2]["to"][0]["ipBlock"]
    assert block["cidr"] == "0.0.0.0/0"
    assert {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"} <= set(block["except"])


@pytest.mark.parametrize("family", [Family.OPENMPI, Family.MPICH])
def test_who_reads_the_job_in_the_cluster_makes_the_very_same_policy(family: Family) -> None:
    job = a_job(network=Network(egress=("internet:443",)), env={"S3": "http://minio.data.svc"})
    shape = Shape(uid="abc", user=1000, family=family)
    write = trainjob.write if family is Family.OPENMPI else mpijob.write
    *runtime, document = write(job, shape)
    assert network_policy.of_object(document, *runtime) == network_policy.write(
        job, shape, kind=document["kind"]
    )


@pytest.mark.parametrize(
    ("kind", "label"),
    [("TrainJob", "jobset.sigs.k8s.io/jobset-name"), ("MPIJob", "training.kubeflow.org/job-name")],
)
def test_anybody_elses_job_is_known_by_the_label_of_its_engine(kind: str, label: str) -> None:
    env = [{"name": "URL", "value": "http://10.0.0.9:80"}, {"name": "SECRET", "valueFrom": {}}]
    replica = {"template": {"spec": {"containers": [{"name": "x", "env": env}]}}}
    spec = {"trainer": {"env": env}} if kind == "TrainJob" else {"mpiReplicaSpecs": {"Launcher": replica}}
    policy = network_policy.of_object(
        {"kind": kind, "metadata": {"name": "theirs", "namespace": "cv"}, "spec": spec}
    )
    assert policy is not None
    assert policy["spec"]["podSelector"] == {"matchLabels": {label: "theirs"}}
    assert "10.0.0.9/32" in str(policy)


@pytest.mark.security
def test_an_annotation_that_cannot_be_read_opens_nothing() -> None:
    for text in ('{"network": 7}', "not json", '{"network": {"egress": ["s3://x"]}}'):
        metadata = {"name": "odd", "namespace": "cv", "annotations": {well_known.REST_ANNOTATION: text}}
        policy = network_policy.of_object({"kind": "TrainJob", "metadata": metadata, "spec": {}})
        assert policy is not None
        assert len(rules(policy)) == 2


def test_monitoring_may_come_in_where_it_is_named() -> None:
    policy = network_policy.write(a_job(), SHAPE, monitoring=("monitoring",))
    assert rules(policy, "ingress")[1]["from"][0]["namespaceSelector"]


def test_the_policy_opens_what_the_namespaces_defaults_close() -> None:
    job, both = a_job(), network_policy.namespace_defaults("cv")
    assert {one.flow.value for one in network_policy_check.blocked(both, job)} == {"ssh", "data"}
    selected = network_policy.write(job, SHAPE)
    selected["spec"]["podSelector"] = {"matchLabels": {well_known.JOB_LABEL: job.name}}
    for rule in (*rules(selected), *rules(selected, "ingress")):
        for peer in (*rule.get("to", ()), *rule.get("from", ())):
            if list(peer) == ["podSelector"]:
                peer["podSelector"] = selected["spec"]["podSelector"]
    assert network_policy_check.blocked((*both, selected), job) == ()


# -- on its way to the cluster


def a_plan(api: FakeApi, job: MPIJob) -> tuple[Mapping[str, Any], ...]:
    found = gathered(api, job)
    return planner.plan(job, found.facts, found.around, Settings(), Path("/nonexistent"), "cluster").documents


def test_who_may_create_policies_brings_one_before_the_job_and_owned_by_it() -> None:
    documents = a_plan(with_gpus(), a_wish())
    assert [one["kind"] for one in documents] == ["TrainingRuntime", "NetworkPolicy", "TrainJob"]
    assert (
        documents[1]["metadata"]["labels"][well_known.UID_LABEL]
        == documents[2]["metadata"]["labels"][well_known.UID_LABEL]
    )


@pytest.mark.req("FR-INT-003")
@pytest.mark.parametrize("value", ["http://minio.data.svc:9000", "minio.data.svc:9000"])
def test_the_server_of_a_data_connection_is_read_from_its_secret(value: str) -> None:
    api = with_gpus()
    api.put(resources.SECRET, "connection", data={"endpoint": base64.b64encode(value.encode()).decode()})
    secrets = (
        Secret(env="AWS_S3_ENDPOINT", source="connection/endpoint"),
        Secret(env="KEY", source="connection/key"),
    )
    policy = a_plan(api, a_wish(secrets=secrets))[1]
    assert "'kubernetes.io/metadata.name': 'data'" in str(policy)
    api.refuse(resources.SECRET)  # who may not read it opens nothing, and the job is planned all the same
    assert len(rules(dict(a_plan(api, a_wish(secrets=secrets))[1]))) == 2


def test_who_may_not_create_policies_leaves_that_to_the_cluster() -> None:
    api = with_gpus()
    api.rules = [
        {"verbs": ["*"], "apiGroups": ["trainer.kubeflow.org", "kubeflow.org", ""], "resources": ["*"]},
        {"verbs": ["get", "list", "create"], "apiGroups": ["networking.k8s.io"], "resources": ["*"]},
    ]
    assert [one["kind"] for one in a_plan(api, a_wish())] == ["TrainingRuntime", "TrainJob"]


def test_a_job_that_wants_none_gets_none() -> None:
    job = a_wish(network=Network(isolated=False))
    assert "NetworkPolicy" not in {one["kind"] for one in a_plan(with_gpus(), job)}


def test_a_namespace_that_denies_everything_is_no_obstacle_to_a_job_that_brings_its_policy() -> None:
    api = with_gpus()
    a_policy(api, "deny", podSelector={}, policyTypes=["Ingress", "Egress"])
    assert gathered(api, a_wish()).facts.cluster.blocked == ()  # type: ignore[union-attr]
    open_job = a_wish(network=Network(isolated=False))
    assert gathered(api, open_job).facts.cluster.blocked  # type: ignore[union-attr]


def test_the_policy_is_owned_by_the_job_and_swept_with_it() -> None:
    wish, store = a_wish(), Store()
    found = gathered(with_gpus(), wish)
    plan = planner.plan(wish, found.facts, found.around, Settings(), Path("/nonexistent"), "cluster")
    made, owned = create_objects.submit(store, plan)
    owned()
    path = resources.NETWORK_POLICY.path(wish.namespace, "bert" + well_known.NETWORK_SUFFIX)
    assert store.objects[path]["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    del store.objects[path]["metadata"]["ownerReferences"]  # its creator was killed before it said so
    owner_references.sweep(store, resources.TRAINJOB, made)
    assert path not in store.objects
