"""Whatever goes wrong on a real cluster is told with its cause and the worker that it was.

Every failure here is real: processes are killed, pods deleted, limits exceeded, packets dropped. What a test
waits for is the state that a user would see; how soon it is told is the matter of the bench.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster.furniture import a_claim
from tests.e2e.cluster.support import (
    PATIENCE,
    Crowd,
    Place,
    Told,
    a_job,
    a_program,
    begun,
    blamed,
    eventually,
    image,
    own_place,
    said,
)

from mpijob import Job, Phase
from mpijob.backends.kubernetes.client import resources
from mpijob.errors import Conflict, InvalidJob, NotFound, Severity
from mpijob.formats.kubernetes import trainjob
from mpijob.model import Family, Identity, Resources, Volume, VolumeKind

LONG = "echo begun; sleep 300"
GREEDY = (
    "from mpi4py import MPI; c = MPI.COMM_WORLD; [bytearray(1 << 30) for _ in range(c.rank)]; c.barrier()"
)
RAISES = "from mpi4py import MPI; c = MPI.COMM_WORLD; 1 / (1 - c.rank); c.barrier()"
LEAVES = "import sys; from mpi4py import MPI; c = MPI.COMM_WORLD; sys.exit(7) if c.rank else c.barrier()"
TINY = Resources(cpu="50m", memory="64Mi")
MODEST = Resources(cpu="100m", memory="160Mi")
OWN_OPENMPI = {
    "OPAL_PREFIX": "/data/mpi",
    "MPI4PY_LIBMPI": "/data/mpi/lib/libmpi.so.40",
    "MPI4PY_MPIABI": "openmpi",
}


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "failures") as place:
        yield place


@pytest.fixture(scope="module")
def crowd(place: Place) -> Crowd:
    """Start the jobs that fail by themselves, all at once."""
    return Crowd(
        place,
        a_job("exits", 'if [ "$MPIJOB_RANK" = 1 ]; then exit 3; fi; sleep 300', resources=TINY),
        a_program("hungry", GREEDY, resources=MODEST),
        a_program("leaves", LEAVES, image=image("mpich"), mpi=Family.MPICH, resources=MODEST),
        a_job("no-sshd", image=image("nosshd"), resources=TINY),
        a_job("other-family", image=image("mpich"), mpi=Family.OPENMPI, resources=TINY),
        a_job("n" * 44, resources=TINY),
    )


@pytest.fixture(scope="module")
def sleepers(place: Place, crowd: Crowd) -> dict[str, Job]:
    """Start the jobs that something is done to, beside the others."""
    names = ("taken", "paused")
    place.shared |= {*names}
    return {name: place.client.submit(a_job(name, LONG, resources=TINY)) for name in names}


def check_blamed(told: Told, code: str, worker: int | None) -> None:
    """Expect a failure with this first cause."""
    state = told.state
    assert blamed(state) == (Phase.FAILED, code, worker), state
    assert state.findings[0].message == state.message
    assert state.findings[0].hint
    if worker is not None:
        assert [one.index for one in state.workers if one.phase is Phase.FAILED] == [worker]


# -- ranks, workers, launcher --------------------------------------------------------------------------
@pytest.mark.req("US1-3", "B-story4", "FR-OBS-005")
def test_a_rank_that_fails_is_named_with_its_worker_and_its_code(crowd: Crowd) -> None:
    told = crowd["exits"]
    check_blamed(told, "RANK_EXIT", 1)
    assert "exited with code 3" in told.state.message
    assert [rank.exit_code for rank in told.state.ranks if not rank.followed] == [3]


def test_a_rank_that_leaves_ends_those_that_wait_for_it(crowd: Crowd) -> None:
    check_left(crowd["leaves"])


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "family"), [("openmpi5", Family.OPENMPI), ("mpich", Family.MPICH), ("intel", Family.INTEL)]
)
def test_in_every_family_one_rank_that_ends_badly_ends_them_all(
    place: Place, name: str, family: Family
) -> None:
    told = {
        program: first_told(
            place.ended(
                a_program(f"ends-{name}-{n}", program, image=image(name), mpi=family, resources=MODEST)
            )
        )
        for n, program in enumerate((RAISES, LEAVES))
    }
    check_raised(told[RAISES])
    check_left(told[LEAVES])


def check_raised(told: Told) -> None:
    check_blamed(told, "PYTHON_EXCEPTION", 1)
    assert "ZeroDivisionError" in told.state.message


def check_left(told: Told) -> None:
    check_blamed(told, "RANK_EXIT", 1)
    assert "exited with code 7" in told.state.message


@pytest.mark.req("UC1-AF2", "C-top10")
def test_a_worker_that_runs_out_of_memory_is_named_with_its_limit(crowd: Crowd) -> None:
    check_hungry(crowd["hungry"])


@pytest.mark.long
@pytest.mark.req("UC1-AF2", "C-top10")
@pytest.mark.parametrize("family", ["mpich", "intel"])
def test_a_worker_of_the_mpi_operator_that_runs_out_of_memory_is_named(place: Place, family: str) -> None:
    job = a_program(f"hungry-{family}", GREEDY, image=image(family), mpi=Family(family), resources=MODEST)
    check_hungry(first_told(place.ended(job)))


def check_hungry(told: Told) -> None:
    check_blamed(told, "MEMORY_LIMIT", 1)
    assert "160MB" in told.state.message
    assert told.state.findings[0].fixes[0].patch == {"resources": {"memory": "320Mi"}}


def first_told(job: Job) -> Told:
    """Return how a job ended that was waited for."""
    return Told(job, job.last)


def delete_pod(place: Place, name: str) -> None:
    place.kubectl("delete", "pod", name, "--grace-period=0", "--force")


def lose_worker(place: Place, job: Job) -> None:
    delete_pod(place, place.worker(job, 1)["metadata"]["name"])


def lose_sshd(place: Place, job: Job) -> None:
    job.execute(("sh", "-c", "kill -9 -1; kill -TERM 1"), worker=1)


def lose_launcher(place: Place, job: Job) -> None:
    delete_pod(place, place.launcher(job)["metadata"]["name"])


def kill_launcher(place: Place, job: Job) -> None:
    job.execute(("sh", "-c", "kill -9 -1"))


def check_loss(place: Place, job: Job, act: Callable[[Place, Job], None]) -> None:
    """Expect that what is lost while a job runs is named, and what was said before stays."""
    code, worker = ("LAUNCHER_KILLED", None) if "launcher" in act.__name__ else ("WORKER_LOST", 1)
    act(place, job)
    job.wait(PATIENCE)
    check_blamed(first_told(job), code, worker)
    if act is not lose_launcher:  # its log went with it
        assert said(job)[0][:1] == ["begun"]


@pytest.mark.long
@pytest.mark.req("SC-005", "A-edge-worker")
@pytest.mark.parametrize("mpi", [Family.AUTO, Family.MPICH, Family.INTEL])
@pytest.mark.parametrize("act", [lose_worker, lose_sshd, lose_launcher, kill_launcher])
def test_what_is_lost_while_a_job_of_any_family_runs_is_named(
    place: Place, act: Callable[[Place, Job], None], mpi: Family
) -> None:
    picture = "" if mpi is Family.AUTO else image(mpi.value)
    name = f"{act.__name__.replace('_', '-')}-{mpi}"
    check_loss(place, place.busy(a_job(name, LONG, mpi=mpi, image=picture)), act)


@pytest.mark.req("C-top10")
def test_an_image_without_an_ssh_server_is_told(crowd: Crowd) -> None:
    told = crowd["no-sshd"]
    assert told.state.findings[0].worker in (0, 1)
    check_blamed(told, "NO_SSHD", told.state.findings[0].worker)
    assert "openssh-server" in told.state.findings[0].hint


# -- the wrong MPI -------------------------------------------------------------------------------------
@pytest.mark.req("B-edge-mpi", "Q9")
def test_workers_with_another_mpi_than_the_launcher_are_told(place: Place) -> None:
    job = a_job("two-images", namespace=place.namespace, image=image("openmpi4"))
    runtime, document = trainjob.write(job, place.shape())
    workers = next(
        one for one in runtime["spec"]["template"]["spec"]["replicatedJobs"] if one["name"] == "node"
    )
    pod = workers["template"]["spec"]["template"]["spec"]
    for container in (*pod["containers"], *pod["initContainers"]):
        container["image"] = image("mpich")
    place.apply_job(document, runtime)
    handle = place.client.get("two-images")
    handle.wait(PATIENCE)
    assert blamed(handle.last)[:2] == (Phase.FAILED, "MPI_NOT_ON_WORKER")


@pytest.mark.req("B-edge-mpi", "Q9")
def test_a_launcher_of_another_family_than_the_job_says_is_told(crowd: Crowd) -> None:
    told = crowd["other-family"]
    assert blamed(told.state)[:2] == (Phase.FAILED, "MPI_FAMILY")


@pytest.mark.req("B-edge-mpi", "Q9")
@pytest.mark.long
@pytest.mark.parametrize(
    ("giver", "taker", "mpi", "env", "told"),
    [
        ("mpich", "openmpi4", Family.OPENMPI, {}, (Phase.FAILED, Severity.ERROR)),
        # every rank believes to be alone, and all end with 0
        ("openmpi5", "mpich", Family.MPICH, OWN_OPENMPI, (Phase.SUCCEEDED, Severity.WARNING)),
    ],
)
def test_a_program_of_another_mpi_than_the_launchers_is_caught(
    place: Place, giver: str, taker: str, mpi: Family, env: dict[str, str], told: tuple[Phase, Severity]
) -> None:
    """One image's mpi4py and MPI, put on a volume, and started by the other image's launcher."""
    program = "from mpi4py import MPI; print(MPI.COMM_WORLD.rank, 'in a world of', MPI.COMM_WORLD.size)"
    places = {"PYTHONPATH": "/data/mpi/lib/python3.11/dist-packages", "LD_LIBRARY_PATH": "/data/mpi/lib"}
    with a_claim(place, f"mpi-of-{giver}") as claim:
        volumes = (Volume(mount="/data", kind=VolumeKind.CLAIM, source=claim),)
        own = Family.MPICH if giver == "mpich" else Family.OPENMPI
        copy = a_job(f"give-{giver}", "cp -r /usr/local /data/mpi", workers=1, mpi=own, volumes=volumes)
        place.succeeded(copy.replace(image=image(giver)))
        wrong = a_program(
            f"take-{giver}", program, image=image(taker), mpi=mpi, volumes=volumes, env=places | env
        )
        state = place.ended(wrong).last
    assert (state.phase, state.findings[0].severity) == told
    assert state.findings[0].code == "MPI_MISMATCH"


# -- time, names, other people -------------------------------------------------------------------------
@pytest.mark.req("Q-SEC-004")
def test_a_job_that_runs_past_its_deadline_is_ended_and_leaves_nothing_running(place: Place) -> None:
    job = place.ended(a_job("slow", LONG, deadline_seconds=12))
    check_blamed(first_told(job), "DEADLINE_EXCEEDED", None)
    eventually(lambda: not place.pods(job), "its pods are deleted")


def test_a_name_at_the_limit_works_and_one_letter_more_is_refused_with_the_number(
    place: Place, crowd: Crowd
) -> None:
    with pytest.raises(InvalidJob, match="at most 44 characters"):
        place.client.submit(a_job("n" * 45))
    assert crowd["n" * 44].state.phase is Phase.SUCCEEDED


@pytest.mark.long
def test_a_name_may_be_longer_on_the_mpi_operator(place: Place) -> None:
    with pytest.raises(InvalidJob, match="at most 50 letters"):
        place.client.submit(a_job("n" * 51, mpi=Family.MPICH, image=image("mpich")))
    assert place.succeeded(a_job("n" * 50, mpi=Family.MPICH, image=image("mpich"))).last.phase.final


def test_a_job_that_is_submitted_twice_exists_once(place: Place) -> None:
    job = a_job("twice", LONG)
    first = place.client.submit(job)
    with pytest.raises(Conflict, match="twice"):
        place.client.submit(job)
    assert [one.ref for one in place.client.jobs(text="twice")] == [first.ref]
    backend, told = place.client.backend, place.client.localized(a_job("again", LONG))
    who = Identity("admin")
    plan = backend.plan(told, backend.preflight(told, who))
    refs = {backend.submit(plan, who) for _ in range(2)}
    assert len(refs) == 1
    assert (
        len(place.api.list(resources.TRAINJOB.path(place.namespace), labels="mpijob.dev/job=again").items)
        == 1
    )
    for one in ("twice", "again"):
        place.client.delete(one, 0)


def test_a_job_that_somebody_deletes_with_kubectl_is_gone_here_too(
    place: Place, sleepers: dict[str, Job]
) -> None:
    job = begun(sleepers["taken"])
    place.kubectl("delete", "trainjob", "taken", "--wait=false")

    def gone() -> bool:
        try:
            return job.state().phase is Phase.FAILED
        except NotFound:
            return True

    eventually(gone, "the job is gone", PATIENCE)
    with pytest.raises(NotFound, match="taken"):
        job.state()
    eventually(lambda: not place.pods(job), "its pods are deleted")
    assert [*place.client.jobs(text="taken")] == []


@pytest.mark.req("R2")
def test_a_job_that_somebody_pauses_with_kubectl_is_suspended_here_and_resumed_from_here(
    place: Place, sleepers: dict[str, Job]
) -> None:
    job = begun(sleepers["paused"])
    place.kubectl("patch", "trainjob", "paused", "--type=merge", '--patch={"spec":{"suspend":true}}')
    state = job.wait(PATIENCE, {Phase.SUSPENDED})
    assert state.message == "the job is suspended"
    eventually(lambda: not place.pods(job), "its pods are deleted")
    job.resume()
    assert job.wait(PATIENCE, {Phase.RUNNING}).attempt == 2
    job.delete(0)


@pytest.mark.long  # the fault `namespace deleted` shows it with a controller
@pytest.mark.req("B-edge-ns", "FR-RES-004")
def test_a_namespace_that_is_deleted_takes_its_jobs_along(kubeconfig: Path) -> None:
    with own_place(kubeconfig, "doomed") as place:
        job = place.running(a_job("doomed", LONG))
        place.api.delete(resources.NAMESPACE.path("", place.namespace))
        eventually(
            lambda: place.api.find(resources.NAMESPACE.path("", place.namespace)) is None, "it is gone", 120.0
        )
        with pytest.raises(NotFound):
            job.state()
