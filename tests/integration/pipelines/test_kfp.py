"""A Kubeflow pipeline with an MPI job as a step: compiled by kfp, run by kfp's own local runner, with real jobs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.docs.readers import an_environment
from tests.integration.support import check_nothing_runs, eventually

from mpijob import MPIJob
from mpijob.errors import InvalidJob
from mpijob.kfp import component, job_text
from mpijob.model import Code

ROOT = Path(__file__).resolve().parents[3]
TRAIN = """
import os, time
if os.environ["MPIJOB_RANK"] == "0":
    open("model.txt", "w").write("weights " + os.environ["LR"])
    print("step=1 loss=0.25", flush=True)
time.sleep(float(os.environ.get("SECONDS_TO_RUN", "0")))
assert os.environ["LR"] != "9", "the learning rate is too large"
"""
PIPELINE = """
import sys
from kfp import dsl, local
from mpijob import MPIJob
from mpijob.kfp import component, job_text

run_job = component(image="python:3.11", packages=())

@dsl.component(base_image="python:3.11", install_kfp_package=False)
def evaluate(files: dsl.Input[dsl.Artifact], name: str) -> str:
    import pathlib
    return name + " left " + (pathlib.Path(files.path) / "model.txt").read_text()

job = MPIJob(name="train", workers=2, command=["python", "train.py"], env={"LR": "0.1"})

@dsl.pipeline(name="training")
def training(lr: str) -> str:
    train = run_job(job=job_text(job, "code"), changes={"env.LR": lr}, run=dsl.PIPELINE_JOB_ID_PLACEHOLDER)
    return evaluate(files=train.outputs["files"], name=train.outputs["name"]).output

if __name__ == "__main__":
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root="root", raise_on_error=False)
    done = training(lr=sys.argv[1])
    print("OUTPUT", done.outputs)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    work = tmp_path / "work"
    (work / "code").mkdir(parents=True)
    (work / "code" / "train.py").write_text(TRAIN)
    (work / "pipeline.py").write_text(PIPELINE)
    yield work
    check_nothing_runs(tmp_path / "home" / ".local" / "state" / "mpijob" / "jobs")


def run(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=an_environment(folder.parent),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.engine
@pytest.mark.req("Q15", "PMV-004")
def test_a_pipeline_runs_a_job_waits_for_it_and_hands_on_what_it_left(folder: Path) -> None:
    said = run(folder, "pipeline.py", "0.5")
    assert "[Rank-0] step=1 loss=0.25" in said  # its output is the step's
    assert "left weights 0.5" in said.rpartition("OUTPUT")[2]  # what it left is the next step's input
    (logs,) = folder.glob("root/*/mpijob/logs")
    assert "[Rank-0] step=1 loss=0.25" in logs.read_text()
    told = json.loads(next(folder.glob("root/*/mpijob/executor_output.json")).read_text())
    metrics = told["artifacts"]["metrics"]["artifacts"][0]["metadata"]
    assert (metrics["loss"], metrics["ranks"]) == (0.25, 2)
    assert told["parameterValues"]["phase"] == "Succeeded"


@pytest.mark.engine
@pytest.mark.req("Q15")
def test_a_job_that_fails_fails_the_step_with_its_cause_and_the_next_step_is_not_run(folder: Path) -> None:
    said = run(folder, "pipeline.py", "9")
    assert "the learning rate is too large" in said
    assert "cause: " in said
    assert "left weights" not in said
    assert "mpijob' finished with status FAILURE" in _plain(said)


def _plain(text: str) -> str:
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.req("Q15")
def test_a_pipeline_compiles_with_the_files_of_the_job_in_it(tmp_path: Path) -> None:
    from kfp import compiler, dsl

    (tmp_path / "train.py").write_text(TRAIN)
    run_job, job = (
        component(image="my/image:1"),
        MPIJob(name="train", workers=2, command=("python", "train.py")),
    )

    @dsl.pipeline(name="training")
    def training():  # type: ignore[no-untyped-def]  # it would take the word None for a type of artifact
        run_job(job=job_text(job, tmp_path))

    compiler.Compiler().compile(training, str(tmp_path / "training.yaml"))
    compiled: dict[str, Any] = yaml.safe_load((tmp_path / "training.yaml").read_text())
    (executor,) = compiled["deploymentSpec"]["executors"].values()
    assert executor["container"]["image"] == "my/image:1"
    assert "mpijob[kubernetes]" in " ".join(executor["container"]["command"])
    given = compiled["root"]["dag"]["tasks"]["mpijob"]["inputs"]["parameters"]["job"]
    assert "the learning rate is too large" in given["runtimeValue"]["constant"]


@pytest.mark.engine
@pytest.mark.req("Q15")
def test_a_step_that_is_told_to_end_cancels_its_job(tmp_path: Path) -> None:
    environ = an_environment(tmp_path)
    job = MPIJob(name="long", workers=2, command=("sh", "-c", "echo begun; sleep 300"), grace_seconds=1.0)
    call = "from mpijob.kfp import step; import sys; step.run(sys.argv[1], {}, 'run-1', 0.0, 'logs', 'files')"
    argv = [sys.executable, "-c", call, job_text(job, tmp_path)]
    with subprocess.Popen(argv, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, text=True) as step:
        assert step.stdout is not None
        eventually(lambda: "begun" in next(step.stdout or iter(())), "the job runs", 60)
        step.send_signal(signal.SIGTERM)
        said = step.stdout.read()
    assert "cancelling job" in said
    listed = subprocess.run(
        [sys.executable, "-m", "mpijob", "list", "-o", "json"], env=environ, capture_output=True, timeout=60
    )
    (state,) = json.loads(listed.stdout)["items"]
    assert state["phase"] == "Cancelled"
    assert state["labels"]["mpijob/pipeline-run"] == "run-1"


def test_what_is_no_text_is_refused_before_the_pipeline_is_compiled(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidJob, match="is a binary file"):
        job_text(MPIJob(name="a", command=("true",), code=Code(path=str(tmp_path))))
