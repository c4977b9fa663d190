"""An API server that stops, forgets, refuses or lacks something: nothing is lost, and nothing wrong is told.

Every fault is a real one of the test bed and is mended before the next test.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster import faults
from tests.e2e.cluster.faults import Followers, left_of
from tests.e2e.cluster.support import PATIENCE, Place, a_job, begun, eventually, own_place, said

from mpijob import MPIJob, Phase
from mpijob.backends.kubernetes.client import resources
from mpijob.errors import BackendError, InvalidJob, Unsupported
from mpijob.model import Code, Family, Resources

pytestmark = pytest.mark.testbed
LONG = pytest.mark.long
TINY = Resources(cpu="50m", memory="64Mi")
COUNTS = "echo begun; i=0; while [ $i -lt {lines} ]; do echo line $i; i=$((i + 1)); sleep 0.5; done"
SMALL_WORDS = ("--workers", "2", "--cpu", "50m", "--memory", "64Mi", "--launcher-cpu", "50m")
SERVICE_ACCOUNT = resources.Kind("v1", "ServiceAccount", "serviceaccounts")


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "faults") as place:
        yield place


# -- nobody answers ------------------------------------------------------------------------------------
def silent(seconds: float, meanwhile: Callable[[], None]) -> None:
    with faults.silent_api_server():
        end = time.monotonic() + seconds
        meanwhile()
        time.sleep(max(0.0, end - time.monotonic()))


@pytest.mark.alone
@pytest.mark.req("B-watch")
@pytest.mark.parametrize(
    ("name", "lines", "fault"),
    [
        pytest.param("short-silence", 24, lambda meanwhile: silent(8, lambda: None), marks=LONG),
        pytest.param("etcd-restart", 24, lambda meanwhile: faults.restart_etcd(), marks=LONG),
        pytest.param("long-silence", 60, lambda meanwhile: silent(60, meanwhile), marks=LONG),
    ],
)
def test_whoever_follows_a_job_goes_on_when_the_api_server_answers_again(
    place: Place, name: str, lines: int, fault: Callable[[Callable[[], None]], None]
) -> None:
    """The ranks count on while nobody answers; the long silence outlasts the job itself."""
    job = place.busy(a_job(name, COUNTS.format(lines=lines), resources=TINY))
    with Followers(place, ("wait", name), ("logs", name, "--follow"), ("watch", name)) as followers:
        eventually(lambda: followers.said("logs") and followers.said("watch"), "they follow")
        fault(lambda: check_list_says_why(place))
        done = followers.ended(PATIENCE)
    check_ended_well(done)
    wanted = ["begun", *(f"line {number}" for number in range(lines))]
    for rank in (0, 1):
        told = [line for line in done["logs"].stdout.splitlines() if line.startswith(f"[Rank-{rank}]")]
        assert [line.partition("] ")[2] for line in told] == wanted
    assert "Failed" not in done["watch"].stdout
    assert "Succeeded" in done["watch"].stdout.splitlines()[-1]
    assert "Succeeded" in done["wait"].stdout
    assert said(job) == dict.fromkeys((0, 1), wanted)
    job.delete(0)


def check_ended_well(done: dict[str, subprocess.CompletedProcess[str]]) -> None:
    told = {name: (one.returncode, one.stderr) for name, one in done.items() if one.returncode != 0}
    assert told == {}


def check_list_says_why(place: Place) -> None:
    """Expect that a list gives up in bounded time and says that the server does not answer."""
    begun_at = time.monotonic()
    listed = place.mpijob("list")
    assert time.monotonic() - begun_at < 45
    assert listed.returncode != 0
    assert "cannot list jobs" in listed.stderr
    assert "does not answer" in listed.stderr or "did not answer" in listed.stderr
    assert listed.stdout == ""


# -- the login ends ------------------------------------------------------------------------------------
class Account:
    """A service account whose token dies with the Secret that it is bound to."""

    def __init__(self, place: Place, name: str) -> None:
        self.name, self._place, self._number = name, place, 0
        place.put(SERVICE_ACCOUNT, name)
        faults.allow(place, name, faults.rules(place), "ServiceAccount")

    def new_token(self) -> str:
        self._number += 1
        bound = f"{self.name}-{self._number}"
        self._place.put(resources.SECRET, bound)
        words = ("create", "token", self.name, "--bound-object-kind=Secret", f"--bound-object-name={bound}")
        return self._place.kubectl(*words).strip()

    def revoke(self) -> None:
        self._place.take_away(resources.SECRET, f"{self.name}-{self._number}")


@pytest.mark.req("B-watch")
def test_a_token_that_dies_while_a_job_is_followed_is_read_anew_and_one_without_heir_is_told(
    place: Place, tmp_path: Path
) -> None:
    account, file = Account(place, "short-lived"), tmp_path / "token"
    file.write_text(account.new_token())
    renewed = faults.as_user(place.kubeconfig, "renewed", tmp_path, tokenFile=str(file))
    fixed = faults.as_user(place.kubeconfig, "fixed", tmp_path, token=file.read_text())
    job = place.busy(a_job("outlives-its-login", COUNTS.format(lines=40), resources=TINY))
    commands = (("wait", job.name), ("logs", job.name, "--follow"), ("watch", job.name))
    with (
        Followers(place, *commands, KUBECONFIG=str(renewed)) as lucky,
        Followers(place, ("wait", job.name), KUBECONFIG=str(fixed)) as unlucky,
    ):
        eventually(lambda: lucky.said("logs") and lucky.said("watch"), "they follow")
        assert lucky.alive()
        assert unlucky.alive()
        file.write_text(account.new_token())
        place.take_away(resources.SECRET, "short-lived-1")
        told = unlucky.ended(60)["wait"]
        done = lucky.ended(PATIENCE)
    assert told.returncode != 0
    assert "has expired or is not accepted" in told.stderr
    check_ended_well(done)
    assert done["logs"].stdout.count("line") == 80
    job.delete(0)


# -- what the cluster lacks ----------------------------------------------------------------------------
TRAINER_CRDS = ("trainjobs", "trainingruntimes", "clustertrainingruntimes")
NO_TRAINER = tuple(f"{one}.trainer.kubeflow.org" for one in TRAINER_CRDS)
NO_OPERATOR = ("mpijobs.kubeflow.org",)


@pytest.mark.alone
@pytest.mark.long
def test_an_engine_that_is_not_installed_is_told_and_the_other_one_is_used(place: Place) -> None:
    """The kinds are served no more, as on a cluster that never had them; the objects stay."""
    job = a_job("elsewhere", resources=TINY)
    try:
        check_absent(place, job)
    finally:
        faults.engines_back()
    assert place.client.state("elsewhere").phase is Phase.SUCCEEDED


def check_absent(place: Place, job: MPIJob) -> None:
    """Expect that each engine that is not there is told, and that the other one does what it can."""
    with faults.not_served(place, *NO_TRAINER):
        fresh = Place(place.kubeconfig, place.namespace, place.settings.home)
        assert any("Kubeflow Trainer" in one and "not installed" in one for one in fresh.client.plan(job).why)
        assert fresh.succeeded(job).last.engine == "mpi-operator"
        assert [one.ref.name for one in fresh.client.jobs()] == ["elsewhere"]
        with faults.not_served(place, *NO_OPERATOR):
            bare = Place(place.kubeconfig, place.namespace, place.settings.home)
            with pytest.raises(Unsupported, match=r"neither Kubeflow Trainer .* nor the MPI Operator"):
                bare.client.submit(job.replace(name="nowhere"))
            with pytest.raises(Unsupported, match=r"neither Kubeflow Trainer .* nor the MPI Operator"):
                bare.client.list()
    with faults.not_served(place, *NO_OPERATOR):
        fresh = Place(place.kubeconfig, place.namespace, place.settings.home)
        with pytest.raises(Unsupported, match=r"the MPI Operator \(kubeflow.org/v2beta1\) is not installed"):
            fresh.client.submit(job.replace(name="nowhere", mpi=Family.MPICH))
        assert "elsewhere" not in [one.ref.name for one in fresh.client.jobs()]


@pytest.mark.alone
@pytest.mark.long
def test_a_webhook_that_is_down_is_told_by_its_owner_and_nothing_is_left(place: Place) -> None:
    job = a_job("late", resources=TINY, code=Code(files={"x": "y"}))
    with faults.no_trainer():
        begun_at = time.monotonic()
        with pytest.raises(BackendError, match="the webhook of Kubeflow Trainer does not answer") as caught:
            place.client.submit(job)
        assert time.monotonic() - begun_at < 30
        assert "administrator" in caught.value.hint
        assert left_of(place, "late") == []
    assert place.succeeded(job).last.phase is Phase.SUCCEEDED


def test_code_that_is_too_large_is_refused_before_anything_is_made(place: Place, tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(os.urandom(9_000_000))
    with pytest.raises(InvalidJob, match="compressed; a cluster accepts") as caught:
        place.client.submit(a_job("heavy", code=Code(path=str(tmp_path))))
    assert "volume" in caught.value.hint
    assert left_of(place, "heavy") == []


def test_two_processes_that_submit_one_name_at_once_make_one_job(place: Place) -> None:
    racers = [
        subprocess.Popen(
            place.argv("create", "race", *SMALL_WORDS, "--", "sleep", "300"),
            env=place.environ(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    told = [one.communicate(timeout=60)[1] for one in racers]
    statuses = sorted(one.returncode != 0 for one in racers)
    assert statuses == [False, True, True, True], told
    assert sum("race" in one and "exists" in one for one in told) == 3, told
    jobs = place.api.list(resources.TRAINJOB.path(place.namespace), labels="mpijob.dev/job=race").items
    assert len(jobs) == 1
    owners = place.api.get(resources.TRAINING_RUNTIME.path(place.namespace, "race"))["metadata"][
        "ownerReferences"
    ]
    assert [one["uid"] for one in owners] == [jobs[0]["metadata"]["uid"]]
    place.client.delete("race", 0)


# -- clocks --------------------------------------------------------------------------------------------
OFF = """
import os, time
seconds, nanoseconds, ahead = time.time, time.time_ns, int(os.environ["TEST_AHEAD"])
time.time = lambda: seconds() + ahead
time.time_ns = lambda: nanoseconds() + ahead * 10**9
"""


@pytest.mark.long
@pytest.mark.parametrize("ahead", [3600, -3600], ids=["fast", "slow"])
def test_a_clock_of_the_client_that_is_an_hour_off_changes_nothing(
    place: Place, tmp_path: Path, ahead: int
) -> None:
    """Else one clock would give a pending job up at once, and the other wait an hour for the next attempt."""
    (tmp_path / "sitecustomize.py").write_text(OFF)
    off = {"PYTHONPATH": str(tmp_path), "TEST_AHEAD": str(ahead)}
    tried, ended = f"tried{ahead}".replace("-", "-slow-"), f"ended{ahead}".replace("-", "-slow-")
    place.client.submit(a_job(ended, "echo begun; sleep 300", resources=TINY))
    run = place.mpijob("run", tried, *SMALL_WORDS, "--retry", "1", "--backoff", "1s", "--", "false", **off)
    assert run.returncode == 1, run.stderr
    assert (place.client.state(tried).phase, place.client.state(tried).attempt) == (Phase.FAILED, 2), (
        run.stderr
    )
    assert "RANK_EXIT" in {one.code for one in place.client.why(tried)}
    begun(place.client.get(ended))
    cancelled = place.mpijob("cancel", ended, **off)
    assert "Cancelled" in cancelled.stdout, cancelled
    assert place.client.state(ended).phase is Phase.CANCELLED
    for name in (tried, ended):
        place.client.delete(name, 0)
