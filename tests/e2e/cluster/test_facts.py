"""The facts about the engines that decided the design, each with a test that the trap does not bite.

Numbers are those of the list of facts that the design began with. Two jobs, one on Kubeflow Trainer and one
on the MPI Operator, are looked at while they run and after they have ended.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.e2e.cluster.support import (
    LAUNCHER,
    PATIENCE,
    SMALL,
    Crowd,
    Place,
    a_job,
    begun,
    eventually,
    image,
    own_place,
    said,
    shows,
)

from mpijob import JobState, MPIJob, Phase
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.backends.kubernetes.logs.pod_logs import role_of
from mpijob.formats.kubernetes import pod_template as pod_words
from mpijob.formats.kubernetes import trainjob
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document, Gang
from mpijob.formats.kubernetes.pod_template import container_of
from mpijob.model import Family, Role

ENGINES = {"openmpi5": (Family.OPENMPI, resources.TRAINJOB), "mpich": (Family.MPICH, resources.MPIJOB)}
LOOK = """
echo begun
echo COLOUR=$COLOUR on $(uname -n)
for file in /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do
  if [ -r $file ]; then echo limit=$(cat $file); fi
done
until [ -e /tmp/go ]; do sleep 0.2; done
"""
WORKERS = 2


class Seen(NamedTuple):
    """What there was of one job while it ran, and when it was over."""

    engine: str
    job: MPIJob
    kind: Kind
    document: Document
    running: JobState
    pods: Sequence[Document]
    secret: Mapping[str, Any]
    ended: JobState
    left: Sequence[Document]
    said: Mapping[int, list[str]]

    def containers(self, role: Role) -> list[Mapping[str, Any]]:
        return [container_of(pod["spec"]) for pod in self.pods if role_of(pod) is role]


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "facts") as place:
        yield place


def a_fact(engine: str) -> MPIJob:
    fields = {
        "image": image(engine),
        "mpi": ENGINES[engine][0],
        "workers": WORKERS,
        "env": {"COLOUR": "blue"},
    }
    return a_job(f"fact-{engine}", LOOK, **fields)


@pytest.fixture(scope="module")
def pair(place: Place) -> Crowd:
    """Start both jobs at once."""
    return Crowd(place, *map(a_fact, ENGINES), slender=False)


@pytest.fixture(scope="module", params=ENGINES)
def seen(request: pytest.FixtureRequest, place: Place, pair: Crowd) -> Seen:
    kind, job = ENGINES[request.param][1], a_fact(request.param)
    name, handle = job.name, begun(pair.there(job.name))
    running, pods, document = handle.last, place.pods(name), place.find(kind, name)
    secret = place.find(
        resources.SECRET, f"{name}-mpi-ssh-auth" if kind is resources.TRAINJOB else f"{name}-ssh"
    )
    for worker in range(WORKERS):
        assert handle.execute(("touch", "/tmp/go"), worker=worker) == 0
    ended = handle.wait_for_completion(60)
    eventually(lambda: len(place.pods(name)) == 1, "the workers are cleared away", 60.0)
    assert document is not None
    assert secret is not None
    return Seen(
        request.param, job, kind, document, running, pods, secret, ended, place.pods(name), said(handle)
    )


@pytest.mark.req("FR-INT-004", "FR-008")
def test_fact_1_every_pod_runs_the_users_image(seen: Seen) -> None:
    images = [
        one["image"]
        for pod in seen.pods
        for one in (*pod["spec"]["containers"], *pod["spec"]["initContainers"])
    ]
    assert set(images) == {image(seen.engine)}
    assert len(images) == 2 * (WORKERS + 1)


@pytest.mark.req("NFR-003", "D-init")
def test_fact_2_the_ranks_are_on_all_workers_and_not_on_the_launcher(seen: Seen) -> None:
    hosts = {line.split()[-1] for lines in seen.said.values() for line in lines if "COLOUR" in line}
    workers = {
        pod["spec"].get("hostname") or pod["metadata"]["name"]
        for pod in seen.pods
        if role_of(pod) is Role.WORKER
    }
    assert hosts == workers
    assert [one.worker for one in seen.running.ranks] == [0, 1]


@pytest.fixture(scope="module")
def crowd(place: Place, pair: Crowd) -> Crowd:
    """Start the jobs that end by themselves, all at once."""
    return Crowd(place, bare(), single(), *(fails(engine) for engine in ENGINES))


def bare() -> MPIJob:
    return a_job("bare", command=("mpirun", "-n", "2", "uname", "-n"), image=image("openmpi5"))


def test_fact_2_an_mpirun_of_the_users_own_finds_all_workers_too(crowd: Crowd) -> None:
    """Open MPI 5 overlooks what the engine sets for Open MPI 4: it would start both ranks on the launcher."""
    job = crowd.succeeded(bare())
    assert sorted(line.text for line in job.logs() if line.text.startswith(b"bare-")) == [
        b"bare-node-0-0",
        b"bare-node-0-1",
    ]


@pytest.mark.req("FR-INT-006", "R5")
def test_fact_3_what_trainer_refuses_goes_to_the_mpi_operator(seen: Seen, place: Place) -> None:
    other = resources.MPIJOB if seen.kind is resources.TRAINJOB else resources.TRAINJOB
    assert place.find(other, seen.job.name) is None
    assert seen.running.engine == ("trainer" if seen.kind is resources.TRAINJOB else "mpi-operator")
    runtime, _ = trainjob.write(a_job("refused", image="x", namespace=place.namespace), place.shape())
    runtime["spec"]["mlPolicy"]["mpi"]["mpiImplementation"] = "MPICH"
    with pytest.raises(ApiError, match="Unsupported value"):
        place.api.create(resources.TRAINING_RUNTIME.path(place.namespace), runtime, dry_run=True)


@pytest.mark.req("FR-004", "SC-010")
def test_fact_4_the_keys_are_the_engines_own_for_this_job_alone(seen: Seen, place: Place) -> None:
    public = base64.b64decode(seen.secret["data"]["ssh-publickey"]).decode()
    assert public.startswith("ecdsa-sha2-nistp521 ")
    assert [one["name"] for one in seen.secret["metadata"]["ownerReferences"]] == [seen.job.name]


def single() -> MPIJob:
    return a_job("single", "echo alone $MPIJOB_WORLD", workers=1)


def test_fact_5_one_worker_is_one_worker(place: Place, crowd: Crowd) -> None:
    job = crowd.succeeded(single())
    made = place.kubectl("get", "events", "--field-selector=reason=Scheduled", "--output=name").splitlines()
    assert len([one for one in made if "/single-" in one]) == 2
    assert said(job) == {0: ["alone 1"]}


def test_fact_6_there_are_exactly_as_many_pods_as_the_job_says(seen: Seen) -> None:
    roles = sorted(role_of(pod).value for pod in seen.pods)
    assert roles == ["launcher", *["worker"] * WORKERS]
    if seen.kind is resources.TRAINJOB:
        assert seen.document["spec"]["trainer"]["numNodes"] == WORKERS


@pytest.mark.req("D-loglabels")
def test_pods_carry_what_a_clusters_logging_sorts_by(seen: Seen) -> None:
    """The job, the role, and the engine's own number of the worker."""
    index = ("batch.kubernetes.io/job-completion-index", "training.kubeflow.org/replica-index")
    found = [pod["metadata"]["labels"] for pod in seen.pods]
    assert {one[well_known.JOB_LABEL] for one in found} == {seen.job.name}
    workers = [one for one in found if one[well_known.ROLE_LABEL] == Role.WORKER.value]
    assert sorted(one.get(index[0], one.get(index[1])) for one in workers) == ["0", "1"]
    assert len(found) == len(workers) + 1


