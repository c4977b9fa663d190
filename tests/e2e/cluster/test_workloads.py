"""Real work on a real cluster: every MPI family, examples as they stand, ways to start, and output."""

from __future__ import annotations

import runpy
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cluster.support import Crowd, Place, a_job, a_program, image, own_place, said

from mpijob import MPIJob, Phase
from mpijob.client.submit import function
from mpijob.model import Code, Family, Launch, Program, Resources, Role

ROOT = Path(__file__).resolve().parents[3]
FAMILIES = {
    "openmpi4": Family.OPENMPI,
    "openmpi5": Family.OPENMPI,
    "mpich": Family.MPICH,
    "intel": Family.INTEL,
}
USUAL = "openmpi4"
EVERY = [USUAL, *(pytest.param(one, marks=pytest.mark.long) for one in list(FAMILIES)[1:])]
SUM = (  # in one piece: with a user's own mpirun nothing keeps the words of ranks apart
    "from mpi4py import MPI; c = MPI.COMM_WORLD;"
    " print('sum %d of %d\\n' % (c.allreduce(c.rank + 1), c.size), end='')"
)


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "workloads") as place:
        yield place


@pytest.fixture(scope="module")
def crowd(place: Place) -> Crowd:
    """Start the jobs of the usual family, all at once; those of the others are started one by one."""
    return Crowd(place, *(make(USUAL) for make in (reads, of_parts, with_mpirun, uncounted)))


def of_family(name: str, make: MPIJob) -> MPIJob:
    """Return a job for the image of one family."""
    return make.replace(mpi=FAMILIES[name], image=image(name))


# -- large and small ---------------------------------------------------------------------------------
@pytest.mark.long
@pytest.mark.req("R5", "NFR-003", "FR-004", "D-init")
@pytest.mark.parametrize("family", FAMILIES)
def test_eight_workers_form_one_world(place: Place, family: str) -> None:
    name, count = f"eight-{family}", 8
    resources = Resources(cpu="100m", memory="160Mi")
    job = place.succeeded(of_family(family, a_program(name, SUM, workers=count, resources=resources)))
    assert said(job) == {rank: [f"sum 36 of {count}"] for rank in range(count)}
    assert [(one.rank, one.worker) for one in job.last.ranks] == [(rank, rank) for rank in range(count)]
    assert {(line.rank, line.worker) for line in job.logs(roles=[Role.RANK])} == {
        (n, n) for n in range(count)
    }
    job.delete(0)


@pytest.mark.req("B-story5", "D-workloads")
@pytest.mark.parametrize(
    ("args", "accuracy"),
    [
        (("--arg=--epochs=2", "--arg=--samples=10240", "--arg=--probe=1"), 0.2),
        pytest.param((), 0.9, marks=pytest.mark.long),  # on pods of a fifth of a core: three minutes
    ],
)
def test_the_training_of_the_quickstart_runs_unchanged(
    place: Place, args: tuple[str, ...], accuracy: float
) -> None:
    done = place.mpijob("run", "-f", str(ROOT / "examples/training/job.yaml"), *small(), *args)
    assert done.returncode == 0, done.stderr
    result = next(line for line in done.stdout.splitlines() if "RESULT" in line)
    fields = dict(word.split("=") for word in result.split() if "=" in word)
    assert result.startswith("[Rank-0]")
    assert fields["ranks"] == "4"
    assert float(fields["accuracy"]) > accuracy
    assert float(fields["checksum"]) == pytest.approx(
        alone(args), abs=1e-6
    )  # the same weights as on one machine
    assert "training Succeeded" in done.stderr
    place.client.delete("training", 0)


def small() -> tuple[str, ...]:
    """Return what makes room for a job that asks for more than a small node has."""
    where = ("--node-selector", node_selector())
    return ("--cpu", "200m", "--memory", "256Mi", "--launcher-cpu", "50m", *where)


def alone(args: tuple[str, ...]) -> float:
    """Return the checksum of the same training on one rank here."""
    words = [word.removeprefix("--arg=") for word in args]
    argv = [sys.executable, str(ROOT / "examples/training/train.py"), *words]
    out = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=True).stdout
    return float(out.partition("checksum=")[2].split()[0])


def node_selector() -> str:
    (pair,) = a_job().placement.node_selector.items() or [("kubernetes.io/os", "linux")]
    return "=".join(pair)


@pytest.mark.req("FR-SDK-005")
def test_a_function_runs_on_every_rank_and_its_result_comes_back(place: Place) -> None:
    """The example as it stands, but for the size of its workers."""
    estimate_pi = runpy.run_path(str(ROOT / "examples/function_job.py"))["estimate_pi"]
    job = function.job(estimate_pi, {"points": 20_000}, **small_job("pi"))
    handle = place.succeeded(job)
    assert 3.1 < handle.result() < 3.2
    handle.delete(0)


def small_job(name: str) -> dict[str, Any]:
    return {
        "workers": 2,
        **{field: getattr(a_job(name), field) for field in ("resources", "launcher", "placement")},
    }


@pytest.mark.req("FR-SDK-005")
def test_the_hello_example_greets_from_both_ranks_and_adds_up(place: Place) -> None:
    done = place.mpijob("run", "-f", str(ROOT / "examples/hello/job.yaml"), *small())
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "[Rank-0] hello from rank 0 of 2",
        "[Rank-0] the rank numbers add up to 1",
        "[Rank-1] hello from rank 1 of 2",
    ]
    place.client.delete("hello", 0)


