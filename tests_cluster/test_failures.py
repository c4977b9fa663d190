"""Whatever goes wrong on a real cluster is told within seconds, with its cause and the worker that it was.

Every failure here is real: processes are killed, pods deleted, limits exceeded, packets dropped. What a test
waits for is the state that a user would see; how late it is told is measured against the cluster's own time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests_cluster.support import (
    PATIENCE,
    PROMPT,
    RESTRICTED,
    Place,
    a_claim,
    a_job,
    a_program,
    a_queue,
    blamed,
    eventually,
    image,
    lateness,
    own_place,
    remove_claim,
    said,
    shows,
)

from mpijob import Job, JobState, MPIJob, Phase
from mpijob.backends.kubernetes import kinds
from mpijob.client.bridge import drive
from mpijob.dialects import trainjob
from mpijob.errors import Conflict, InvalidJob, NotFound, QuotaExceeded, Severity
from mpijob.model import Family, Identity, Resources, Secret, Volume, VolumeKind

LONG = "echo begun; sleep 300"
OWN_OPENMPI = {
    "OPAL_PREFIX": "/data/mpi",
    "MPI4PY_LIBMPI": "/data/mpi/lib/libmpi.so.40",
    "MPI4PY_MPIABI": "openmpi",
}
CLAIM_VOLUME = Volume(mount="/data", kind=VolumeKind.CLAIM, source="absent")


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "failures") as place:
        yield place


def check_blamed(state: JobState, code: str, worker: int | None) -> None:
    """Expect a failure with this first cause, told within seconds of the end."""
    late = lateness(state)
    assert blamed(state) == (Phase.FAILED, code, worker), state
    assert late < PROMPT
    assert state.findings[0].message == state.message
    assert state.findings[0].hint
    if worker is not None:
        assert [one.index for one in state.workers if one.phase is Phase.FAILED] == [worker]


def check_waits(job: Job, code: str, reason: str, *words: str) -> None:
    """Expect a job that is told as waiting for something in particular, within seconds of being made."""
    state = shows(job, lambda now: now.reason == reason, f"tells {reason}", 2 * PROMPT)
    made = state.created
    assert (state.phase, state.findings[0].code) == (Phase.PENDING, code)
    assert state.findings[0].severity is Severity.WARNING
    assert all(one in state.waiting_for for one in words), state.waiting_for
    assert time.time() - made < 2 * PROMPT
    job.delete(0)


# -- ranks, workers, launcher --------------------------------------------------------------------------
@pytest.mark.req("US1-3", "B-story4", "FR-OBS-005")
def test_a_rank_that_fails_is_named_with_its_worker_and_its_code(place: Place) -> None:
    job = place.ended(a_job("exits", 'if [ "$MPIJOB_RANK" = 1 ]; then exit 3; fi; sleep 300'))
    check_blamed(job.last, "RANK_EXIT", 1)
    assert "exited with code 3" in job.last.message
    assert [rank.exit_code for rank in job.last.ranks if not rank.followed] == [3]


@pytest.mark.req("US1-3")
def test_a_rank_that_was_killed_is_not_taken_for_one_without_memory(place: Place) -> None:
    job = place.ended(a_job("killed", 'if [ "$MPIJOB_RANK" = 1 ]; then kill -9 $$; fi; sleep 300'))
    check_blamed(job.last, "RANK_KILLED", 1)


@pytest.mark.req("UC1-AF2", "C-top10")
@pytest.mark.parametrize("family", ["openmpi4", pytest.param("mpich", marks=pytest.mark.long)])
def test_a_worker_that_runs_out_of_memory_is_named_with_its_limit(place: Place, family: str) -> None:
    greedy = (
        "from mpi4py import MPI; c = MPI.COMM_WORLD; [bytearray(1 << 30) for _ in range(c.rank)]; c.barrier()"
    )
    mpi = Family.MPICH if family == "mpich" else Family.AUTO
    memory = Resources(cpu="100m", memory="160Mi")
    job = place.ended(a_program(f"hungry-{family}", greedy, image=image(family), mpi=mpi, resources=memory))
    check_blamed(job.last, "MEMORY_LIMIT", 1)
    assert "160MB" in job.last.message
    assert job.last.findings[0].fixes[0].patch == {"resources": {"memory": "256Mi"}}


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


@pytest.mark.req("SC-005", "A-edge-worker")
@pytest.mark.parametrize("mpi", [Family.AUTO, pytest.param(Family.MPICH, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("act", "code", "worker"),
    [
        (lose_worker, "WORKER_LOST", 1),
        (lose_sshd, "WORKER_LOST", 1),
        (lose_launcher, "LAUNCHER_KILLED", None),
        (kill_launcher, "LAUNCHER_KILLED", None),
    ],
)
def test_what_is_lost_while_a_job_runs_is_named(
    place: Place, act: Callable[[Place, Job], None], code: str, worker: int | None, mpi: Family
) -> None:
    picture = image("mpich") if mpi is Family.MPICH else ""
    name = f"{act.__name__.replace('_', '-')}-{mpi}"
    job = place.busy(a_job(name, LONG, mpi=mpi, image=picture))
    begun = time.time()
    act(place, job)
    state = job.wait(PATIENCE)
    assert time.time() - begun < PROMPT
    check_blamed(state, code, worker)
    if act is not lose_launcher:  # its log went with it
        assert said(job)[0][:1] == ["begun"]


# -- what keeps a job from starting --------------------------------------------------------------------
@pytest.mark.req("C-top10", "A-edge-image")
def test_an_image_that_does_not_exist_is_told_and_in_the_end_the_job_is_given_up(place: Place) -> None:
    job = place.client.submit(a_job("no-image", image=image("nowhere"), gang_timeout_seconds=10))
    state = shows(job, lambda now: now.reason == "ImageNotFound", "tells that the image is missing")
    assert (state.phase, state.findings[0].code) == (Phase.PENDING, "IMAGE_NOT_FOUND")
    assert image("nowhere") in state.waiting_for
    state = job.wait(PATIENCE)
    check_blamed(state, "IMAGE_NOT_FOUND", None)
    eventually(lambda: not place.pods(job), "no worker is left")


@pytest.mark.req("FR-RES-005", "B-edge-pending")
def test_a_pod_that_fits_nowhere_says_what_is_missing(place: Place) -> None:
    job = a_job("no-room", LONG, resources=Resources(cpu="10m", memory="64Mi", gpu=5), workers=1)
    first = place.client.submit(job.replace(name="has-room"))
    eventually(lambda: first.state().started, "the first job has its place")
    second = place.client.submit(job)
    check_waits(second, "UNSCHEDULABLE", "Unschedulable", "GPU", "requested 5", "worker 0")
    first.delete(0)


def submit_unseen(place: Place, job: MPIJob, between: Callable[[], object] = lambda: None) -> Job:
    """Submit a job whose plan was made before something happened, as when two users submit at once."""
    backend = place.client.backend
    told, who = place.client.localized(job), Identity("admin")
    plan = drive(backend.plan(told, drive(backend.facts(told, who))))
    between()
    return place.client.get(drive(backend.submit(plan, who)))


@pytest.mark.req("C-top10")
def test_an_image_without_an_ssh_server_is_told(place: Place) -> None:
    job = place.ended(a_job("no-sshd", image=image("nosshd")))
    assert job.last.findings[0].worker in (0, 1)
    check_blamed(job.last, "NO_SSHD", job.last.findings[0].worker)
    assert "openssh-server" in job.last.findings[0].hint


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        (
            "secret",
            {"secrets": (Secret(env="TOKEN", source="absent/key"),)},
            "The secret absent does not exist",
        ),
        (
            "config-map",
            {"volumes": (Volume(mount="/data", kind=VolumeKind.CONFIG, source="absent"),)},
            "The config map absent does not exist",
        ),
        (
            "secret-volume",
            {"volumes": (Volume(mount="/data", kind=VolumeKind.SECRET, source="absent"),)},
            "The secret absent does not exist",
        ),
    ],
)
def test_what_a_job_names_and_the_namespace_lacks_is_told(
    place: Place, name: str, fields: dict[str, Any], words: str
) -> None:
    job = place.client.submit(a_job(f"no-{name}", **fields))
    check_waits(job, "SETTINGS_MISSING", "SettingsMissing", words)


def test_a_claim_that_does_not_exist_is_told_before_anything_is_made(place: Place) -> None:
    with pytest.raises(NotFound, match="volume claim 'absent' does not exist"):
        place.client.submit(a_job("no-claim", volumes=(CLAIM_VOLUME,)))
    assert place.find(kinds.TRAINJOB, "no-claim") is None


def test_a_claim_that_goes_while_a_job_is_sent_is_told_by_the_job(place: Place) -> None:
    with a_claim(place, "absent") as claim:
        lost = a_job("lost-claim", volumes=(CLAIM_VOLUME,))
        job = submit_unseen(place, lost, lambda: remove_claim(place, claim))
        check_waits(job, "VOLUME_NOT_READY", "VolumeNotReady", "absent")


@pytest.mark.req("FR-027", "SC-006", "D-quota", "FR-INT-002")
def test_a_resource_quota_is_told_before_and_after_anything_is_made(kubeconfig: Path) -> None:
    with own_place(kubeconfig, "quota") as place:

        def limit() -> None:
            place.put(kinds.RESOURCE_QUOTA, "small", spec={"hard": {"limits.memory": "200Mi"}})

        late = submit_unseen(place, a_job("late"), limit)
        eventually(lambda: "used" in (place.find(kinds.RESOURCE_QUOTA, "small") or {})["status"], "it counts")
        begun = time.monotonic()
        with pytest.raises(QuotaExceeded, match="200 MiB"):
            place.client.submit(a_job("early"))
        assert time.monotonic() - begun < 2.0
        assert place.find(kinds.TRAINJOB, "early") is None
        check_waits(late, "QUOTA_USED_UP", "QuotaUsedUp", "exceeded quota: small")


@pytest.mark.req("A-edge-net", "C-top10", "D-preflight-net")
def test_a_network_policy_that_blocks_the_job_is_told_before_and_after(kubeconfig: Path) -> None:
    with own_place(kubeconfig, "closed") as place:
        closed = {"podSelector": {}, "policyTypes": ["Ingress"]}
        place.put(kinds.NETWORK_POLICY, "deny-all", spec=closed)
        warned = {one.code for one in place.client.plan(a_job("closed")).notices}
        assert "NETWORK_BLOCKED" in warned
        job = place.ended(a_job("closed"))
        assert blamed(job.last)[:2] == (Phase.FAILED, "NETWORK_BLOCKED")
        assert lateness(job.last) < PROMPT
        assert "check NetworkPolicies" in job.last.message


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
    assert lateness(handle.last) < PROMPT


@pytest.mark.req("B-edge-mpi", "Q9")
def test_a_launcher_of_another_family_than_the_job_says_is_told(place: Place) -> None:
    job = place.ended(a_job("other-family", image=image("mpich"), mpi=Family.OPENMPI))
    assert blamed(job.last)[:2] == (Phase.FAILED, "MPI_FAMILY")
    assert lateness(job.last) < PROMPT


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


# -- queues --------------------------------------------------------------------------------------------
@pytest.mark.req("FR-028", "FR-RES-005", "R7")
def test_a_job_waits_for_a_full_queue_and_runs_when_there_is_room(kubeconfig: Path) -> None:
    with own_place(kubeconfig, "queued") as place, a_queue(place, "300m") as queue:
        first = place.running(a_job("first", LONG, queue=queue))
        second = place.client.submit(a_job("second", queue=queue))
        state = shows(second, lambda now: "CPU" in now.waiting_for, "waits for CPU cores")
        assert (state.phase, state.queue_position) == (Phase.QUEUED, 1)
        assert place.pods(second) == []
        first.cancel(0)
        assert second.wait(PATIENCE).phase is Phase.SUCCEEDED


@pytest.mark.testbed
@pytest.mark.req("UC3-AF1", "FR-028")
def test_a_job_that_is_preempted_says_so_and_runs_again(kubeconfig: Path) -> None:
    with own_place(kubeconfig, "preempted") as place, a_queue(place, "300m") as queue:
        low = place.running(a_job("low", LONG, queue=queue, priority="low"))
        high = place.client.submit(a_job("high", queue=queue, priority="high"))
        state = shows(low, lambda now: now.reason == "Preempted", "tells it")
        assert (state.phase, state.findings[0].code) == (Phase.QUEUED, "PREEMPTED")
        assert high.wait(PATIENCE).phase is Phase.SUCCEEDED
        assert low.wait(PATIENCE, {Phase.RUNNING}).attempt == 1


# -- time, names, other people -------------------------------------------------------------------------
@pytest.mark.req("Q-SEC-004")
def test_a_job_that_runs_past_its_deadline_is_ended_and_leaves_nothing_running(place: Place) -> None:
    job = place.ended(a_job("slow", LONG, deadline_seconds=12))
    check_blamed(job.last, "DEADLINE_EXCEEDED", None)
    eventually(lambda: not place.pods(job), "its pods are gone")


@pytest.mark.parametrize(("mpi", "longest"), [(Family.AUTO, 44), (Family.MPICH, 50)])
def test_a_name_at_the_limit_works_and_one_letter_more_is_refused_with_the_number(
    place: Place, mpi: Family, longest: int
) -> None:
    picture = image("mpich") if mpi is Family.MPICH else ""
    name = "n" * longest
    with pytest.raises(InvalidJob, match=f"at most {longest} letters"):
        place.client.submit(a_job(name + "n", mpi=mpi, image=picture))
    assert place.succeeded(a_job(name, mpi=mpi, image=picture)).last.phase is Phase.SUCCEEDED


@pytest.mark.req("SC-008")
def test_a_job_that_is_submitted_twice_exists_once(place: Place) -> None:
    job = a_job("twice", LONG)
    first = place.client.submit(job)
    with pytest.raises(Conflict, match="twice"):
        place.client.submit(job)
    assert [one.ref for one in place.client.jobs(text="twice")] == [first.ref]
    backend, told = place.client.backend, place.client.localized(a_job("again", LONG))
    who = Identity("admin")
    plan = drive(backend.plan(told, drive(backend.facts(told, who))))
    refs = {drive(backend.submit(plan, who)) for _ in range(2)}
    assert len(refs) == 1
    assert len(place.api.list(kinds.TRAINJOB.path(place.namespace), labels="mpijob.dev/job=again").items) == 1
    for one in ("twice", "again"):
        place.client.delete(one, 0)


def test_a_job_that_somebody_deletes_with_kubectl_is_gone_here_too(place: Place) -> None:
    job = place.running(a_job("taken", LONG))
    place.kubectl("delete", "trainjob", "taken", "--wait=false")

    def gone() -> bool:
        try:
            return job.state().phase is Phase.FAILED
        except NotFound:
            return True

    eventually(gone, "the job is gone", PROMPT)
    with pytest.raises(NotFound, match="taken"):
        job.state()
    eventually(lambda: not place.pods(job), "its pods are gone")
    assert [*place.client.jobs(text="taken")] == []


@pytest.mark.req("R2")
def test_a_job_that_somebody_pauses_with_kubectl_is_suspended_here_and_resumed_from_here(
    place: Place,
) -> None:
    job = place.running(a_job("paused", "sleep 8"))
    place.kubectl("patch", "trainjob", "paused", "--type=merge", '--patch={"spec":{"suspend":true}}')
    state = job.wait(PROMPT, {Phase.SUSPENDED})
    assert state.message == "the job is suspended"
    eventually(lambda: not place.pods(job), "its pods are gone")
    job.resume()
    assert job.wait(PATIENCE).phase is Phase.SUCCEEDED


@pytest.mark.req("B-edge-ns", "FR-RES-004")
def test_a_namespace_that_is_deleted_takes_its_jobs_along(kubeconfig: Path) -> None:
    with own_place(kubeconfig, "doomed", RESTRICTED) as place:
        job = place.running(a_job("doomed", LONG))
        place.api.delete(kinds.NAMESPACE.path("", place.namespace))
        eventually(
            lambda: place.api.find(kinds.NAMESPACE.path("", place.namespace)) is None, "it is gone", 120.0
        )
        with pytest.raises(NotFound):
            job.state()
