"""Horovod: its guide word for word, its examples on four workers, its own launcher, and workers that could come and go.

In an environment of its own (`.make/horovod`), compiled with the MPI that starts the ranks.
"""

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
from tests import pages
from tests.docs.blocks import Reader
from tests.docs.readers import an_environment

pytestmark = pytest.mark.xdist_group("frameworks")  # each takes all the cores that there are
ROOT = Path(__file__).resolve().parents[3]
EXAMPLES, WORKLOADS = ROOT / "examples", ROOT / "examples" / "workloads"
PROGRAMS = ROOT / ".make" / "horovod" / "bin"
EVALUATE = """
import runpy, sys, torch
from torch import nn
train = runpy.run_path(sys.argv[1], run_name="example")
points, sides = train["data"]()
model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 2))
model.load_state_dict(torch.load(sys.argv[2]))
print((model(points).argmax(dim=1) == sides).float().mean().item())
"""


def environment(folder: Path) -> dict[str, str]:
    environ = an_environment(folder)
    environ["PATH"] = f"{PROGRAMS}:{environ['PATH']}"
    return environ


def mpijob(folder: Path, environ: dict[str, str], *argv: str) -> str:
    """Return what a command says on stdout; it must end with 0."""
    done = subprocess.run(
        (str(PROGRAMS / "mpijob"), *argv),
        cwd=folder, env=environ, capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def result(said: str) -> dict[str, str]:
    (line,) = re.findall(r"RESULT (.*)", said)
    return dict(re.findall(r"(\w+)=(\S+)", line))


@pytest.mark.req("FR-031", "C-docs", "AC6")
def test_the_guide_leads_from_nothing_to_a_model_trained_on_four_workers(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    python = str(PROGRAMS / "python")
    reader = Reader(tmp_path / "work", environment(tmp_path), timeout_seconds=600, python=python)
    wrong = reader.follow(pages.read("horovod"))
    assert wrong == [], "\n".join(wrong)
    assert (tmp_path / "work" / "results" / "model.pt").stat().st_size > 1000


@pytest.mark.req("FR-031", "D-workloads")
def test_a_pytorch_model_trains_on_four_workers_and_is_what_the_job_leaves(tmp_path: Path) -> None:
    environ = environment(tmp_path)
    said = result(mpijob(tmp_path, environ, "run", "-f", str(EXAMPLES / "horovod-pytorch" / "job.yaml")))
    assert (said["ranks"], said["on"]) == ("4", "cpu")
    state = json.loads(mpijob(tmp_path, environ, "get", "horovod-pytorch", "-o", "json"))
    assert len(state["workers"]) == 4
    assert {rank["worker"] for rank in state["ranks"]} == {0, 1, 2, 3}
    mpijob(tmp_path, environ, "artifacts", "fetch", "horovod-pytorch", "model.pt", "--to", "left")
    argv = [
        str(PROGRAMS / "python"), "-c", EVALUATE, str(EXAMPLES / "horovod-pytorch" / "train.py"), "left/model.pt",
    ]  # fmt: skip
    alone = float(subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True).stdout)
    assert alone == pytest.approx(float(said["accuracy"]), abs=1e-3)
    assert alone > 0.9


@pytest.mark.req("D-workloads", "E-bench")
def test_the_horovod_mnist_workload_learns_on_four_workers_and_its_checker_agrees(tmp_path: Path) -> None:
    small = ("--cpu", "500m", "--memory", "1500Mi", "--gpu", "0", "--mpi", "mpich")
    log = mpijob(
        tmp_path, environment(tmp_path), "run", "-f", str(WORKLOADS / "horovod-mnist.yaml"), *small,
        "--env", "OMP_NUM_THREADS=1",
    )  # fmt: skip
    argv = [sys.executable, str(WORKLOADS / "check.py"), "horovod-mnist", "--ranks", "4"]
    done = subprocess.run(argv, input=log, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.req("UC2-cmd")
def test_horovodrun_is_run_as_it_is_and_finds_the_jobs_workers(tmp_path: Path) -> None:
    environ = environment(tmp_path)
    job = (
        "byrun", "--workers", "4", "--code", str(EXAMPLES / "horovod-pytorch"), "--cpu", "500m", "--memory", "1Gi",
        "--env", "OMP_NUM_THREADS=1",
    )  # fmt: skip
    command = ("--", "horovodrun", "--gloo", "-np", "4", "python", "train.py")
    plan = json.loads(mpijob(tmp_path, environ, "plan", *job, "-o", "json", *command))
    assert (plan["own_launcher"], plan["launch"][0]) == ("horovodrun", "horovodrun")
    assert result(mpijob(tmp_path, environ, "run", *job, *command))["ranks"] == "4"


@pytest.mark.req("R8")
def test_an_elastic_training_runs_between_its_bounds_on_one_machine(tmp_path: Path) -> None:
    said = mpijob(
        tmp_path, environment(tmp_path), "run", "-f", str(EXAMPLES / "horovod-elastic" / "job.yaml")
    )
    assert result(said)["ranks"] == "2"
    assert len(re.findall(r"epoch \d/6 .* ranks=2", said)) == 6


@pytest.mark.req("C-docs", "AC6")
def test_the_horovod_notebook_works_from_the_first_cell_to_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = nbformat.read(EXAMPLES / "notebook" / "horovod.ipynb", as_version=4)  # type: ignore[no-untyped-call]  # untyped
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    place = tmp_path / "jupyter" / "kernels" / "horovod"
    place.mkdir(parents=True)
    argv = [str(PROGRAMS / "python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (place / "kernel.json").write_text(
        json.dumps({"argv": argv, "display_name": "horovod", "language": "python"})
    )
    monkeypatch.setenv("JUPYTER_PATH", os.fspath(tmp_path / "jupyter"))
    NotebookClient(
        book, kernel_name="horovod", timeout=400, resources={"metadata": {"path": str(ROOT)}}
    ).execute()
    said = "".join(one.get("text", "") for cell in book.cells for one in cell.get("outputs", ()))
    assert "ranks=4" in said