@pytest.mark.req("UC3-cmd")
def test_mpi_flags_in_the_environment_reach_the_launch_line(place: Place) -> None:
    """A flag that exports a variable: what every rank sees is what mpirun was told."""
    env = {"MPI_FLAGS": "-x GREETING=hello", "GREETING": ""}
    job = place.succeeded(a_job("flags", 'echo "told: $GREETING"', env=env))
    assert said(job, regex="^told") == {0: ["told: hello"], 1: ["told: hello"]}
    job.delete(0)


# -- ways to start -----------------------------------------------------------------------------------
def reads(family: str) -> MPIJob:
    echo = "import sys; print(sys.stdin.read().split())"
    files = Code(files={"input": "1 2\n3\n"})
    return of_family(family, a_program(f"reads-{family}", echo, launch=Launch(stdin="input"), code=files))


@pytest.mark.parametrize("family", EVERY)
def test_rank_0_reads_the_jobs_input(crowd: Crowd, family: str) -> None:
    assert said(crowd.succeeded(reads(family))) == {0: ["['1', '2', '3']"], 1: ["[]"]}


def of_parts(family: str) -> MPIJob:
    size = (
        "import os; from mpi4py import MPI; print(os.environ['PART'], os.environ['ALL'], MPI.COMM_WORLD.size)"
    )
    programs = (
        Program(ranks=1, command=("python3", "-c", size), env={"PART": "master"}),
        Program(ranks=2, command=("python3",), args=("-c", size), env={"PART": "hand"}),
    )
    job = a_job(f"parts-{family}", command=(), programs=programs, workers=3, env={"ALL": "us"})
    return of_family(family, job)


@pytest.mark.parametrize("family", EVERY)
def test_several_programs_form_one_world(crowd: Crowd, family: str) -> None:
    job = crowd.succeeded(of_parts(family))
    assert said(job) == {0: ["master us 3"], 1: ["hand us 3"], 2: ["hand us 3"]}


def with_mpirun(family: str) -> MPIJob:
    return of_family(family, a_job(f"own-{family}", command=("mpirun", "-n", "2", "python3", "-c", SUM)))


@pytest.mark.req("UC2-cmd")
@pytest.mark.parametrize("family", EVERY)
def test_a_command_that_brings_its_own_mpirun_is_run_as_it_is_behind_a_census(
    place: Place, crowd: Crowd, family: str
) -> None:
    job = crowd.succeeded(with_mpirun(family))
    assert place.client.plan(with_mpirun(family).replace(name="planned")).own_launcher == "mpirun"
    assert [line.text for line in job.logs()].count(b"sum 3 of 2") == 2
    assert [(one.rank, one.worker) for one in job.last.ranks] == [(0, 0), (1, 1)]


def uncounted(family: str) -> MPIJob:
    return of_family(family, a_program(f"uncounted-{family}", SUM, census=False))


@pytest.mark.parametrize("family", EVERY)
def test_a_job_that_wants_no_census_is_not_counted(place: Place, crowd: Crowd, family: str) -> None:
    job = crowd.succeeded(uncounted(family))
    raw = place.kubectl("logs", place.launcher(job)["metadata"]["name"])
    assert "mpijob-census" not in raw
    assert job.last.ranks == ()
    assert said(job) == {rank: ["sum 3 of 2"] for rank in (0, 1)}


# -- while it runs -----------------------------------------------------------------------------------
@pytest.mark.req("FR-009", "SC-004", "FR-CLI-003", "C-exec", "FR-021", "FR-OBS-002")
def test_what_ranks_say_is_followed_live_and_one_can_enter_a_worker(place: Place) -> None:
    """Every rank waits for a file that somebody makes from outside, so nothing here depends on time."""
    script = "echo ready $MPIJOB_RANK; until [ -e /tmp/go ]; do sleep 0.2; done; echo went $(cat /tmp/go) >&2"
    job = place.client.submit(a_job("visited", script))
    lines, late = [], []
    for line in job.logs(follow=True):
        if line.role is not Role.RANK:
            continue
        late.append(time.time() - line.time / 1e9)
        lines.append((line.source, line.worker, line.stream, line.text.decode()))
        if len(lines) == 2:
            assert job.state().phase is Phase.RUNNING
            enter(place, "--worker", "1", "--", "sh", "-c", "echo in $(uname -n); echo worker >/tmp/go")
            enter(place, "--rank", "0", "--", "sh", "-c", "echo in $(uname -n); echo rank >/tmp/go")
    assert sorted(lines[:2]) == [("Rank-0", 0, "stdout", "ready 0"), ("Rank-1", 1, "stdout", "ready 1")]
    assert sorted(lines[2:]) == [("Rank-0", 0, "stderr", "went rank"), ("Rank-1", 1, "stderr", "went worker")]
    assert max(late) < 5.0
    assert job.state().phase is Phase.SUCCEEDED
    shown = place.mpijob("logs", "visited", "--rank", "1").stdout
    assert shown.splitlines() == ["[Rank-1] ready 1", "[Rank-1] went worker"]
    job.delete(0)


def enter(place: Place, *words: str) -> None:
    done = place.mpijob("exec", "visited", *words)
    worker = "0" if "--rank" in words else "1"
    assert (done.returncode, done.stdout.strip()) == (0, f"in visited-node-0-{worker}"), done.stderr
