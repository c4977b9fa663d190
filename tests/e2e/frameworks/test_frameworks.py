"""Framework examples and tiny reference workloads, as real jobs, in an environment of their own (gigabytes)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from tests.docs.readers import an_environment

pytestmark = pytest.mark.xdist_group("frameworks")  # each takes all the cores that there are
ROOT = Path(__file__).resolve().parents[3]
EXAMPLES, WORKLOADS = ROOT / "examples", ROOT / "examples" / "workloads"
PROGRAMS = ROOT / ".make" / "frameworks" / "bin"
SMALL = ("--cpu", "1", "--memory", "3Gi", "--gpu", "0", "--mpi", "mpich", "--workers", "2", "--slots", "1")


def ran(folder: Path, *argv: str, **environ: str) -> str:
    """Return what a job says, with the frameworks' own python; it must end with 0."""
    environment = an_environment(folder) | environ
    environment["PATH"] = f"{PROGRAMS}:{environment['PATH']}"
    done = subprocess.run(
        (str(PROGRAMS / "mpijob"), "run", *argv),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def result(said: str) -> dict[str, str]:
    (line,) = re.findall(r"RESULT (.*)", said)
    return dict(re.findall(r"(\w+)=(\S+)", line))


@pytest.mark.req("C-docs")
def test_jax_trains_with_gradients_over_mpi(tmp_path: Path) -> None:
    said = result(ran(tmp_path, "-f", str(EXAMPLES / "jax" / "job.yaml")))
    assert float(said["accuracy"]) > 0.95
    assert said["ranks"] == "2"


@pytest.mark.req("C-docs")
def test_torch_ranks_end_with_the_same_weights(tmp_path: Path) -> None:
    said = result(ran(tmp_path, "-f", str(EXAMPLES / "pytorch" / "job.yaml")))
    assert float(said["accuracy"]) > 0.9
    assert (said["ranks"], said["on"]) == ("2", "cpu")


@pytest.mark.req("C-docs")
def test_deepspeed_trains_with_zero_over_our_ranks(tmp_path: Path) -> None:
    said = result(ran(tmp_path, "-f", str(EXAMPLES / "deepspeed" / "job.yaml")))
    assert float(said["last"]) < float(said["first"]) / 4
    assert (said["zero"], said["ranks"]) == ("1", "2")


@pytest.mark.req("UC2-cmd")
def test_deepspeeds_own_launcher_runs_as_documented_over_the_jobs_workers(tmp_path: Path) -> None:
    """By ssh and pdsh, which on one machine the job brings; the ranks' lines carry the worker that they ran on."""
    job, small = ("-f", str(EXAMPLES / "deepspeed" / "job.yaml")), ("--cpu", "500m")
    command = ("--", "deepspeed", "--hostfile", "/etc/mpi/hostfile", "train.py")
    log = ran(tmp_path, *job, *small, *command)
    assert (result(log)["zero"], result(log)["ranks"]) == ("1", "2")
    assert "deepspeed-worker-1: " in log
    assert float(result(log)["last"]) < float(result(log)["first"]) / 4


def checked(name: str, log: str) -> None:
    """Let the workload's own checker judge."""
    argv = [sys.executable, str(WORKLOADS / "check.py"), name, "--ranks", "2"]
    done = subprocess.run(argv, input=log, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.req("D-workloads", "E-bench")
@pytest.mark.parametrize("name", ["resnet50", "bert"])
def test_a_tiny_reference_workload_runs_and_its_checker_agrees(tmp_path: Path, name: str) -> None:
    checked(name, ran(tmp_path, "-f", str(WORKLOADS / f"{name}.yaml"), *SMALL, "--env", "TINY=1"))


@pytest.mark.req("D-workloads", "US5", "Q8")
def test_the_tiny_deepspeed_decoder_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    job = ("-f", str(WORKLOADS / "deepspeed-7b.yaml"), *SMALL, "--env", "TINY=1")
    home = {"MPIJOB_HOME": str(tmp_path / "state")}
    first = ran(tmp_path, *job, **home)
    checked("deepspeed-7b", first)
    (tmp_path / "home").rename(tmp_path / "home-of-the-first")
    again = result(ran(tmp_path, *job, **home))
    assert (result(first)["resumed"], again["resumed"]) == ("no", "yes")
    assert float(again["first"]) < float(result(first)["first"])


@pytest.mark.req("D-workloads")
def test_tensorflow_under_intel_mpi_learns_and_its_checker_agrees(tmp_path: Path) -> None:
    intel = Path(os.environ["MPIJOB_TEST_MPI"]).resolve() / "intel"
    (tmp_path / "settings.toml").write_text(f'[mpi_directories]\nintel = "{intel}"\n')
    small = [word if word != "mpich" else "intel" for word in SMALL]
    settings = {"MPIJOB_SETTINGS": str(tmp_path / "settings.toml")}
    checked(
        "intel-tensorflow", ran(tmp_path, "-f", str(WORKLOADS / "intel-tensorflow.yaml"), *small, **settings)
    )


def a_kernel(folder: Path) -> Path:
    """Return where Jupyter finds a kernel in the frameworks' environment: a job's python is that of its notebook."""
    place = folder / "jupyter" / "kernels" / "frameworks"
    place.mkdir(parents=True)
    argv = [str(PROGRAMS / "python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "frameworks", "language": "python"}
    (place / "kernel.json").write_text(json.dumps(spec))
    return folder / "jupyter"


@pytest.mark.req("C-docs")
def test_the_deepspeed_notebook_works_from_the_first_cell_to_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = nbformat.read(EXAMPLES / "notebook" / "deepspeed.ipynb", as_version=4)  # type: ignore[no-untyped-call]  # untyped
    for name, value in an_environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("JUPYTER_PATH", str(a_kernel(tmp_path)))
    NotebookClient(
        book, kernel_name="frameworks", timeout=300, resources={"metadata": {"path": str(ROOT)}}
    ).execute()
    said = "".join(one.get("text", "") for cell in book.cells for one in cell.get("outputs", ()))
    assert "RESULT first=" in said
    assert "4 points" in said
