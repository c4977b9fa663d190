"""Recurring jobs on a cluster: a real CronJob, whose pods start jobs with no more rights than they need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from testbed import services
from tests.e2e.cluster.support import PATIENCE, TINY, Place, a_job, eventually, own_place

from mpijob import Phase
from mpijob.backends.kubernetes.client import resources
from mpijob.formats.jobfile import jobfile_reader
from mpijob.formats.kubernetes import cronjob
from mpijob.model.spec.schedule import LABEL

pytestmark = pytest.mark.testbed  # the services' image is the test bed's own
NEXT_MINUTE = 60.0


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "schedule") as place:
        yield place


def a_schedule(place: Place, tmp_path: Path, when: str) -> None:
    (tmp_path / "often.yaml").write_text(jobfile_reader.write(a_job("often", "sleep 3600", resources=TINY)))
    words = ("schedule", "create", "-f", str(tmp_path / "often.yaml"), "--when", when)
    made = place.mpijob(*words, MPIJOB_SERVICE_IMAGE=services.provide())
    assert made.returncode == 0, made.stderr


def told(place: Place) -> str:
    """Return what the pods of the schedule said that have ended."""
    pods = place.api.list(resources.POD.path(place.namespace), labels=f"{cronjob.SCHEDULE_LABEL}=often").items
    names = [one["metadata"]["name"] for one in pods if one["status"].get("phase") == "Succeeded"]
    return "\n".join(place.kubectl("logs", name) for name in names)


def check_removed(place: Place) -> None:
    assert "often" in place.mpijob("schedule", "list").stdout
    deleted = place.mpijob("schedule", "delete", "often")
    assert deleted.returncode == 0, deleted.stderr
    for kind in (resources.SERVICE_ACCOUNT, resources.ROLE, resources.ROLE_BINDING):
        assert place.find(kind, cronjob.ACCOUNT) is None
    place.empty()


@pytest.mark.req("C-cron")
def test_what_a_cronjob_starts_is_a_job_and_is_left_out_while_the_last_one_runs(
    place: Place, tmp_path: Path
) -> None:
    a_schedule(place, tmp_path, "0 0 1 1 *")
    place.kubectl("create", "job", "now", "--from=cronjob/often")  # as the cluster does when it is time
    first = eventually(lambda: [*place.client.jobs(selector=f"{LABEL}=often")], "it starts", PATIENCE)
    place.kubectl("create", "job", "again", "--from=cronjob/often")
    left_out = f"was skipped: job '{first[0].ref.name}' of the same schedule has not ended"
    eventually(lambda: left_out in told(place), "the second is left out", PATIENCE)
    assert len([*place.client.jobs(selector=f"{LABEL}=often")]) == 1
    check_removed(place)


@pytest.mark.long
@pytest.mark.req("C-cron")
def test_a_cronjob_starts_a_job_each_minute_and_leaves_it_out_while_the_last_one_runs(
    place: Place, tmp_path: Path
) -> None:
    a_schedule(place, tmp_path, "* * * * *")
    first = eventually(lambda: [*place.client.jobs(selector=f"{LABEL}=often")], "it starts", NEXT_MINUTE + 60)
    place.client.wait(first[0].ref, PATIENCE, {Phase.RUNNING})

    left_out = f"was skipped: job '{first[0].ref.name}' of the same schedule has not ended"
    eventually(lambda: left_out in told(place), "the second is left out", NEXT_MINUTE + 60)
    assert len([*place.client.jobs(selector=f"{LABEL}=often")]) == 1
    check_removed(place)


@pytest.mark.security
def test_whoever_may_not_grant_the_rights_of_the_pods_makes_no_schedule(
    kubeconfig_of: Callable[[str], Path], place: Place, tmp_path: Path
) -> None:
    alice = Place(kubeconfig_of("alice"), "team-a", str(tmp_path / "home"))
    words = (
        "schedule",
        "create",
        "mine",
        "--workers",
        "2",
        "--when",
        "@daily",
        "--cpu",
        "50m",
        "--memory",
        "96Mi",
    )
    refused = alice.mpijob(*words, "--", "true", MPIJOB_SERVICE_IMAGE=services.IMAGE)
    assert refused.returncode == 4, refused.stderr
    assert place.api.find(resources.CRON_JOB.path("team-a", "mine")) is None