@pytest.mark.req("FR-003")
def test_fact_7_variables_and_resources_reach_every_worker_and_rank(seen: Seen) -> None:
    limit = str(SMALL.memory_bytes)
    for rank in range(WORKERS):
        assert any(line.startswith("COLOUR=blue on ") for line in seen.said[rank])
        assert f"limit={limit}" in seen.said[rank]
    for one in seen.containers(Role.WORKER):
        assert one["resources"]["limits"] == {"cpu": SMALL.cpu, "memory": SMALL.memory}
    (launcher,) = seen.containers(Role.LAUNCHER)
    assert launcher["resources"]["requests"] == {"cpu": LAUNCHER.cpu, "memory": LAUNCHER.memory}


def test_fact_8_the_engine_finds_the_containers_that_it_must_fill_in(seen: Seen) -> None:
    for role in (Role.WORKER, Role.LAUNCHER):
        for one in seen.containers(role):
            assert one["name"] == pod_words.CONTAINER
            assert {"/mpijob/ssh"} <= {mount["mountPath"] for mount in one["volumeMounts"]}
    (launcher,) = seen.containers(Role.LAUNCHER)
    assert any(mount["mountPath"].startswith("/etc/mpi") for mount in launcher["volumeMounts"])


@pytest.mark.req("R7", "E-gang")
def test_fact_9_a_gangs_launcher_waits_for_nobody_and_finds_its_workers_by_itself(place: Place) -> None:
    """The documents of a gang, less the scheduler that this cluster lacks, with the launcher made first."""
    job = a_job("gang", "echo joined", namespace=place.namespace, image=image("openmpi5"))
    runtime, document = trainjob.write(job, place.shape(gang=Gang.COSCHEDULING))
    jobset = runtime["spec"]["template"]["spec"]
    assert runtime["spec"].pop("podGroupPolicy") == {"coscheduling": {"scheduleTimeoutSeconds": 300}}
    assert all("dependsOn" not in one for one in jobset["replicatedJobs"])
    for one in jobset["replicatedJobs"]:
        del one["template"]["spec"]["template"]["spec"]["schedulerName"]
    jobset["replicatedJobs"].reverse()
    place.apply_job(document, runtime)
    handle = place.client.get("gang")
    assert handle.wait(60).phase is Phase.SUCCEEDED
    assert said(handle) == {0: ["joined"], 1: ["joined"]}


