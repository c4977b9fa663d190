"""What the operator keeps beside engines: runtimes, monitoring, certificates of services, over a server's memory."""

from __future__ import annotations

import base64
import queue
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.cluster.test_platform import Server, a_platform
from tests.unit.kube_support import MAPS, FakeApi

from mpijob.backends.kubernetes.auth import kubeconfig
from mpijob.backends.kubernetes.client.api import Api
from mpijob.cluster import manifests, operator
from mpijob.cluster.apply import COMPONENT_LABEL
from mpijob.cluster.reconcile import PlatformReconciler
from mpijob.cluster.service_certs import ANNOTATION
from mpijob.cluster.webhook import tls_secret
from mpijob.model.platform.governance import (
    Component,
    Management,
    Monitoring,
    OptionalService,
    Page,
    Platform,
    Services,
)

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
TRAINER, PROMETHEUS = "trainer.kubeflow.org/v1alpha1", "monitoring.coreos.com/v1"
RUNTIME = f"/apis/{TRAINER}/clustertrainingruntimes/mpijob-openmpi"
RULES = f"/apis/{PROMETHEUS}/namespaces/sys/prometheusrules/mpijob"
BROKER = "/apis/apps/v1/namespaces/mpijob-system/deployments/mpijob-broker"
KEYS = "/api/v1/namespaces/mpijob-system/secrets/mpijob-broker-tls"
SERVED = {
    "v1": [("Secret", "secrets", True), ("Service", "services", True),
           ("PersistentVolumeClaim", "persistentvolumeclaims", True)],
    TRAINER: [("ClusterTrainingRuntime", "clustertrainingruntimes", False)],
    PROMETHEUS: [("ServiceMonitor", "servicemonitors", True), ("PrometheusRule", "prometheusrules", True),
                 ("PodMonitor", "podmonitors", True)],
    "policy/v1": [("PodDisruptionBudget", "poddisruptionbudgets", True)],
    "networking.k8s.io/v1": [("NetworkPolicy", "networkpolicies", True)],
    "rbac.authorization.k8s.io/v1": [("ClusterRole", "clusterroles", False),
                                     ("ClusterRoleBinding", "clusterrolebindings", False)],
}  # fmt: skip


def a_server(*versions: str) -> Server:
    server = Server()
    for version in versions:
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        known = (server.objects.get(root) or {}).get("resources", [])
        more = [{"kind": kind, "name": plural, "namespaced": own} for kind, plural, own in SERVED[version]]
        server.objects[root] = {"metadata": {}, "resources": [*known, *more]}
    return server


def keep(server: Server, component: str, **fields: Any) -> Component:
    platform: Platform = a_platform(Path("/nowhere"), **fields)
    return next(
        one for one in PlatformReconciler(server, "sys", DEPLOY).reconcile(platform) if one.name == component
    )


@pytest.mark.thorough
@pytest.mark.req("FR-001")
def test_runtimes_that_ship_are_kept_and_one_of_somebody_else_is_left_alone() -> None:
    server = a_server(TRAINER)
    theirs = RUNTIME.replace("openmpi", "horovod")
    server.objects[theirs] = {
        "metadata": {"name": "mpijob-horovod", "uid": "theirs"},
        "kind": "ClusterTrainingRuntime",
    }
    told = keep(server, "runtimes", registry="mirror.example.org")
    assert (told.state, told.message) == ("Ready", "created by others, left unchanged: mpijob-horovod")
    made = server.objects[RUNTIME]
    assert made["metadata"]["labels"][COMPONENT_LABEL] == "runtimes"
    parts = made["spec"]["template"]["spec"]["replicatedJobs"]
    images = {one["template"]["spec"]["template"]["spec"]["containers"][0]["image"] for one in parts}
    assert images == {"mirror.example.org/mpioperator/openmpi:latest"}
    for _ in range(2):
        told = keep(server, "runtimes", runtimes=Management.REMOVED)
    assert told.state == "Absent"
    assert RUNTIME not in server.objects
    assert server.objects[theirs]["metadata"]["uid"] == "theirs"


def test_without_trainer_there_are_no_runtimes_and_nothing_is_wrong() -> None:
    told = keep(a_server(), "runtimes")
    assert (told.state, told.message) == ("Absent", "the cluster does not serve the API of Kubeflow Trainer")


