"""The platform's resources on a real API server: accepted, printed, and refused where they make no sense."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from mpijob.cluster import crds


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
