"""The operator on a real cluster: it adopts, installs, upgrades and removes, and no running job notices."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from testbed import manifests, operators, processes, services
from testbed.kubectl import kubectl
from testbed.shell import run
from tests.e2e.cluster.governed import (
    DEPLOY,
    QUIET,
    becomes,
    component,
    install_resources,
    operator,
    platform,
    want,
)
from tests.e2e.cluster.support import PATIENCE, Place, a_job, eventually, image, own_place

from mpijob import Phase
from mpijob.backends.kubernetes.client.api import Document
from mpijob.cluster.apply import CRD
from mpijob.cluster.engines import DEPLOYMENT, DSC_API, DSC_CRD
from mpijob.cluster.operator import PLATFORM

pytestmark = pytest.mark.alone  # there is one platform, and an engine goes for a while
MPI = "mpi-operator"


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "operator") as place:
        install_resources(place)
        yield place


@pytest.mark.req("FR-001", "E-component")
def test_engines_that_are_there_are_adopted_and_left_alone(place: Place) -> None:
    before = {name: deployment(place, name) for name in ("jobset-controller-manager", MPI)}
    with platform(place, QUIET), operator(place):
        for name in ("jobset", "trainer", "kueue"):
            found = becomes(place, name, "Adopted")
            assert found["version"].startswith("v")
            assert "another manager" in found["keptBy"]
        words = ("wait", "mpijobplatform/default", "--for=condition=Ready", "--timeout=60s")
        place.kubectl(*words)
        with data_science_cluster(place, trainer="Managed"):
            want(place, registry="mirror.example.org")  # whatever changes, it is looked at anew
            eventually(
                lambda: component(place, "trainer").get("keptBy") == "DataScienceCluster default-dsc",
                "the cluster's own component is seen",
            )
        want(place, managementState="Removed")
        becomes(place, "roles", "Absent")
        assert becomes(place, "trainer", "Adopted")
    assert {name: deployment(place, name) for name in before} == before


PROMETHEUS = {
    "prometheusrules": "PrometheusRule",
    "servicemonitors": "ServiceMonitor",
    "podmonitors": "PodMonitor",
}


@contextmanager
def prometheus(place: Place) -> Iterator[None]:
    """Let the cluster have the Prometheus operator's resources, with nobody behind them."""
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": free}}
    names = [f"{plural}.monitoring.coreos.com" for plural in PROMETHEUS]
    try:
        for name, (plural, kind) in zip(names, PROMETHEUS.items(), strict=True):
            told = {"kind": kind, "plural": plural, "singular": kind.lower()}
            spec = {
                "group": "monitoring.coreos.com",
                "scope": "Namespaced",
                "names": told,
                "versions": [version],
            }
            place.api.create(
                CRD.path(),
                {"apiVersion": CRD.api, "kind": CRD.name, "metadata": {"name": name}, "spec": spec},
            )
        place.kubectl(
            "wait", "--for=condition=Established", "--timeout=30s", *(f"crd/{name}" for name in names)
        )
        yield
    finally:
        for name in names:
            place.api.delete(CRD.path("", name))


@pytest.mark.req("FR-001", "B-admin")
def test_runtimes_and_monitoring_are_kept_and_go_with_the_platform(place: Place) -> None:
    wanted = {**QUIET, "runtimes": "Managed", "registry": "testbed.local"}
    asked = {"managementState": "Managed", "quotaAlertPercent": 80}
    with prometheus(place), platform(place, {**wanted, "monitoring": asked}), operator(place):
        assert becomes(place, "runtimes", "Ready")["keptBy"] == "mpijob"
        becomes(place, "monitoring", "Ready")
        rule = place.kubectl("get", "prometheusrule", "mpijob", "--output=yaml")
        assert "MPIJobQuotaNearlyConsumed" in rule
        assert ">= 0.8" in rule
        assert "mpijob-recorder" in place.kubectl("get", "servicemonitors", "--output=name")
        assert "mpijob-openmpi " in place.mpijob("runtimes", "list").stdout
        want(place, managementState="Removed")
        becomes(place, "runtimes", "Absent")
        becomes(place, "monitoring", "Absent")
        assert "mpijob-openmpi" not in kubectl("get", "clustertrainingruntimes", "--output=name")
        assert "mpijob" not in place.kubectl("get", "prometheusrules", "--output=name")