@pytest.mark.thorough
@pytest.mark.req("FR-001", "B-admin")
def test_monitoring_is_on_request_with_the_percentage_of_the_platform() -> None:
    server = a_server("v1", PROMETHEUS)
    assert keep(server, "monitoring").state == "Absent"
    wanted = Monitoring(management_state=Management.MANAGED, quota_alert_percent=75)
    assert keep(server, "monitoring", monitoring=wanted).state == "Ready"
    rules = [rule for group in server.objects[RULES]["spec"]["groups"] for rule in group["rules"]]
    (quota,) = (rule for rule in rules if rule.get("alert") == "MPIJobQuotaNearlyConsumed")
    assert quota["expr"].endswith(">= 0.75")
    dashboards = server.objects["/api/v1/namespaces/sys/configmaps/mpijob-dashboards"]
    assert set(dashboards["data"]) == {"administrator.json", "cluster.json", "job.json"}
    for _ in range(2):
        told = keep(server, "monitoring")
    assert (told.state, RULES in server.objects) == ("Absent", False)


def test_without_prometheus_only_dashboards_are_made_and_that_is_told() -> None:
    server = a_server("v1")
    told = keep(server, "monitoring", monitoring=Monitoring(management_state=Management.MANAGED))
    assert told.state == "Ready"
    assert "does not serve" in told.message
    assert "PrometheusRule" in told.message


@pytest.mark.thorough
@pytest.mark.req("FR-001", "Q-SEC-002")
def test_a_service_for_users_gets_a_certificate_that_goes_with_it() -> None:
    server = a_server("v1", "policy/v1", "networking.k8s.io/v1", "rbac.authorization.k8s.io/v1")
    broker = Services(
        controller=OptionalService(), admission=OptionalService(),
        broker=OptionalService(management_state=Management.MANAGED),
    )  # fmt: skip
    platform = a_platform(Path("/nowhere"))

    def look(services: Services) -> Component:
        wanted = msgspec.structs.replace(platform, services=services, image="registry.example.org/m:1")
        return next(
            one for one in PlatformReconciler(server, "sys", DEPLOY).reconcile(wanted) if one.name == "broker"
        )

    assert look(broker).state == "Ready"
    keys = tls_secret.parse_keys(server.objects[KEYS])
    assert keys is not None
    template = server.objects[BROKER]["spec"]["template"]
    mark = template["metadata"]["annotations"][ANNOTATION]
    assert look(broker).state == "Ready"
    assert tls_secret.parse_keys(server.objects[KEYS]) == keys  # the second look makes nothing new
    del server.objects[KEYS]
    look(broker)
    assert server.objects[BROKER]["spec"]["template"]["metadata"]["annotations"][ANNOTATION] != mark
    none = Services(controller=OptionalService(), admission=OptionalService())
    for _ in range(3):
        told = look(none)
    assert (told.state, KEYS in server.objects, BROKER in server.objects) == ("Absent", False, False)


def test_a_certificate_of_somebody_else_is_used_as_it_is() -> None:
    server = a_server("v1", "policy/v1", "networking.k8s.io/v1", "rbac.authorization.k8s.io/v1")
    theirs = {
        "kind": "Secret",
        "metadata": {"name": "mpijob-broker-tls", "uid": "t"},
        "data": {"tls.crt": "eA=="},
    }
    server.objects[KEYS] = theirs
    broker = Services(
        controller=OptionalService(), admission=OptionalService(),
        broker=OptionalService(management_state=Management.MANAGED),
    )  # fmt: skip
    wanted = msgspec.structs.replace(a_platform(Path("/nowhere")), services=broker, image="m:1")
    PlatformReconciler(server, "sys", DEPLOY).reconcile(wanted)
    assert server.objects[KEYS] == theirs
    assert "annotations" not in server.objects[BROKER]["spec"]["template"]["metadata"]


def test_a_folder_with_files_becomes_a_config_map() -> None:
    (found,) = (
        one for one in manifests.read_kustomization(DEPLOY / "monitoring") if one["kind"] == "ConfigMap"
    )
    assert found["metadata"] == {"name": "mpijob-dashboards", "labels": {"grafana_dashboard": "1"}}


