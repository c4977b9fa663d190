"""What is applied to a cluster: accepted by a real API server, followed word for word, run as real pods."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from testbed import services
from tests.e2e.cluster.governed import noted_phase
from tests.e2e.cluster.installing import Reader, clear_away, page
from tests.e2e.cluster.support import PATIENCE, Place, a_job, eventually, own_place

from mpijob.cluster import manifests

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
OPENSHIFT = ("SecurityContextConstraints", "ConsoleLink", "Route", "ClusterServiceVersion", "OAuthClient")
PROMETHEUS = ("ServiceMonitor", "PodMonitor", "PrometheusRule")
FOLDERS = ["base", "base/broker", "base/page", "kubernetes", "openshift", "openshift/page", "monitoring"]


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "deploy") as place:
        yield place


def built(folder: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        ["kubectl", "kustomize", DEPLOY / folder], capture_output=True, text=True, check=True, timeout=60
    )
    return [one for one in yaml.safe_load_all(done.stdout) if one]


@pytest.mark.req("FR-001", "D-scc")
@pytest.mark.parametrize("folder", FOLDERS)
def test_what_kustomize_builds_is_accepted_by_the_api_server(place: Place, folder: str) -> None:
    """Objects of kinds that only OpenShift or Prometheus has are held against what their schema requires."""
    documents = built(folder)
    plain = [one for one in documents if one["kind"] not in (*OPENSHIFT, *PROMETHEUS)]
    for one in plain:  # the namespace is there only after a real apply
        if "namespace" in one["metadata"]:
            one["metadata"]["namespace"] = place.namespace
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": plain})
    words = ("--server-side", "--dry-run=server", "--force-conflicts", "--validate=strict", "--filename=-")
    place.kubectl("apply", *words, stdin=text)
    for one in documents:
        if one["kind"] == "SecurityContextConstraints":
            assert not any(one[word] for word in one if word.startswith("allowHost"))
            assert (one["allowPrivilegedContainer"], one["users"], one["groups"]) == (False, [], [])
        if one["kind"] == "Route":
            assert one["spec"]["tls"]["insecureEdgeTerminationPolicy"] == "Redirect"


@pytest.mark.parametrize("folder", ["base", "base/broker", "base/page", "openshift/page", "monitoring"])
def test_the_operator_reads_our_folders_as_kustomize_does(folder: str) -> None:
    def key(one: dict[str, Any]) -> str:
        return f"{one['kind']}/{one['metadata']['name']}"

    ours = sorted(manifests.read_kustomization(DEPLOY / folder), key=key)
    assert ours == sorted(built(folder), key=key)


@pytest.mark.security
def test_our_pods_have_no_more_rights_than_they_need() -> None:
    folders = ("base", "base/broker", "base/page", "openshift/page", "kubernetes")
    pods = [one for folder in folders for one in built(folder) if one["kind"] == "Deployment"]
    assert pods
    for one in pods:
        spec = one["spec"]["template"]["spec"]
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
        for container in spec["containers"]:
            held = container["securityContext"]
            assert held["readOnlyRootFilesystem"]
            assert not held["allowPrivilegeEscalation"]
            assert held["capabilities"]["drop"] == ["ALL"]
            assert container["resources"]["requests"]
            assert container["livenessProbe"]
            assert container["readinessProbe"]
    for one in built("openshift") + built("base"):
        subjects = one.get("subjects") or ()
        assert not any("system:" in subject["name"] for subject in subjects), one["metadata"]["name"]


@pytest.mark.testbed
@pytest.mark.alone
@pytest.mark.req("FR-001", "E-component", "D-scc")
def test_the_page_on_installation_is_followed_and_the_services_run_as_pods(
    place: Place, tmp_path: Path
) -> None:
    follow = Reader(place, tmp_path).follow
    *install, shown, limits, remove, end = page("installation", services.provide())
    try:
        for block in install:
            follow(block)
        matrix = follow(shown)
        assert re.search(r"^trainer\tAdopted\tv", matrix, re.MULTILINE)
        assert re.search(r"^controller\tReady\t\tmpijob", matrix, re.MULTILINE)
        assert "team-a" in follow(limits)
        for block in page("operations", ""):
            assert "mpijob-controller" in follow(block)
        place.client.submit(a_job("alone", "exit 3"))
        eventually(lambda: noted_phase(place, "alone") == "Failed", "the pod tends jobs", PATIENCE)
        follow(remove)
        assert place.client.state("alone").phase.value == "Failed"
        follow(end)
    finally:
        clear_away(place)


@pytest.mark.testbed
def test_what_explains_a_problem_is_gathered_without_secrets(place: Place, tmp_path: Path) -> None:
    script = DEPLOY / "openshift" / "must-gather.sh"
    done = subprocess.run(
        ["sh", script, tmp_path], env=place.environ(KUBECTL="kubectl"), capture_output=True, text=True, timeout=120
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    files = [path for path in (tmp_path / "mpijob").rglob("*") if path.is_file()]
    assert {"nodes.yaml", "trainjobs.yaml", "webhooks.yaml"} <= {path.name for path in files}
    assert any("jobset-system" in str(path) and "logs" in str(path) for path in files)
    assert not any("kind: Secret\n" in path.read_text(errors="replace") for path in files)
