"""Trainings in the tools that teams have: a real MLflow server and a real TensorBoard show what real ranks told."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.docs.readers import ROOT
from tests.servers import free_port
from tests.visitor import opened

from mpijob import Client
from mpijob.client.integrations import mlflow
from mpijob.model import Resources
from mpijob.settings import Settings

from .support import PATIENCE, a_job, eventually, running, succeeded

pytestmark = pytest.mark.engine
MLFLOW = ROOT / ".make" / "mlflow" / "bin"
TRAINS = """
import os, sys, time
rank = int(os.environ["MPIJOB_RANK"])
for step in range(1, 41):
    loss = "NaN" if step == 3 else repr(1 / step + rank)
    print('mpijob-report {"step": %d, "steps": 40, "loss": %s}' % (step, loss), flush=True)
    time.sleep(0.02)
while len(sys.argv) > 1 and not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
print('mpijob-report {"step": 41, "loss": 0.5}', flush=True)
"""
OWN_CLIENT = """
import os, mlflow
with mlflow.start_run(run_name="rank-" + os.environ["MPIJOB_RANK"]):
    mlflow.log_metric("loss", 1.5, step=int(os.environ["MPIJOB_RANK"]))
"""
OWN_EVENTS = """
import os
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
rank = int(os.environ["MPIJOB_RANK"])
writer = EventFileWriter("logs/rank-%d" % rank)
for step in range(5):
    value = Summary.Value(tag="accuracy", simple_value=rank + step / 10)
    writer.add_event(Event(wall_time=1e9 + step, step=step, summary=Summary(value=[value])))