@contextmanager
def own_namespace(place: Place) -> Iterator[None]:
    """Let our services have the namespace that their manifests name."""
    kubectl("apply", "--server-side", f"--kustomize={DEPLOY / 'base' / 'namespace'}")
    try:
        yield
    finally:
        kubectl("delete", "namespace", "mpijob-system", "--ignore-not-found", "--wait", timeout_seconds=120)


def asked_within(place: Place, service: str, path: str) -> str:
    """Return what a service of ours answers to who trusts the authority of its certificate; from the node itself."""
    secret = json.loads(
        kubectl("-n", "mpijob-system", "get", "secret", f"mpijob-{service}-tls", "--output=json")
    )
    address = kubectl(
        "-n", "mpijob-system", "get", "service", f"mpijob-{service}", "--output=jsonpath={.spec.clusterIP}"
    )
    name = f"mpijob-{service}.mpijob-system.svc"
    code = (
        "import base64, http.client, socket, ssl, sys\n"
        "context = ssl.create_default_context(cadata=base64.b64decode(sys.argv[1]).decode())\n"
        "line = context.wrap_socket(socket.create_connection((sys.argv[2], 443), 10), server_hostname=sys.argv[3])\n"
        "asked = http.client.HTTPConnection(sys.argv[3]); asked.sock = line\n"
        "asked.request('GET', sys.argv[4]); answer = asked.getresponse()\n"
        "print(answer.status, answer.read().decode())"
    )
    words = (sys.executable, "-c", code, secret["data"]["ca.crt"], address, name, path)
    return run(*processes.inside(*words))


@pytest.mark.testbed
@pytest.mark.long
@pytest.mark.req("FR-001", "Q-SEC-002", "FR-INT-005")
def test_broker_and_page_run_as_pods_with_certificates_of_the_operators(place: Place) -> None:
    managed = {"managementState": "Managed"}
    spec = {
        **QUIET,
        "services": {**QUIET["services"], "broker": managed, "page": managed},
        "image": services.provide(),
    }
    with own_namespace(place), platform(place, spec), operator(place):
        for name, path, status in (("broker", "/healthz", "200"), ("page", "/api/v1/trainjobs", "401")):
            becomes(place, name, "Ready", 150)
            assert asked_within(place, name, path).startswith(status)
        want(place, managementState="Removed")
        for name in ("broker", "page"):
            becomes(place, name, "Absent", 60)
            assert f"mpijob-{name}" not in kubectl(
                "-n", "mpijob-system", "get", "secrets,deployments", "--output=name"
            )


def deployment(place: Place, name: str) -> str:
    """Return what tells one Deployment from another, and from itself after a change."""
    found = place.api.list(DEPLOYMENT.path(), fields=f"metadata.name={name}").items
    return ",".join(f"{one['metadata']['uid']}/{one['metadata']['generation']}" for one in found)


@contextmanager
def data_science_cluster(place: Place, **components: str) -> Iterator[None]:
    """Let the cluster have OpenShift AI's resource, with nobody behind it."""
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"kind": "DataScienceCluster", "plural": "datascienceclusters", "singular": "datasciencecluster"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": free}}
    definition: Document = {
        "apiVersion": CRD.api,
        "kind": CRD.name,
        "metadata": {"name": DSC_CRD},
        "spec": {"group": DSC_API, "scope": "Cluster", "names": names, "versions": [version]},
    }
    parts = {name: {"managementState": state} for name, state in components.items()}
    document = {
        "apiVersion": f"{DSC_API}/v1",
        "kind": "DataScienceCluster",
        "metadata": {"name": "default-dsc"},
        "spec": {"components": parts},
    }
    place.api.create(CRD.path(), definition)
    try:
        place.kubectl("wait", "--for=condition=Established", f"crd/{DSC_CRD}", "--timeout=30s")
        place.kubectl("apply", "--filename=-", stdin=json.dumps(document))
        yield
    finally:
        place.api.delete(CRD.path("", DSC_CRD))