@pytest.mark.req("US2-3", "FR-OBS-002")
def test_fact_10_what_ranks_said_outlives_their_workers(seen: Seen) -> None:
    assert [role_of(pod) for pod in seen.left] == [Role.LAUNCHER]
    assert {rank: lines[0] for rank, lines in seen.said.items()} == {0: "begun", 1: "begun"}
    assert {(one.rank, one.worker) for one in seen.ended.ranks} == {(0, 0), (1, 1)}


def test_fact_11_a_job_tells_that_it_runs_although_its_engine_has_no_word_for_that(seen: Seen) -> None:
    conditions = {one["type"] for one in (seen.document.get("status") or {}).get("conditions") or ()}
    assert seen.running.phase is Phase.RUNNING
    assert seen.running.started is not None
    assert seen.kind is resources.MPIJOB or "Running" not in conditions


@pytest.mark.req("B-edge-pending")
def test_fact_11_a_job_that_cannot_start_says_why_although_its_engine_says_nothing(place: Place) -> None:
    job = place.client.submit(a_job("mute", image=image("nowhere")))
    state = shows(job, lambda now: now.reason == "ImageNotFound", "tells that the image is missing")
    said_by_engine = (place.find(resources.TRAINJOB, "mute") or {}).get("status") or {}
    assert not said_by_engine.get("conditions")
    assert (state.phase, state.findings[0].code) == (Phase.PENDING, "IMAGE_NOT_FOUND")
    job.delete(0)


def fails(engine: str) -> MPIJob:
    return a_job(f"once-{engine}", "echo tried; exit 3", image=image(engine), mpi=ENGINES[engine][0])


@pytest.mark.parametrize("engine", ENGINES)
def test_fact_12_a_command_that_fails_is_run_once(place: Place, crowd: Crowd, engine: str) -> None:
    kind, (job, state) = ENGINES[engine][1], crowd[f"once-{engine}"]
    assert (state.phase, state.attempt) == (Phase.FAILED, 1)
    (launcher,) = [pod for pod in place.pods(job) if role_of(pod) is Role.LAUNCHER]
    assert [one["restartCount"] for one in launcher["status"]["containerStatuses"]] == [0]
    runs = place.api.list(resources.JOB.path(place.namespace)).items
    (run,) = [one for one in runs if one["metadata"]["name"].startswith(f"once-{engine}-launcher")]
    eventually(lambda: failures(place, run) == 1, "the engine has counted the failure", PATIENCE)
    assert all(lines.count("tried") == 1 for lines in said(job).values())
    assert kind.name == (place.find(kind, f"once-{engine}") or {})["kind"]


def failures(place: Place, run: Document) -> int:
    found = place.find(resources.JOB, run["metadata"]["name"])
    return int(((found or {}).get("status") or {}).get("failed") or 0)