PAGE = BROKER.replace("broker", "page")
LOGIN = "/api/v1/namespaces/mpijob-system/secrets/mpijob-page-login"
OPENSHIFT = {
    "route.openshift.io/v1": [("Route", "routes", True)],
    "oauth.openshift.io/v1": [("OAuthClient", "oauthclients", False)],
    "console.openshift.io/v1": [("ConsoleLink", "consolelinks", False)],
}
BASIS = ("v1", "policy/v1", "networking.k8s.io/v1", "rbac.authorization.k8s.io/v1")


def with_page(server: Server, state: Management = Management.MANAGED, host: str = "") -> Component:
    none = OptionalService()
    services = Services(controller=none, admission=none, page=Page(management_state=state, host=host))
    wanted = msgspec.structs.replace(a_platform(Path("/nowhere")), services=services, image="m:1")
    return next(
        one for one in PlatformReconciler(server, "sys", DEPLOY).reconcile(wanted) if one.name == "page"
    )


@pytest.mark.req("FR-001", "FR-INT-005")
def test_the_page_is_opened_under_the_name_that_the_platform_says() -> None:
    server = a_server(*BASIS)
    assert with_page(server, host="jobs.example.org").state == "Ready"
    (container,) = server.objects[PAGE]["spec"]["template"]["spec"]["containers"]
    assert [word for word in container["args"] if "host" in word] == ["--host=jobs.example.org"]
    assert tls_secret.parse_keys(server.objects[KEYS.replace("broker", "page")]) is not None
    assert LOGIN not in server.objects


@pytest.mark.thorough
@pytest.mark.req("FR-001", "FR-INT-005")
def test_on_openshift_the_page_stands_behind_the_clusters_login_under_its_routes_name() -> None:
    SERVED.update(OPENSHIFT)
    server = a_server(*BASIS, *OPENSHIFT)
    server.objects["/apis/security.openshift.io"] = {"metadata": {}}
    with_page(server)
    route = server.objects["/apis/route.openshift.io/v1/namespaces/mpijob-system/routes/mpijob-page"]
    assert (
        "/apis/console.openshift.io/v1/consolelinks/mpijob" not in server.objects
    )  # nobody knows where to yet
    route["spec"]["host"] = "mpijob-page.apps.example.org"
    with_page(server)
    client = server.objects["/apis/oauth.openshift.io/v1/oauthclients/mpijob-page"]
    assert client["redirectURIs"] == ["https://mpijob-page.apps.example.org"]
    kept = server.objects[LOGIN]["data"]
    assert base64.b64decode(kept["client"]).decode() == client["secret"]
    assert len(base64.b64decode(kept["cookie"])) == 32
    page, login = server.objects[PAGE]["spec"]["template"]["spec"]["containers"]
    assert page["args"][-1] == "--host=mpijob-page.apps.example.org"
    assert "--address" not in " ".join(page["args"])  # only the proxy is reached from outside
    assert "--pass-access-token" in login["args"]
    link = server.objects["/apis/console.openshift.io/v1/consolelinks/mpijob"]
    assert link["spec"]["href"] == "https://mpijob-page.apps.example.org"
    for _ in range(3):
        told = with_page(server, Management.REMOVED)
    assert (told.state, LOGIN in server.objects, PAGE in server.objects) == ("Absent", False, False)


def test_each_change_of_what_is_watched_wakes_the_operator(server: FakeApi, api: Api) -> None:
    woken: queue.SimpleQueue[None] = queue.SimpleQueue()
    with operator.wake_on_change(api, MAPS, lambda: woken.put(None)):
        server.maps.wait_for_watches()
        assert woken.empty()
        server.maps.put("default")
        woken.get(timeout=10)
        server.maps.remove("default")
        woken.get(timeout=10)
    server.maps.put("default")
    assert woken.empty(), "nobody watches any more"


def test_the_operator_watches_the_platform_until_it_is_ended(
    server: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ended = threading.Event()
    monkeypatch.setattr(operator, "until_ended", lambda: ended)
    monkeypatch.setattr(operator, "_apply_crds", lambda api: None)
    monkeypatch.setattr(kubeconfig, "load", server.access)
    process = threading.Thread(target=operator.serve, args=("default", tmp_path))
    process.start()
    deadline = time.monotonic() + 10
    while operator.PLATFORM.path() not in {seen.path for seen in server.requests}:
        assert time.monotonic() < deadline, server.requests
        time.sleep(0.01)
    ended.set()
    process.join(10)
    assert not process.is_alive()