@contextmanager
def without_mpi_operator() -> Iterator[Path]:
    """Take the bed's own MPI Operator away, and bring it back."""
    source = manifests.rendered(MPI)
    kubectl("delete", "--ignore-not-found", "--wait", f"--filename={source}", timeout_seconds=120)
    try:
        yield source
    finally:  # what the operator left bears its mark: all of it goes first
        kubectl("delete", "--ignore-not-found", "--wait", f"--filename={source}", timeout_seconds=120)
        kubectl("apply", "--server-side", "--force-conflicts", f"--filename={source}", timeout_seconds=120)
        operators.wait_until_available()


def newer(source: Path, target: Path) -> None:
    """Write manifests of a next version: the controller's pods differ, one role is not there any more."""
    documents = [one for one in yaml.safe_load_all(source.read_text()) if one]
    kept = [one for one in documents if one["metadata"]["name"] != "kubeflow-mpijobs-view"]
    assert len(kept) == len(documents) - 1
    for one in kept:
        if one["kind"] == "Deployment":
            one["spec"]["template"]["metadata"].setdefault("annotations", {})["mpijob.dev/test"] = "newer"
    target.write_text(yaml.safe_dump_all(kept))


@pytest.mark.testbed
@pytest.mark.req("FR-001", "E-component", "C-ha")
def test_an_engine_is_installed_upgraded_and_removed_around_a_running_job(
    place: Place, tmp_path: Path
) -> None:
    """The operator is killed in the middle of each step; the job's pods stay the same throughout."""
    with without_mpi_operator() as source:
        shutil.copy(source, tmp_path / f"{MPI}.yaml")
        newer(source, tmp_path / f"{MPI}-v2.yaml")
        managed = {"mpiOperator": {"managementState": "Managed"}}
        with platform(place, {**QUIET, "source": str(tmp_path), "engines": managed}):
            killed_in_the_middle(place)
            with operator(place):
                assert becomes(place, MPI, "Ready")["keptBy"] == "mpijob"
                job = place.running(a_job("steady", "sleep 600", mpi="mpich", image=image("mpich")))
                pods = place.uids("steady")
                want(place, engines={"mpiOperator": {"version": "v2"}})
            killed_in_the_middle(place)
            with operator(place):
                becomes(place, MPI, "Ready")
                (found,) = place.api.list(DEPLOYMENT.path(), fields=f"metadata.name={MPI}").items
                assert found["spec"]["template"]["metadata"]["annotations"]["mpijob.dev/test"] == "newer"
                assert "kubeflow-mpijobs-view" not in kubectl("get", "clusterroles", "--output=name")
                assert (place.uids("steady"), job.state().phase) == (pods, Phase.RUNNING)
                want(place, managementState="Removed")
                told = becomes(place, MPI, "Removing")
                assert f"{place.namespace}/steady" in told["message"]
                assert (place.uids("steady"), job.state().phase) == (pods, Phase.RUNNING)
                job.cancel(grace_period=0)
                eventually(lambda: not deployment(place, MPI), "the engine goes with its last job", PATIENCE)
                assert "CRDs stay" in becomes(place, MPI, "Absent")["message"]
            job.delete()  # while nobody acts: with the last job the definition goes, too
            killed_in_the_middle(place)
            with operator(place):
                gone = CRD.path("", "mpijobs.kubeflow.org")
                eventually(lambda: place.api.find(gone) is None, "the definition goes last", PATIENCE)
    assert deployment(place, MPI)


def killed_in_the_middle(place: Place) -> None:
    """Run an operator until it acts, and kill it there."""
    with operator(place) as service:
        before = status_version(place)
        eventually(
            lambda: status_version(place) != before or service.process.poll() is not None, "it acts", 30
        )


def status_version(place: Place) -> str:
    inventory = place.api.find(f"/api/v1/namespaces/{place.namespace}/configmaps/mpijob-inventory") or {}
    found = place.api.get(PLATFORM.path("", "default"))
    versions = (one.get("metadata", {}).get("resourceVersion", "") for one in (inventory, found))
    return "/".join(versions)