writer.close()
"""
WITH_TENSORBOARDX = """
import os, tensorboardX, time
rank = int(os.environ["MPIJOB_RANK"])
with tensorboardX.SummaryWriter("logs", filename_suffix=f".{rank}") as writer:
    for step in range(5):
        writer.add_scalar("loss", rank + step / 10, step)
        open(f"wrote-{rank}", "w").close()
        while not os.path.exists(f"wrote-{1 - rank}"):
            time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of an MLflow server with a database of its own."""
    assert (MLFLOW / "mlflow").exists(), "MLflow is not installed; `make test` does it"
    place, port = tmp_path_factory.mktemp("mlflow"), free_port()
    argv = [str(MLFLOW / "mlflow"), "server", "--backend-store-uri", "sqlite:///runs.db", "--port", str(port),
            "--workers", "1"]  # fmt: skip
    environ = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(
            argv, cwd=place, stdout=log, stderr=log, env=environ, start_new_session=True
        )
    try:
        address = f"http://127.0.0.1:{port}"
        eventually(lambda: fetched(f"{address}/health"), "MLflow answers", 3 * PATIENCE)  # it loads much
        yield address
    finally:
        os.killpg(process.pid, 15)
        process.wait(20)


def fetched(address: str) -> bytes:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bytes(answer.read())
    except OSError:
        return b""


def settings_file(settings: Settings, place: Path, more: str = "") -> dict[str, str]:
    """Return the environment of a user with these settings."""
    path = place / "settings.toml"
    mpi = "\n".join(f'{family} = "{where}"' for family, where in settings.mpi_directories.items())
    path.write_text(f'home = "{settings.home}"\nengine = "local"\n{more}\n[mpi_directories]\n{mpi}\n')
    return {**os.environ, "MPIJOB_SETTINGS": str(path)}


def history(server: str, run: str, metric: str) -> list[dict[str, Any]]:
    query = f"metrics/get-history?run_id={run}&metric_key={quote(metric, safe='')}&max_results=1000"
    found = json.loads(fetched(f"{server}/api/2.0/mlflow/{query}"))
    return sorted(found.get("metrics", []), key=lambda one: int(one.get("step", 0)))


@pytest.mark.req("C-mlflow", "C-custom", "PMV-014")
def test_what_ranks_report_is_a_run_of_mlflow_while_they_train(
    client: Client, settings: Settings, server: str, tmp_path: Path
) -> None:
    environ = settings_file(settings, tmp_path, f'mlflow = "{server}"')
    go = tmp_path / "go"
    job = running(
        client, a_job("train", command=(sys.executable, "-c", TRAINS, str(go)), labels={"team": "cv"})
    )
    argv = [sys.executable, "-m", "mpijob", "mlflow", "train", "--follow"]
    with started(argv, environ, tmp_path) as sending:
        there = mlflow.Server(server)
        begun = eventually(lambda: there.run_of(job.state()), "the run is there", PATIENCE) or {}
        run = begun["run_id"]
        eventually(lambda: len(history(server, run, "loss")) == 40, "it is told while it runs", PATIENCE)
        assert (there.run_of(job.state()) or {})["status"] == "RUNNING"
        go.touch()
        link = sending.communicate(timeout=PATIENCE)[0].strip()
    assert link.endswith(f"/runs/{run}")
    known = there.run_of(job.state())
    assert known is not None
    assert (known["status"], known["run_name"], there.link(known)) == ("FINISHED", "train", link)
    told = history(server, run, "loss")
    assert [(int(one["step"]), one["value"]) for one in told if int(one["step"]) != 3] == [
        *((step, 1 / step) for step in range(1, 41) if step != 3),
        (41, 0.5),
    ]
    assert math.isnan(float(told[2]["value"]))
    assert [one["value"] for one in history(server, run, "loss/rank-1")][:2] == [2.0, 1.5]
    again = subprocess.run(argv, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert (again.stdout.strip(), len(history(server, run, "loss"))) == (link, 41)
    described = subprocess.run(
        [sys.executable, "-m", "mpijob", "describe", "train"], env=environ, capture_output=True, text=True
    )
    assert f"mlflow: {link}" in described.stdout
    with opened(environ, tmp_path) as page:
        page.sign_in()
        assert page.json("GET", "/trainjobs/default/train/links")["items"] == {"mlflow": link}


@pytest.mark.req("C-mlflow")
def test_ranks_may_use_mlflows_own_client(client: Client, server: str) -> None:
    experiment = mlflow.Server(server)._experiment("by-hand", make=True)
    env = {"MLFLOW_TRACKING_URI": server, "MLFLOW_EXPERIMENT_ID": experiment}
    larger = Resources(cpu="1", memory="1Gi")
    succeeded(
        client, a_job("own", command=(str(MLFLOW / "python"), "-c", OWN_CLIENT), env=env, resources=larger)
    )
    body = json.dumps({"experiment_ids": [experiment]}).encode()
    asked = urllib.request.Request(
        f"{server}/api/2.0/mlflow/runs/search", body, {"content-type": "application/json"}
    )
    with urllib.request.urlopen(asked) as answer:
        runs = json.load(answer)["runs"]
    assert sorted(one["info"]["run_name"] for one in runs) == ["rank-0", "rank-1"]


@contextmanager
def started(argv: list[str], environ: dict[str, str], place: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a process that ends with its test."""
    process = subprocess.Popen(argv, env=environ, cwd=place, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def board(environ: dict[str, str], place: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield a TensorBoard and its address."""
    argv = [sys.executable, "-m", "mpijob", "tensorboard", *words, "--port", "0"]
    with started(argv, environ, place) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()


def scalars(address: str, run: str, tag: str) -> list[list[float]]:
    query = f"data/plugin/scalars/scalars?run={run}&tag={tag}"
    try:
        with urllib.request.urlopen(f"{address}{query}", timeout=5) as answer:
            found: list[list[float]] = json.load(answer)
            return found
    except urllib.error.HTTPError:
        return []  # it has not read that far


@pytest.mark.req("C-tb", "PMV-014")
def test_tensorboard_shows_what_ranks_report_while_they_train(
    client: Client, settings: Settings, tmp_path: Path
) -> None:
    environ, go = settings_file(settings, tmp_path), tmp_path / "go"
    job = running(client, a_job("train", command=(sys.executable, "-c", TRAINS, str(go))))
    with board(environ, tmp_path, "train") as (shown, address):
        eventually(lambda: len(scalars(address, "rank-1", "loss")) == 40, "rank 1's curve is shown", PATIENCE)
        assert client.links("train") == {"tensorboard": address}
        go.touch()
        job.wait_for_completion(PATIENCE)
        eventually(lambda: len(scalars(address, "rank-0", "loss")) == 41, "the rest follows", PATIENCE)
        times, steps, values = zip(*scalars(address, "rank-0", "loss"), strict=True)
        assert [*steps] == [*range(1, 42)]
        assert values[:2] == pytest.approx((1.0, 0.5))
        assert time.time() - 600 < times[0] <= times[-1] < time.time() + 1
        shown.terminate()
        assert shown.wait(20) == 0
    assert client.links("train") == {}


@pytest.mark.req("C-tb")
def test_tensorboard_reads_the_event_files_that_ranks_wrote(
    client: Client, settings: Settings, tmp_path: Path
) -> None:
    succeeded(client, a_job("wrote", command=(sys.executable, "-c", OWN_EVENTS)))
    with board(settings_file(settings, tmp_path), tmp_path, "wrote") as (shown, address):
        found = eventually(
            lambda: scalars(address, "logs%2Frank-1", "accuracy"), "its own curve is shown", PATIENCE
        )
        assert [value for _, _, value in found] == pytest.approx([1.0, 1.1, 1.2, 1.3, 1.4])
        shown.terminate()
        assert shown.wait(20) == 0


@pytest.mark.req("C-tb", "PMV-014")
def test_event_files_of_ranks_are_read_without_tensorboard(client: Client) -> None:
    succeeded(client, a_job("wrote", command=(sys.executable, "-c", OWN_EVENTS)))
    found = client.scalars("wrote")
    assert [(one.run, one.tag) for one in found.series] == [
        (f"logs/rank-{rank}", "accuracy") for rank in range(2)
    ]
    assert found.series[1].values == pytest.approx([1.0, 1.1, 1.2, 1.3, 1.4])
    assert found.series[1].times == (1e9, 1e9 + 1, 1e9 + 2, 1e9 + 3, 1e9 + 4)
    assert found.notes == ()


@pytest.mark.req("C-tb", "PMV-014")
def test_ranks_that_write_into_one_directory_are_each_shown(client: Client) -> None:
    succeeded(client, a_job("shared", command=(sys.executable, "-c", WITH_TENSORBOARDX)))
    found = client.scalars("shared")
    values = sorted(one.values for one in found.series)
    assert values == [pytest.approx([rank + step / 10 for step in range(5)]) for rank in range(2)]
    assert {one.run[-3:] for one in found.series} == {".0)", ".1)"}
    assert found.notes == ()
