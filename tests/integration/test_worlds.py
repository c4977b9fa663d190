"""No program runs in another world than the planned one: what is of another MPI, or cut off, ends the job at once."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mpijob import Client, MPIJob, Phase
from mpijob.formats.launch import pod_scripts
from mpijob.formats.status import launcher_census
from mpijob.formats.status.launcher_census import Layout
from mpijob.model import Code, Family, Resources
from mpijob.model.platform.cluster_observation import Census
from mpijob.settings import Settings

from .support import a_job, ended, said, succeeded

pytestmark = pytest.mark.engine

ROOMY = Resources(cpu="500m", memory="512Mi")
WORLD = """
from mpi4py import MPI
import time
world = MPI.COMM_WORLD
time.sleep(0.2)
print("world of", world.size)
"""
LIBRARIES = {
    "mpich": str(Path(sys.prefix) / "lib/libmpi.so.12"),
    "openmpi": str(Path(os.environ.get("MPIJOB_TEST_MPI", "/nonexistent")) / "openmpi/lib/libmpi.so.40"),
}
HIDDEN = """
import os, subprocess, sys
how, library = sys.argv[1:]
environ = dict(os.environ, MPI4PY_LIBMPI=library, LD_LIBRARY_PATH=os.path.dirname(library))
argv = [sys.executable, "world.py"]
if how == "cut off":
    environ = {"PATH": os.environ["PATH"], "MPI4PY_LIBMPI": library}
if how.startswith("without "):
    environ = {name: value for name, value in environ.items() if not name.startswith(how.split()[1])}
if how == "nested":
    argv = ["mpiexec", "-n", "2", *argv]
if how == "orphan":
    environ = {"PATH": os.environ["PATH"], "MPI4PY_LIBMPI": library}
    reading, writing = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            os.write(writing, b"%d" % subprocess.run(argv, env=environ, close_fds=False).returncode)
        os._exit(0)
    os.wait()
    sys.exit(int(os.read(reading, 3)))
