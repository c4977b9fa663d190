"""What the doctor reads of a cluster's engines, and what it says about them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.preflight_support import SERVED, FakeApi

from mpijob.admission import installation
from mpijob.backends.kubernetes.admin import versions
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.errors import Finding, Severity
from mpijob.model.platform.installation import Answering, Component, Installation, Product

DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
WEBHOOKS = Kind(
    "admissionregistration.k8s.io/v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    False,
)
SLICES = Kind("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")


class Cluster(FakeApi):
    """A cluster with engines; `schema` is what it says of TrainJobs."""

    def __init__(self, schema: bytes = b'{"properties":{"runtimePatches":{}}}') -> None:
        super().__init__()
        self.schema = schema
        self.down: set[str] = set()
        self.objects["/version"] = {"gitVersion": "v1.34.4"}

    def get(self, path: str, **query: str) -> dict[str, Any]:
        if path in self.down:
            raise ApiError("no endpoint", status=503, reason="ServiceUnavailable")
        return super().get(path, **query)

    def raw(self, path: str, *, accept: str = "", **query: str) -> bytes:
        self._look(path)
        return self.schema

    def deploy(self, name: str, image: str, *args: str, namespace: str = "engines", ready: int = 1) -> None:
        """Add a deployment."""
        container = {"image": image, "args": list(args)}
        spec = {"template": {"spec": {"containers": [container]}}}
        self.put(DEPLOYMENT, name, namespace=namespace, spec=spec, status={"availableReplicas": ready})


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.deploy("kubeflow-trainer-controller-manager", "example/trainer:v2.2.1")
    cluster.deploy("jobset-controller-manager", "example/jobset:v0.12.0@sha256:abc")
    cluster.deploy("kueue-controller-manager", "example:5000/kueue:v0.19.2")
    cluster.deploy("mpi-operator", "example/mpi-operator:v0.8.2", "--kube-api-qps=50", "-v", "4")
    return cluster


def a_place(**versions_: str) -> Installation:
    products = {"kueue": Product.KUEUE, "trainer": Product.TRAINER, "jobset": Product.JOBSET}
    products |= {"operator": Product.MPI_OPERATOR, "kubernetes": Product.KUBERNETES}
    known = {"trainer": "2.2.1", "jobset": "0.12.0", "operator": "0.8.2"} | versions_
    parts = tuple(
        Component(product=products[name], version=version)
        for name, version in known.items()
        if version != "none"
    )
    return Installation(components=parts, served=SERVED, metrics=Answering.YES, visibility=Answering.YES)


def said(found: Installation, code: str) -> list[Finding]:
    return [one for one in installation.examine(found) if one.code == code]


def test_every_engine_is_found_with_its_version_place_and_options(cluster: Cluster) -> None:
    found = versions.matrix(cluster, SERVED)
    told = {one.product: (one.version, one.source) for one in found.components}
    assert told == {
        Product.KUBERNETES: ("1.34.4", "server"),
        Product.TRAINER: ("2.2.1", "image"),
        Product.JOBSET: ("0.12.0", "image"),
        Product.KUEUE: ("0.19.2", "image"),
        Product.MPI_OPERATOR: ("0.8.2", "image"),
    }
    operator = found.find(Product.MPI_OPERATOR)
    assert operator is not None
    assert operator.place == "engines/mpi-operator"
    assert operator.options == {"kube-api-qps": "50", "v": "4"}
    assert found.patches == "runtimePatches"
    assert not said(found, "DOCTOR_QPS")


def test_an_image_without_a_version_is_told_by_labels_or_the_published_config_map(cluster: Cluster) -> None:
    cluster.deploy("kubeflow-trainer-controller-manager", "example/trainer@sha256:abc")
    cluster.put(
        resources.CONFIG_MAP, "kubeflow-trainer-public", namespace="kubeflow-system",
        data={"kubeflow_trainer_version": "v2.1.0"},
    )  # fmt: skip
    cluster.deploy("kueue-controller-manager", "example/kueue:latest")
    path = DEPLOYMENT.path("engines", "kueue-controller-manager")
    cluster.objects[path]["metadata"]["labels"] = {"helm.sh/chart": "kueue-0.16.4"}
    found = versions.matrix(cluster, SERVED)
    assert {one.product: one.version for one in found.components}[Product.TRAINER] == "2.1.0"
    assert {one.product: one.version for one in found.components}[Product.KUEUE] == "0.16.4"


@pytest.mark.parametrize(
    ("schema", "version"),
    [
        (b'"runtimePatches"', "2.2"),
        (b'"podTemplateOverrides"', "2.1"),
        (b'"podSpecOverrides"', "2.0"),
        (b"{}", ""),
    ],
)
def test_a_plain_user_learns_trainers_version_from_its_schema(schema: bytes, version: str) -> None:
    cluster = Cluster(schema)
    cluster.refuse(DEPLOYMENT, WEBHOOKS)
    found = versions.matrix(cluster, SERVED)
    trainer = found.find(Product.TRAINER)
    assert trainer is not None
    assert trainer.version == version
    assert "cannot read deployments of all namespaces" in " ".join(
        one.message for one in said(found, "NOT_READ")
    )


def test_an_api_that_is_announced_and_does_not_answer_is_down(cluster: Cluster) -> None:
    cluster.down = {"/apis/metrics.k8s.io/v1beta1"}
    found = versions.matrix(cluster, SERVED | {"metrics.k8s.io/v1beta1"})
    assert found.metrics is Answering.DOWN
    assert found.visibility is Answering.ABSENT
    assert "is registered but does not respond" in " ".join(one.message for one in said(found, "DOCTOR_API"))


def test_a_webhook_without_endpoints_is_an_error(cluster: Cluster) -> None:
    service = {"namespace": "kueue-system", "name": "kueue-webhook"}
    rule = {"apiGroups": ["trainer.kubeflow.org"], "resources": ["trainjobs"]}
    webhook = {"clientConfig": {"service": service}, "rules": [rule], "failurePolicy": "Fail"}
    mild = {
        "clientConfig": {"service": service | {"name": "mild"}},
        "rules": [rule],
        "failurePolicy": "Ignore",
    }
    other = {
        "clientConfig": {"service": service | {"name": "else"}},
        "rules": [{"apiGroups": ["example.org"]}],
    }
    cluster.put(WEBHOOKS, "kueue", webhooks=[webhook, mild, other])
    (broken,) = said(versions.matrix(cluster, SERVED), "DOCTOR_WEBHOOK")
    assert broken.message.startswith("webhook service kueue-system/kueue-webhook has no ready endpoint")
    assert broken.severity is Severity.ERROR
    labels = {"kubernetes.io/service-name": "kueue-webhook"}
    ready = [{"conditions": {"ready": True}}]
    cluster.put(SLICES, "kueue-webhook-1", namespace="kueue-system", labels=labels, endpoints=ready)
    assert not said(versions.matrix(cluster, SERVED), "DOCTOR_WEBHOOK")


def test_the_old_operators_mpijob_is_named_as_a_clash(cluster: Cluster) -> None:
    cluster.objects["/apis/kubeflow.org/v1"] = {"resources": [{"name": "mpijobs"}, {"name": "pytorchjobs"}]}
    found = versions.matrix(cluster, (SERVED - {resources.MPI_OPERATOR_API}) | {"kubeflow.org/v1"})
    (clash,) = said(found, "DOCTOR_OLD_MPIJOB")
    assert clash.severity is Severity.ERROR
    cluster.objects["/apis/kubeflow.org/v1"] = {"resources": [{"name": "pytorchjobs"}]}
    assert not versions.matrix(cluster, SERVED).old_mpijob


def test_a_deployment_that_is_not_ready_is_an_error(cluster: Cluster) -> None:
    cluster.deploy("mpi-operator", "example/mpi-operator:v0.8.2", ready=0)
    messages = [one.message for one in said(versions.matrix(cluster, SERVED), "DOCTOR_ENGINE")]
    assert (
        "MPI Operator is installed (engines/mpi-operator), but not ready: its jobs do not progress"
        in messages
    )


@pytest.mark.parametrize(("args", "seconds"), [((), "20 s"), (("--kube-api-qps=10",), "10 s")])
def test_a_slow_operator_is_warned_of_with_what_it_costs(
    cluster: Cluster, args: tuple[str, ...], seconds: str
) -> None:
    cluster.deploy("mpi-operator", "example/mpi-operator:v0.8.2", *args)
    (slow,) = said(versions.matrix(cluster, SERVED), "DOCTOR_QPS")
    assert f"takes about {seconds}" in slow.message
    assert "--kube-api-qps=50" in slow.hint


@pytest.mark.parametrize(
    ("kueue", "trainer", "clash"),
    [
        ("0.14.4", "2.0.1", False),
        ("0.14.4", "2.1.0", True),
        ("0.16.0", "2.1.0", False),
        ("0.16.0", "2.0.1", True),
        ("0.16.0", "2.2.0", True),
        ("0.17.0", "2.2.0", False),
        ("0.17.0-rc.1", "2.1.0", True),
        ("0.19.2", "2.2.1", False),
        ("0.19.2", "2.3.0", False),
        ("", "2.2.1", False),
        ("0.19.2", "", False),
    ],
)
def test_pairs_of_kueue_and_trainer_that_do_not_fit_are_errors(kueue: str, trainer: str, clash: bool) -> None:
    found = said(a_place(kueue=kueue, trainer=trainer), "DOCTOR_PAIR")
    errors = [one for one in found if one.severity is Severity.ERROR]
    assert bool(errors) is clash
    assert all("stay suspended" in one.message and "upgrade" in one.hint for one in errors)


@pytest.mark.parametrize(
    ("missing", "said_", "severity"),
    [
        ({"trainer": "none", "operator": "none"}, "no job can run here", Severity.ERROR),
        ({"operator": "none"}, "MPICH or Intel MPI cannot run", Severity.WARNING),
        ({"trainer": "none"}, "all jobs use the MPI Operator", Severity.WARNING),
        ({"jobset": "none"}, "JobSet is not installed", Severity.ERROR),
    ],
)
def test_a_missing_engine_is_told_with_what_it_costs(
    missing: dict[str, str], said_: str, severity: Severity
) -> None:
    (found,) = [one for one in said(a_place(**missing), "DOCTOR_ENGINE") if said_ in one.message]
    assert found.severity is severity
    assert found.hint


def test_versions_are_compared_with_those_that_are_tested() -> None:
    told = {one.message for one in said(a_place(kubernetes="1.26.3", trainer="2.3.0"), "DOCTOR_VERSION")}
    assert "Kubeflow Trainer 2.3.0 is newer than 2.2, which mpijob is tested with" in told
    assert "Kubernetes 1.26.3 is older than 1.27, which the engines require" in told
    fine = installation.examine(a_place(kubernetes="1.34.4", kueue="0.19.2"))
    assert all(one.severity is Severity.NOTICE for one in fine)


@pytest.mark.req("E-fips")
def test_the_key_types_in_use_are_told() -> None:
    assert any("ECDSA P-521" in one.message for one in said(a_place(), "DOCTOR_OK"))


def test_rights_are_told_for_each_engine() -> None:
    lacking = {"trainer": ("create trainjobs.trainer.kubeflow.org",), "mpi-operator": ()}
    found = list(installation.permission_findings("team-cv", lacking, ("create pods/exec",)))
    assert [one.severity for one in found] == [Severity.WARNING, Severity.NOTICE, Severity.NOTICE]
    nothing = list(installation.permission_findings("team-cv", {"trainer": ("create trainjobs",)}, ()))
    assert [one.severity for one in nothing] == [Severity.ERROR]


def test_every_clash_and_every_product_has_words() -> None:
    assert all(one.effect and one.remedy for one in installation.VERSION_CONFLICTS)
    assert set(installation.TESTED) <= set(Product)
