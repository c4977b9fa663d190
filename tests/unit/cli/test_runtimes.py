"""`mpijob runtimes` and `mpijob doctor` as they are typed; what they say of a real cluster is in tests/e2e/cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.unit.cli_support import Cli

from mpijob.client.admin import doctor
from mpijob.errors import Severity
from mpijob.formats.runtimes import builtin
from mpijob.settings import CLUSTER, Settings

HERE = {"MPIJOB_ENGINE": "local"}


def test_what_ships_is_listed_also_without_a_cluster() -> None:
    table = Cli()("runtimes", "list", env=HERE)
    assert table.exit_code == 0
    assert [line.split()[0] for line in table.stdout.splitlines()[1:]] == [
        one.name for one in builtin.SHIPPED
    ]
    names = Cli()("runtime", "list", "-o", "name", env=HERE).stdout.split()
    assert names == [one.name for one in builtin.SHIPPED]


@pytest.mark.thorough
@pytest.mark.req("D-runtime")
def test_a_runtime_is_printed_as_a_manifest_that_can_be_linted(tmp_path: Path) -> None:
    shown = Cli()("runtimes", "show", "openmpi", "--image", "example/mpi:1", env=HERE)
    document = yaml.safe_load(shown.stdout)
    assert document["kind"] == "ClusterTrainingRuntime"
    path = tmp_path / "mine.yaml"
    path.write_text(shown.stdout)
    linted = Cli()("runtimes", "lint", str(path), env=HERE)
    assert linted.exit_code == 0
    assert "RUNTIME_IMAGE" in linted.stdout
    document["spec"]["mlPolicy"]["numNodes"] = 3
    path.write_text(yaml.safe_dump(document))
    broken = Cli()("runtimes", "lint", str(path), "-o", "json", env=HERE)
    assert broken.exit_code == 1
    (found,) = json.loads(broken.stdout).values()
    assert found[0]["code"] == "RUNTIME_NODES"
    refused = Cli()("runtimes", "install", str(path), env=HERE)
    assert refused.exit_code == 2
    assert "gets 3 launchers" in refused.stderr


def test_what_needs_a_cluster_says_so() -> None:
    for words in (("test", "openmpi"), ("install", "openmpi")):
        result = Cli()("runtimes", *words, env=HERE)
        assert result.exit_code == 6
        assert "this command requires a cluster" in result.stderr


def test_a_file_without_runtimes_has_nothing_to_lint(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("kind: Pod\nmetadata: {name: a}\n")
    assert "no MPI runtime" in Cli()("runtimes", "lint", str(path), env=HERE).stdout


def test_a_cluster_that_cannot_be_asked_is_the_doctors_finding(tmp_path: Path) -> None:
    (found,) = doctor.report(Settings(engine=CLUSTER, kubeconfig=str(tmp_path / "none")))
    assert found.code == "DOCTOR_CLUSTER"
    assert found.severity is Severity.ERROR
    assert found.hint


@pytest.mark.thorough
def test_the_doctor_looks_at_the_place_that_is_named(tmp_path: Path) -> None:
    env = {"KUBECONFIG": str(tmp_path / "none"), "MPIJOB_HOME": str(tmp_path)}
    assert "DOCTOR_CLUSTER" in Cli()("doctor", "--context", "", env=env | {"MPIJOB_ENGINE": ""}).stdout
    assert "DOCTOR_CLUSTER" not in Cli()("doctor", "--context", "local", env=env).stdout
