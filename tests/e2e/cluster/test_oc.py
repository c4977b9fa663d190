"""Our commands as plugins of the real oc, built from its own sources; with kubectl they are tried elsewhere.

oc takes minutes to build where nobody has it yet, so these tests are for the long round. The cluster is no
OpenShift: what oc does with a plugin does not ask for one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed import build
from tests.e2e.cluster.support import TINY, Place, a_job, own_place

from mpijob.formats.jobfile import jobfile_reader

BIN = Path(sys.executable).parent
pytestmark = [pytest.mark.long, pytest.mark.testbed]


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "oc") as place:
        yield place


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the real oc in it."""
    folder = tmp_path_factory.mktemp("oc")
    (folder / "oc").symlink_to(build.requested("oc"))
    return folder


def typed(
    place: Place, tools: Path, line: str, *words: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command line of oc, as a user of this place would type it."""
    environ = place.environ(PATH=f"{tools}:{BIN}:/usr/bin:/bin", HOME=place.settings.home)
    return subprocess.run(
        [*line.split(), *words],
        env=environ,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.req("FR-006", "E-cli", "FR-CLI-004")
def test_oc_creates_gets_describes_logs_and_deletes_a_job(place: Place, tools: Path, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(jobfile_reader.write(a_job("typed", "echo hello", resources=TINY)))

    def said(line: str, *words: str) -> str:
        done = typed(place, tools, line, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    said("oc mpijob create -f", str(file))
    assert "Succeeded" in said("oc odh mpijob wait typed --timeout 120s")
    assert said("oc mpijob get typed -o name") == "typed\n"
    assert [one["ref"]["name"] for one in json.loads(said("oc odh mpijob list -o json"))["items"]] == [
        "typed"
    ]
    assert "Phase:" in said("oc mpijob describe typed")
    assert "hello" in said("oc odh mpijob logs typed")
    assert said("oc mpijob delete typed") == "typed deleted\n"


@pytest.mark.req("AC1")
def test_oc_creates_the_documents_that_we_write(place: Place, tools: Path) -> None:
    documents = place.client.plan(a_job("by-oc", resources=TINY)).documents
    for one in documents[:-1]:  # a TrainJob is refused until its runtime is there
        done = typed(place, tools, "oc create --dry-run=server -f -", stdin=json.dumps(one))
        assert done.returncode == 0, done.stderr
    done = typed(
        place, tools, "oc create --dry-run=client --validate=strict -f -", stdin=json.dumps(documents[-1])
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.req("FR-006", "E-cli")
def test_oc_knows_our_plugins_and_keeps_its_own_words(place: Place, tools: Path) -> None:
    listed = typed(place, tools, "oc plugin list").stdout
    assert {"oc-mpijob", "oc-odh-mpijob"} <= {Path(line.strip()).name for line in listed.splitlines()}
    assert "client version" in typed(place, tools, "oc version --client").stdout.lower()
    assert typed(place, tools, "oc get pods").returncode == 0
    other = typed(place, tools, "oc odh status")
    assert other.returncode != 0
    assert "mpijob" not in other.stderr
