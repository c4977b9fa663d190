"""Sending what trainings tell: a server that is away loses nothing, and what TensorBoard reads is written as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cli_support import Cli
from tests.unit.receiving import serving

from mpijob import Client, MPIJob
from mpijob.backends.memory import MemoryBackend, Outcome, Script
from mpijob.client.integrations import mlflow, tfevents
from mpijob.client.integrations.metric_sources import OfClient
from mpijob.client.integrations.tracking import MetricMirror
from mpijob.errors import BackendError, InvalidJob
from mpijob.observation.metrics import event_files
from mpijob.observation.metrics.training import Point

SAYS = 'mpijob-report {{"step": 1, "steps": 2, "loss": 0.5}}'


class Tracker:
    """As much of MLflow's answers as the mirror asks for; the twin with the real server is in tests/integration."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.status = 200
        self.tokens: list[str | None] = []

    def answer(self, path: str, body: Any) -> tuple[int, Any]:
        if self.status != 200:
            return self.status, {"message": "not now"}
        self.asked.append((path, body))
        if path.startswith("experiments/get-by-name"):
            return 404, {}
        if path == "experiments/create":
            return 200, {"experiment_id": "7"}
        if path == "runs/create":
            return 200, {"run": {"info": {"run_id": "r1", "experiment_id": "7", "status": "RUNNING"}}}
        return 200, {}

    def values(self) -> list[Any]:
        return [
            one for path, body in self.asked if path == "runs/log-batch" for one in body.get("metrics", ())
        ]


@contextmanager
def tracking(tracker: Tracker) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            tracker.tokens.append(self.headers.get("authorization"))
            status, told = tracker.answer(self.path.removeprefix("/api/2.0/mlflow/"), body)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(told).encode())

        do_GET = do_POST

        def log_message(self, *words: Any) -> None:
            pass

    with serving(Handler) as address:
        yield address


@pytest.mark.thorough
@pytest.mark.req("C-mlflow")
def test_a_server_that_is_away_loses_nothing_and_is_told_each_value_once(tmp_path: Path) -> None:
    backend, tracker = MemoryBackend(script=Script(jobs={"train": Outcome(lines=(SAYS,))})), Tracker()
    (tmp_path / "token").write_text("sesame\n")
    with Client(backend) as client, tracking(tracker) as address:
        server = mlflow.Server(address, str(tmp_path / "token"))
        mirror = MetricMirror(OfClient(client), server, clock=lambda: backend.now)
        client.run(MPIJob(name="train", workers=1, command=("true",)))
        client.run(MPIJob(name="silent", workers=1, command=("true",)))
        tracker.status = 503
        mirror.send_new()
        assert tracker.values() == []
        with pytest.raises(BackendError, match="answered 503"):
            mirror.send_job(client.state("train").ref)
        tracker.status = 200
        for _ in range(3):
            mirror.send_new()
        assert [(one["key"], one["value"], one["step"]) for one in tracker.values()] == [("loss", 0.5, 1)]
        assert [body["status"] for path, body in tracker.asked if path == "runs/update"] == ["FINISHED"]
        assert sum(path == "runs/create" for path, _ in tracker.asked) == 1, "who tells nothing has no run"
        assert set(tracker.tokens) == {"Bearer sesame"}


def test_what_is_no_server_is_told() -> None:
    with pytest.raises(InvalidJob, match="not the URL of an MLflow server"):
        mlflow.Server("file:///etc/passwd")
    with pytest.raises(BackendError, match="does not respond"):
        mlflow.Server("http://127.0.0.1:1").begin(_state())
    cli = Cli(MemoryBackend())
    assert "no MLflow server is configured" in cli("mlflow", "x").stderr


def _state() -> Any:
    with Client(MemoryBackend()) as client:
        return client.run(MPIJob(name="a", workers=1, command=("true",))).state()


def test_names_and_numbers_are_as_a_server_takes_them() -> None:
    told = [
        Point(1.5, 0, {"epoch": 2.0, "loss": float("nan"), "a$b": float("inf")}),
        Point(2.0, 3, {"x": 1.0}),
    ]
    assert [(one["key"], one["value"], one["timestamp"], one["step"]) for one in mlflow.values(told)] == [
        ("loss", "NaN", 1500, 2),
        ("a_b", "Infinity", 1500, 2),
        ("x/rank-3", 1.0, 2000, 0),
    ]


def test_the_checksum_is_castagnolis() -> None:
    assert event_files.crc32c(b"123456789") == 0xE3069283


@given(st.integers(-5, 2**40), st.floats(allow_nan=False))
def test_every_number_becomes_an_event(step: int, value: float) -> None:
    data = tfevents.event(1.0, step, {"loss": value})
    record = tfevents.record(data)
    assert record[12 : 12 + len(data)] == data
    assert len(record) == len(data) + 16
