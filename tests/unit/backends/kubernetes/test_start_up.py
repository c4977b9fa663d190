"""A list of a cluster's jobs, as a process: what it loads, and how often it asks."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.cluster_objects import Cluster
from tests.unit.cluster_support import a_job
from tests.unit.kube_support import FakeApi, replying

# Each of them takes about as long to load as a list takes to arrive.
HEAVY = (
    "urllib.request",
    "pathlib",
    "concurrent.futures",
    "logging",
    "asyncio",
    "dataclasses",
    "encodings.idna",
    "mpijob.checks",
    "mpijob.diagnosis",
    "mpijob.formats.kubernetes.pod_template",
    "mpijob.formats.status.launcher_census",
    "mpijob.backends.kubernetes.logs.pod_logs",
    "mpijob.backends.kubernetes.preflight.preflight",
)
LIST = """
import os, sys
from mpijob.cli.main import main
os._exit = sys.exit
try:
    main()
except SystemExit as end:
    print("status", end.code, "loaded", *sorted(set(sys.modules) & set(%r)), file=sys.stderr)
"""


def kubeconfig(server: FakeApi, place: Path) -> str:
    authority = base64.b64encode(server.certificates.text("ca.crt").encode()).decode()
    cluster = {"server": server.url, "certificate-authority-data": authority}
    config = {
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": "me", "user": {"token": "t"}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "me", "namespace": "cv"}}],
        "current-context": "lab",
    }
    path = place / "config"
    path.write_text(json.dumps(config))
    return str(path)


def listed(server: FakeApi, place: Path) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MPIJOB_", "XDG_", "COVERAGE_"))  # measuring loads modules of its own
    }
    env = {**kept, "HOME": str(place), "MPIJOB_ENGINE": "kubernetes", "KUBECONFIG": kubeconfig(server, place)}
    argv = [sys.executable, "-c", LIST % (HEAVY,), "list"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, env=env)


@pytest.mark.thorough
def test_a_list_loads_only_what_it_needs_and_asks_each_thing_once(server: FakeApi, tmp_path: Path) -> None:
    job = Cluster(a_job(name="bert", namespace="cv")).job
    nothing = replying({"metadata": {}, "items": []})
    server.says(replying({"metadata": {}, "items": [job]}), nothing, nothing)
    result = listed(server, tmp_path)
    assert result.stdout.splitlines()[1].startswith("bert ")
    assert result.stderr.splitlines()[-1] == "status 0 loaded"
    asked = [seen.path.rpartition("/")[2] for seen in server.requests]
    assert sorted(asked) == ["mpijobs", "pods", "trainjobs", "v1"]
