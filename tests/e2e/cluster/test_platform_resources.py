"""The platform's resources on a real API server: accepted, printed, and refused where they make no sense."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.e2e.cluster.admission_support import apply
from tests.e2e.cluster.support import eventually

from mpijob.cluster import crd_docs, crds


def kubectl(kubeconfig: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    argv = ["kubectl", f"--kubeconfig={kubeconfig}", *words]
    return subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.req("FR-001")
@pytest.mark.parametrize("definition", crds.documents(), ids=lambda one: one["metadata"]["name"])
def test_the_api_server_accepts_our_definitions(kubeconfig: Path, definition: dict[str, object]) -> None:
    words = (
        "apply",
        "--server-side",
        "--dry-run=server",
        "--validate=strict",
        "--force-conflicts",
        "-f",
        "-",
    )
    done = kubectl(kubeconfig, *words, stdin=json.dumps(definition))
    assert done.returncode == 0, done.stderr
    assert not done.stderr


EXPLAINED = {
    "mpijoblimits.spec.maxWorkers": "NamespaceLimits.max_workers",
    "mpijoblimits.spec.rates.memoryGibHour": "Rates.memory_gib_hour",
    "mpijobplatforms.spec.engines.kueue.version": "Engine.version",
    "mpijobplatforms.status.components.keptBy": "Component.kept_by",
}


@pytest.mark.testbed
@pytest.mark.req("C-explain")
@pytest.mark.parametrize("path", EXPLAINED)
def test_kubectl_explains_the_fields_of_our_resources(kubeconfig: Path, path: str) -> None:
    apply(kubeconfig, *crds.documents())
    sentence = crd_docs.FIELDS[EXPLAINED[path]]
    eventually(lambda: sentence in _explained(kubeconfig, path), f"{path} is explained")


def _explained(kubeconfig: Path, path: str) -> str:
    """Return what kubectl says of a field, with its lines put together; "" while the API server does not know it."""
    done = kubectl(kubeconfig, "explain", path)
    return " ".join(done.stdout.split()) if done.returncode == 0 else ""