sys.exit(subprocess.run(argv, env=environ, close_fds=False).returncode)
"""
FILES = {"world.py": WORLD, "hidden.py": HIDDEN}


def job_of(name: str, mpi: str, *argv: str) -> MPIJob:
    return a_job(name, mpi=mpi, command=("python", *argv), resources=ROOMY, code=Code(files=FILES))


@pytest.mark.parametrize(("started", "linked"), [("mpich", "openmpi"), ("openmpi", "mpich")])
def test_a_program_of_another_mpi_never_runs_as_worlds_of_one(
    client: Client, started: str, linked: str
) -> None:
    state = ended(client, job_of("other", started, "hidden.py", "other", LIBRARIES[linked]))
    assert state.phase is Phase.FAILED
    assert state.findings[0].code == "WRONG_WORLD"
    assert state.findings[0].fixes[0].patch == {"mpi": linked}
    assert "world of 1" not in json.dumps(said(client.get(state.ref)))


def test_where_the_mpi_is_left_to_us_the_job_is_started_once_more_with_the_right_one(client: Client) -> None:
    job = succeeded(client, job_of("again", "auto", "hidden.py", "other", LIBRARIES["openmpi"]))
    # The first attempt may have told of its refused MPI_Init before it was ended.
    assert {rank: lines[-1] for rank, lines in said(job).items()} == {0: "world of 2", 1: "world of 2"}
    state = job.state()
    assert (state.attempt, state.mpi.split()[0]) == (2, "openmpi")
    (told,) = (event.message for event in job.events() if event.reason == "OtherMPI")
    assert "started once more with openmpi" in told


def test_a_job_that_has_printed_is_not_started_again(client: Client) -> None:
    hidden = HIDDEN.replace("argv = [", "print('begun', flush=True)\nargv = [", 1)
    files = FILES | {"hidden.py": hidden}
    argv = ("python", "hidden.py", "other", LIBRARIES["openmpi"])
    job = a_job("printed", mpi="auto", command=argv, resources=ROOMY, code=Code(files=files))
    state = ended(client, job)
    assert (state.phase, state.attempt, state.findings[0].code) == (Phase.FAILED, 1, "WRONG_WORLD")


@pytest.mark.parametrize("family", ["mpich", "openmpi"])
def test_a_rank_without_its_launcher_s_variables_ends_the_job(client: Client, family: str) -> None:
    state = ended(client, job_of("cut", family, "hidden.py", "cut off", LIBRARIES[family]))
    assert state.phase is Phase.FAILED
    assert state.findings[0].code == "WRONG_WORLD"
    assert LIBRARIES[family] in state.findings[0].message


@pytest.mark.parametrize(("family", "lost"), [("mpich", "PMI_FD"), ("openmpi", "PMIX_")])
def test_a_rank_that_lost_one_of_its_launcher_s_variables_ends_the_job(
    client: Client, family: str, lost: str
) -> None:
    state = ended(client, job_of("lost", family, "hidden.py", f"without {lost}", LIBRARIES[family]))
    assert state.phase is Phase.FAILED
    assert state.findings[0].code == "WRONG_WORLD"
    assert lost in state.findings[0].message


def test_a_process_that_a_rank_has_left_behind_is_looked_at_too(client: Client) -> None:
    state = ended(client, job_of("orphan", "mpich", "hidden.py", "orphan", LIBRARIES["mpich"]))
    assert state.phase is Phase.FAILED
    assert state.findings[0].code == "WRONG_WORLD"


def test_an_mpirun_in_every_rank_ends_the_job(client: Client) -> None:
    state = ended(client, job_of("nested", "mpich", "hidden.py", "nested", LIBRARIES["mpich"]))
    assert state.phase is Phase.FAILED
    assert state.findings[0].code == "WRONG_WORLD"


@pytest.mark.parametrize("family", ["mpich", "openmpi"])
def test_a_program_that_a_wrapper_starts_keeps_its_world(client: Client, family: str) -> None:
    job = succeeded(client, job_of("same", family, "hidden.py", "same", LIBRARIES[family]))
    assert said(job) == {0: ["world of 2"], 1: ["world of 2"]}


def test_an_installation_is_chosen_by_its_prefix(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    prefix = tmp_path / "opt" / "ompi-5"
    prefix.parent.mkdir()
    prefix.symlink_to(Path(LIBRARIES["openmpi"]).parent.parent)
    monkeypatch.setenv("MPIJOB_HOME", settings.home)
    monkeypatch.setenv("MPIJOB_SETTINGS", str(tmp_path / "none.toml"))
    shown = _mpijob("plan", "x", "--workers", "2", "--mpi", f"openmpi@{prefix}", "-o", "json", "--", "true")
    assert json.loads(shown.stdout)["launch"][0] == f"{prefix}/bin/mpirun"
    refused = _mpijob("plan", "x", "--workers", "2", "--mpi", f"openmpi@{tmp_path}", "--", "true")
    assert (refused.returncode, "is not an MPI installation" in refused.stderr) == (2, True)


def _mpijob(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mpijob", *words], capture_output=True, text=True, timeout=60
    )


def in_pod(
    tmp_path: Path, started: str, linked: str, *command: str
) -> tuple[subprocess.CompletedProcess[str], Census]:
    """Start two ranks by the wrapper of pods with one MPI, with a program of the same or of another."""
    (tmp_path / "ranks").mkdir()
    (tmp_path / "rank.sh").write_text(pod_scripts.RANK)
    (tmp_path / "world.py").write_text(WORLD)
    (tmp_path / "waits.py").write_text(f"{WORLD}\nimport time\ntime.sleep(60)\n")
    bin_of = {family: Path(library).parent.parent / "bin" for family, library in LIBRARIES.items()}
    environ = {"HOME": str(tmp_path), "MPIJOB_HOME": str(tmp_path), "MPI4PY_LIBMPI": LIBRARIES[linked]}
    environ |= {"PATH": f"{bin_of[started]}:{os.environ['PATH']}", "MPIJOB_SLOTS": "2"}
    environ |= dict.fromkeys(("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1")
    environ |= dict.fromkeys(("PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"), "1")
    open_mpi = started == "openmpi"
    launcher = str(bin_of[started] / ("mpirun" if open_mpi else "mpiexec"))
    options = [word for name in environ for word in ("-x", name)] if open_mpi else []
    options += ["--tag-output"] if open_mpi else ["-prepend-pattern", "[rank %r] "]
    line = [launcher, *options, "-n", "2", "sh", "rank.sh", *command]
    done = subprocess.run(line, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    return done, launcher_census.read(done.stdout, Family(started), Layout({}, planned=2))


@pytest.mark.parametrize(("started", "linked"), [("mpich", "openmpi"), ("openmpi", "mpich")])
def test_the_wrapper_of_pods_lets_no_program_of_another_mpi_run(
    tmp_path: Path, started: str, linked: str
) -> None:
    done, _ = in_pod(tmp_path, started, linked, sys.executable, "world.py")
    assert done.returncode != 0
    assert "world of" not in done.stdout
    assert "MPI_Init" in done.stderr


CUT = "exec env -i HOME=$HOME OPAL_PREFIX=${{MPI4PY_LIBMPI%/lib/*}} MPI4PY_LIBMPI=$MPI4PY_LIBMPI {python} waits.py"


@pytest.mark.parametrize(
    ("started", "linked", "command", "wrong"),
    [
        ("mpich", "mpich", CUT, "without the variables of its launcher (PMI_RANK"),
        ("openmpi", "openmpi", CUT, "without the variables of its launcher (PMIX_NAMESPACE"),
        ("mpich", "openmpi", CUT, "world of one; set mpi: openmpi"),
        ("openmpi", "mpich", CUT, "world of one; set mpi: mpich"),
        ("mpich", "mpich", "mpiexec -n 2 sleep 60", "starts mpirun itself"),
        ("openmpi", "openmpi", "mpirun --oversubscribe -n 2 sleep 60", "starts mpirun itself"),
    ],
)
def test_the_wrapper_of_pods_ends_what_would_be_a_world_of_its_own(
    tmp_path: Path, started: str, linked: str, command: str, wrong: str
) -> None:
    done, seen = in_pod(tmp_path, started, linked, "sh", "-c", command.format(python=sys.executable))
    assert done.returncode != 0
    assert wrong in seen.wrong_world
    assert re.match(r"rank [01] ", seen.wrong_world)


@pytest.mark.parametrize("family", ["mpich", "openmpi"])
def test_the_wrapper_of_pods_lets_a_program_run_that_is_of_its_world(tmp_path: Path, family: str) -> None:
    late = f"sleep 0.6; {sys.executable} world.py && sleep 0.5"  # the watch has looked before, and looks after it
    done, seen = in_pod(tmp_path, family, family, "sh", "-c", late)
    assert (done.returncode, done.stdout.count("world of 2"), seen.wrong_world) == (0, 2, "")
