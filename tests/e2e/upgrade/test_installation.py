"""An installation of an older release on the test bed is upgraded to this one around a job that runs.

`make test-upgrade-cluster FROM=v0.1.0`. Each release is installed as its own page says, with an image of its own;
the job is made by the older release's own command line.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from testbed import cluster, places, services
from tests.e2e.cluster.governed import noted_phase
from tests.e2e.cluster.installing import Reader, clear_away, page
from tests.e2e.cluster.support import PATIENCE, Place, a_job, eventually, own_place

from mpijob import Phase

HELD = "until [ -e /tmp/go ]; do sleep 0.2; done; echo released"


@pytest.fixture
def place() -> Iterator[Place]:
    if not cluster.is_up():
        pytest.fail("no cluster: make test-upgrade-cluster starts the test bed", pytrace=False)
    with own_place(places.kubeconfig(), "upgrade") as place:
        yield place
        clear_away(place)


@pytest.fixture
def old() -> Path:
    """Return the environment of the older release; its source lies in it."""
    return Path(os.environ["MPIJOB_OLD"]).parents[1]


def images_of_services(place: Place) -> set[str]:
    path = "{range .items[*]}{.spec.template.spec.containers[0].image}{'\\n'}{end}"
    told = place.kubectl("-n", "mpijob-system", "get", "deployments", f"-o=jsonpath={path}")
    return set(told.split())


@pytest.mark.req("FR-001")
def test_an_installation_is_upgraded_around_a_running_job(place: Place, old: Path, tmp_path: Path) -> None:
    before, now = services.provide(old / "source", "before"), services.provide()
    (tmp_path / "before").mkdir()
    (tmp_path / "now").mkdir()
    first = Reader(place, tmp_path / "before", old / "source")
    named, operator, platform, _, limits, *_ = page("installation", before, old / "source")
    for block in (named, operator, platform, limits):
        first.follow(block)
    assert images_of_services(place) == {before}

    asked = tmp_path / "job.json"
    asked.write_bytes(msgspec.json.encode(a_job("through", HELD)))
    subprocess.run(
        (old / "bin" / "mpijob", "create", "-f", asked), env=place.environ(), check=True, timeout=PATIENCE
    )
    place.client.wait("through", timeout=PATIENCE, for_phases=(Phase.RUNNING,))
    pods = place.uids("through")

    second = Reader(place, tmp_path / "now")
    for block in page("installation", now)[:3]:
        second.follow(block)
    eventually(lambda: images_of_services(place) == {now}, "every service is this release's", PATIENCE)
    place.kubectl(
        "-n", "mpijob-system", "rollout", "status", "deployment/mpijob-controller", "--timeout=120s"
    )
    assert (place.uids("through"), place.client.state("through").phase) == (pods, Phase.RUNNING)
    assert "team-a" in place.kubectl("get", "mpijoblimits")

    for pod in place.pods("through"):
        place.kubectl("exec", pod["metadata"]["name"], "--", "touch", "/tmp/go")
    assert place.client.wait("through", timeout=PATIENCE).phase is Phase.SUCCEEDED
    assert [line.text for line in place.client.logs("through") if line.rank is not None] == [b"released"] * 2
    eventually(lambda: noted_phase(place, "through") == "Succeeded", "the new controller tells it", PATIENCE)
