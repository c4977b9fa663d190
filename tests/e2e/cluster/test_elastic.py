"""Workers that come and go on a real cluster: a launcher that looks for them, scaling, and a worker that is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import pages
from tests.e2e.cluster.support import PATIENCE, TINY, Place, a_job, eventually, image, own_place, shows

from mpijob import Job, MPIJob, Phase
from mpijob.backends.kubernetes.client import resources
from mpijob.errors import Conflict, Unsupported
from mpijob.model import Elastic, Family, JobState

# Prints the workers whenever they change and whether ssh reaches each, and ends when there are two again after three.
WATCHES = """
before= most=0
while :; do
  now=$("$MPIJOB_DISCOVER_HOSTS" | cut -d. -f1 | sed 's/.*-worker-//' | tr '\\n' ' ')
  if [ "$now" != "$before" ]; then
    set -- $now
    echo "workers: $#: $now"
    [ "$#" -gt "$most" ] && most=$#
    for host in $("$MPIJOB_DISCOVER_HOSTS"); do ssh "$host" echo reached "${host%%.*}" </dev/null; done
    [ "$most" = 3 ] && [ "$now" = "0 1 " ] && exit 0
    before=$now
  fi
  sleep 0.5
done
"""
PAGE = pages.read("elastic")


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "elastic") as place:
        yield place


def an_elastic(name: str, script: str) -> MPIJob:
    return a_job(name, script, elastic=Elastic(min_workers=2, max_workers=4), resources=TINY)


def heard(job: Job) -> str:
    return "\n".join(line.text.decode() for line in job.logs())


class Seen:
    """Looks at a job until it shows something, and keeps every phase that it saw on the way."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.phases: set[Phase] = set()

    def until(self, message: str) -> JobState:
        def there(state: JobState) -> bool:
            self.phases.add(state.phase)
            return message in state.message

        return shows(self._job, there, f"says {message}")


@pytest.mark.req("R8")
def test_a_launcher_sees_workers_come_and_go_and_a_lost_one_ends_nothing(place: Place) -> None:
    job = place.running(an_elastic("grow", WATCHES))
    assert job.state().engine == "mpi-operator"
    seen = Seen(job)
    seen.until("2 of 2 workers ready, at least 2")

    job.scale(3)
    seen.until("3 of 3 workers ready")
    eventually(lambda: "workers: 3: 0 1 2" in heard(job), "the launcher sees three", PATIENCE)
    eventually(lambda: "reached grow-worker-2" in heard(job), "the launcher reaches the third")

    lost = place.worker(job, 1)["metadata"]
    place.api.delete(resources.POD.path(place.namespace, lost["name"]), grace_seconds=0)
    eventually(
        lambda: _made_anew(place, job, lost["uid"]), "the operator makes the lost worker anew", PATIENCE
    )
    seen.until("3 of 3 workers ready")

    with pytest.raises(Conflict, match="accepts 2 to 4 workers; 5 requested"):
        job.scale(5)
    job.scale(2)
    state = job.wait_for_completion(PATIENCE)
    assert seen.phases == {Phase.RUNNING}
    assert (state.phase, state.workers_wanted) == (Phase.SUCCEEDED, 2)
    told = [event.message for event in job.events() if event.reason == "Scaled"]
    assert [one.partition(" by ")[0] for one in told] == [
        "scaled from 2 to 3 workers",
        "scaled from 3 to 2 workers",
    ]
    with pytest.raises(Conflict, match="only a job that has not ended"):
        job.scale(3)


def _made_anew(place: Place, job: Job, uid: str) -> bool:
    names = {
        one["metadata"]["uid"] for one in place.pods(job) if one["metadata"]["name"].endswith("worker-1")
    }
    return bool(names - {uid}) and uid not in names


@pytest.mark.req("R8")
def test_jobs_of_a_fixed_size_are_not_scaled_and_the_reason_is_told(place: Place) -> None:
    trained = place.client.submit(a_job("trained", "sleep 300", resources=TINY))
    with pytest.raises(
        Unsupported, match="is a TrainJob: only the MPI Operator's jobs can be scaled"
    ) as refused:
        trained.scale(3)
    assert "mpijob clone trained --workers 3" in refused.value.hint
    fixed = place.client.submit(
        a_job("fixed", "sleep 300", resources=TINY, mpi=Family.MPICH, image=image("mpich"))
    )
    with pytest.raises(Unsupported, match="is not elastic: its number of ranks is fixed"):
        fixed.scale(3)
    for job in (trained, fixed):
        job.delete(grace_period=0)


@pytest.mark.req("R8")
def test_the_documented_check_of_an_autoscaler_is_one_that_kueue_takes(place: Place) -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (about,) = (one for one in blocks if "ProvisioningRequestConfig" in one)
    said = place.kubectl("create", "--dry-run=server", "--filename=-", stdin=about)
    assert said.count("created (server dry run)") == 2
