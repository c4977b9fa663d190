"""The tutorials for a cluster, followed word for word by a user and by an administrator."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import pages
from tests.docs.blocks import Command, Reader, steps
from tests.docs.readers import an_environment
from tests.e2e.cluster.support import Place, image, own_place

ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.testbed, pytest.mark.alone]  # the second one needs all GPUs of the node
_PATIENCE_SECONDS = 400.0


def followed(text: str, kubeconfig: Path, folder: Path, **more: str) -> list[str]:
    environ = an_environment(folder) | {
        "KUBECONFIG": str(kubeconfig),
        "MPIJOB_ENGINE": "kubernetes",
        "MPIJOB_IMAGE": image("openmpi4"),
    }
    work = folder / "work"
    work.mkdir()
    return Reader(work, environ | more, timeout_seconds=_PATIENCE_SECONDS).follow(text)


@pytest.fixture
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "tutorial") as place:
        yield place


@pytest.mark.req("C-docs", "FR-UX-004")
def test_the_tutorial_of_a_job_on_a_cluster_works_word_for_word(place: Place, tmp_path: Path) -> None:
    context = place.kubectl("config", "current-context").strip()
    text = pages.read("first-cluster-job")
    text = text.replace("my-cluster", context).replace("team-cv", place.namespace)
    assert sum(isinstance(step, Command) for step in steps(text)) >= 8
    wrong = followed(text, place.kubeconfig, tmp_path, MPIJOB_NAMESPACE=place.namespace)
    assert wrong == [], "\n".join(wrong)


@pytest.mark.req("C-docs", "US3", "UC3-AF1")
def test_the_tutorial_of_two_teams_works_word_for_word(kubeconfig: Path, tmp_path: Path) -> None:
    kubectl = ["kubectl", f"--kubeconfig={kubeconfig}"]
    for folder in ("crds", "roles"):
        argv = [*kubectl, "apply", "--server-side", "-k", str(ROOT / "deploy" / "base" / folder)]
        subprocess.run(argv, check=True, capture_output=True, timeout=60)
    mark = os.urandom(3).hex()
    names = {
        "team-vision": f"vision-{mark}",
        "team-speech": f"speech-{mark}",
        "gpu-nodes": f"gpu-nodes-{mark}",
    }
    text = pages.read("share-gpus")
    for name, own_name in names.items():
        text = text.replace(name, own_name)
    try:
        wrong = followed(text, kubeconfig, tmp_path)
        assert wrong == [], "\n".join(wrong)
    finally:
        teams = [names["team-vision"], names["team-speech"]]
        for kind, objects in (
            ("namespace", teams),
            ("mpijoblimits", teams),
            ("clusterqueue", teams),
            ("resourceflavor", [names["gpu-nodes"]]),
        ):
            argv = [*kubectl, "delete", kind, *objects, "--ignore-not-found", "--wait=false"]
            subprocess.run(argv, check=False, capture_output=True, timeout=60)
