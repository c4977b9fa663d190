"""What an administrator sets and sees on a real cluster: limits, quotas, queues, alerts, and who had to make way."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import pages
from tests.docs.blocks import Command, Reader, steps
from tests.docs.readers import an_environment
from tests.e2e.cluster.furniture import a_queue
from tests.e2e.cluster.support import PATIENCE, Place, a_job, eventually, own_place, shows

from mpijob import Phase
from mpijob.backends.kubernetes.admin.namespace_limits import LIMITS
from mpijob.backends.kubernetes.client import resources
from mpijob.client.admin.limits import Administration
from mpijob.model.status.audit import AuditQuery

ROOT = Path(__file__).parents[3]
LONG = "sleep 600"


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    words = ["kubectl", f"--kubeconfig={kubeconfig}"]
    crds = str(ROOT / "deploy" / "base" / "crds")
    subprocess.run([*words, "apply", "--server-side", "-k", crds], check=True, capture_output=True)
    established = [
        *words,
        "wait",
        "--for=condition=Established",
        "--timeout=30s",
        "crd/mpijoblimits.mpijob.dev",
    ]
    subprocess.run(established, check=True, capture_output=True)
    with own_place(kubeconfig, "governed") as place:
        yield place
        if place.api.find(LIMITS.path("", place.namespace)) is not None:
            place.api.delete(LIMITS.path("", place.namespace))


def ok(place: Place, *words: str) -> str:
    done = place.mpijob(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.req("US3", "FR-026")
def test_what_is_set_is_on_the_clusters_own_objects_and_in_the_audit(place: Place) -> None:
    name = place.namespace
    with a_queue(place, "500m"):
        wishes = (
            f"--max-workers 4 --concurrent-jobs 2 --max-duration 12h --allow-image testbed.local/* --queue front "
            f"--cluster-queue {name} --priority-class high --gang-timeout 5m --gpu-hour 2.5 --quota gpu=8"
        )
        words = wishes.split()
        ok(place, "admin", "set", name, *words, "--dry-run")
        assert place.api.find(LIMITS.path("", name)) is None
        assert "max_workers: None → 4" in ok(place, "admin", "set", name, *words)
        limits = place.api.get(LIMITS.path("", name))["spec"]
        assert (limits["maxWorkers"], limits["concurrentJobs"], limits["maxDurationSeconds"]) == (4, 2, 43200)
        queue = place.find(resources.LOCAL_QUEUE, "front")
        assert queue is not None
        assert queue["spec"]["clusterQueue"] == name
        shown = json.loads(ok(place, "admin", "limits", name, "-o", "json"))
        assert shown["effective"]["rates"]["gpuHour"] == 2.5
        assert {"requests.nvidia.com/gpu"} == {line["resource"] for line in shown["quotas"]}
        ok(place, "admin", "set", name, "--unset", "max-workers", "--quota", "gpu=")
        assert "maxWorkers" not in place.api.get(LIMITS.path("", name))["spec"]
    told = place.client.audit(AuditQuery(verbs=("set",)))
    assert [event.note("changed")[:10] for event in told] == ["max_worker", "max_worker"] or len(told) == 2
    refused = place.mpijob("admin", "set", name, "--max-workers", "0")
    assert refused.returncode == 2


@pytest.mark.req("US3", "B-admin")
def test_a_quota_that_is_nearly_consumed_is_an_alert(place: Place) -> None:
    ok(place, "admin", "set", place.namespace, "--quota", "cpu=260m")
    job = place.client.submit(a_job("most", LONG, workers=1))
    job.wait(PATIENCE, {Phase.RUNNING})

    def look() -> str:
        said = ok(place, "admin", "overview")
        return said if f"alert: {place.namespace} quota 96% consumed" in said else ""

    said = eventually(look, "the alert")
    assert re.search(rf"^{place.namespace}\s+1\s+0", said, re.MULTILINE)
    job.delete()
    ok(place, "admin", "set", place.namespace, "--quota", "cpu=")


@pytest.mark.req("US3", "C-docs")
def test_the_commands_of_the_administrators_page_work(place: Place, tmp_path: Path) -> None:
    text = pages.read("administrators").replace("team-cv", place.namespace)
    environ = an_environment(tmp_path) | {"KUBECONFIG": str(place.kubeconfig), "MPIJOB_ENGINE": "kubernetes"}
    wrong = Reader(tmp_path, environ).follow(text)
    assert wrong == [], "\n".join(wrong)
    assert sum(isinstance(step, Command) for step in steps(text)) >= 7


@pytest.mark.req("UC3-AF1", "FR-028", "US3")
def test_a_preemption_is_told_with_time_and_taker_to_the_user_and_the_administrator(kubeconfig: Path) -> None:
    with (
        own_place(kubeconfig, "team-low") as low,
        own_place(kubeconfig, "team-high") as high,
        a_queue(low, "300m") as queue,
    ):
        high.put(resources.LOCAL_QUEUE, queue, spec={"clusterQueue": low.namespace})
        small = low.running(a_job("small", LONG, workers=1, queue=queue, priority="low"))
        high.client.submit(a_job("big", LONG, workers=1, queue=queue, priority="high"))
        state = shows(small, lambda now: now.reason == "Preempted", "tells that it was pre-empted")
        pattern = rf"Pre-empted at \d\d:\d\d UTC by {high.namespace}/big \(priority high\).*; resumes when .*"
        assert re.match(pattern, state.waiting_for)
        found = Administration(low.client).overview()
        (told,) = (one for one in found.preemptions if one.namespace == low.namespace)
        assert (told.job, bool(re.match(pattern, told.message))) == ("small", True)
