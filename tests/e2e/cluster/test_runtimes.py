"""The runtimes that ship, taken by a real server, and tried out with real pods."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml
from testbed import places, versions

from mpijob.backends.kubernetes.admin import runtimes as cluster
from mpijob.backends.kubernetes.auth.kubeconfig import load
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.preflight import preflight
from mpijob.client.admin.runtimes import Runtimes
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.runtimes import builtin, lint
from mpijob.model import Family, Resources
from mpijob.settings import CLUSTER, Settings

SMALL = Resources(cpu="200m", memory="200Mi")


@pytest.fixture
def api(kubeconfig: Path) -> Iterator[Api]:
    """Return the administrator's connection."""
    with Api(load(path=str(kubeconfig))) as api:
        yield api


def small(name: str, image: str) -> Document:
    """Return the shipped runtime with an image of the test bed, as small as its machine."""
    one = msgspec.structs.replace(builtin.shipped("openmpi"), name=name, resources=SMALL)
    return builtin.document(one, image=f"{places.IMAGES}/{image}:1", user=preflight.PLAIN_USER)


@pytest.mark.req("D-runtime", "FR-INT-007")
@pytest.mark.parametrize("one", builtin.SHIPPED, ids=lambda one: one.name)
def test_the_server_takes_what_ships(api: Api, one: builtin.Shipped) -> None:
    document = builtin.document(one, user=preflight.PLAIN_USER)
    if one.family is Family.OPENMPI:
        assert cluster.install(api, document, dry_run=True)["metadata"]["name"] == one.name
    else:
        made = api.create(resources.MPIJOB.path("default"), document, dry_run=True)
        assert made["spec"]["mpiImplementation"] == document["spec"]["mpiImplementation"]


@pytest.mark.testbed
@pytest.mark.req("D-validator", "D-runtime")
@pytest.mark.parametrize("image", ["openmpi4", "openmpi5"])
def test_a_shipped_runtime_runs_a_world_on_two_nodes(api: Api, image: str) -> None:
    name = f"trial-{image}-{os.urandom(2).hex()}"
    cluster.install(api, small(name, image))
    try:
        (verdict,) = cluster.run_test(api, cluster.find(api, name, "team-b"), "team-b")
        left = api.list(resources.TRAINJOB.path("team-b"), labels=f"mpijob.dev/trial={name}").items
    finally:
        api.delete(resources.CLUSTER_RUNTIME.path("", name))
    assert verdict.code == "RUNTIME_OK", verdict
    assert [one for one in left if not one["metadata"].get("deletionTimestamp")] == []


@pytest.mark.testbed
@pytest.mark.req("D-validator")
def test_a_runtime_without_sshd_fails_its_trial_with_the_reason(api: Api) -> None:
    name = f"trial-nosshd-{os.urandom(2).hex()}"
    cluster.install(api, small(name, "nosshd"))
    try:
        (verdict,) = cluster.run_test(api, cluster.find(api, name, "team-b"), "team-b")
    finally:
        api.delete(resources.CLUSTER_RUNTIME.path("", name))
    assert verdict.code == "RUNTIME_TRIAL"
    assert "the image has no sshd" in " ".join(verdict.evidence)


@pytest.mark.req("D-runtime")
def test_the_clusters_runtimes_are_listed_and_linted(api: Api, kubeconfig: Path) -> None:
    name = f"trap-{os.urandom(2).hex()}"
    document = small(name, "openmpi5")
    document["spec"]["mlPolicy"]["numNodes"] = 2
    cluster.install(api, document)
    here = Runtimes(Settings(engine=CLUSTER, kubeconfig=str(kubeconfig)))
    try:
        rows = {one.name: one for one in here.list()}
        found = here.lint((name,))[name]
    finally:
        api.delete(resources.CLUSTER_RUNTIME.path("", name))
    assert rows[name].traps == 1
    assert rows["mpijob-openmpi"].origin in ("ships", "cluster")
    assert [one.code for one in found][:1] == ["RUNTIME_NODES"]


@pytest.mark.req("D-runtime")
def test_upstreams_own_mpi_runtime_has_the_traps_that_are_known() -> None:
    found = lint.lint(_upstream("deepspeed-distributed"))
    assert found is not None
    assert {"RUNTIME_RETRIES", "RUNTIME_HOSTFILE", "RUNTIME_USER"} <= {one.code for one in found}
    assert all(one.hint and one.field for one in found)


def _upstream(name: str) -> Document:
    """Return a runtime as its project ships it, out of its own Go module."""
    command = ["go", "mod", "download", "-json", f"github.com/kubeflow/trainer/v2@{versions.TRAINER}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    for path in Path(json.loads(done.stdout)["Dir"]).glob("manifests/base/runtimes/*.yaml"):
        for document in yaml.safe_load_all(path.read_text()):
            if document and document["metadata"].get("name") == name:
                return dict(document)
    pytest.fail(f"Trainer's module has no runtime {name}")
