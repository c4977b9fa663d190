"""Training metrics: what lines tell about loss and steps becomes curves, progress and an end to wait for."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.api_support import served
from tests.unit.cli_support import Cli

import mpijob
from mpijob import Client, MPIJob
from mpijob.backends.memory import MemoryBackend, Outcome, Script
from mpijob.errors import InvalidJob
from mpijob.formats.status import trainer_progress
from mpijob.model import LogLine, Role
from mpijob.model.status.metric_line import WORD
from mpijob.observation.metrics import training


def a_line(text: str, second: float = 0.0, rank: int = 0) -> LogLine:
    return LogLine(int(second * 1e9), text.encode(), Role.RANK, rank=rank)


def told(*texts: str, patterns: tuple[str, ...] = ()) -> list[dict[str, float]]:
    return [dict(one.values) for one in training.points(map(a_line, texts), training.reader(patterns))]


@pytest.mark.req("C-custom", "PMV-014")
def test_one_call_tells_a_metric_and_needs_nobody_to_listen(capfd: pytest.CaptureFixture[str]) -> None:
    mpijob.report(step=10, steps=100, loss=0.5, lr=1e-4)
    said = capfd.readouterr().out
    assert told(said) == [{"step": 10.0, "steps": 100.0, "loss": 0.5, "lr": 1e-4}]
    with pytest.raises(TypeError, match="loss is a str"):
        mpijob.report(loss="high")  # type: ignore[arg-type]  # what is tested
    code = "import os, mpijob; os.close(1); mpijob.report(step=1, loss=2); os._exit(0)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.thorough
def test_numbers_of_other_libraries_are_numbers() -> None:
    import numpy

    code = "import numpy, mpijob; mpijob.report(step=numpy.int64(3), loss=numpy.float32('nan'))"
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    (found,) = told(said)
    assert (found["step"], math.isnan(found["loss"])) == (3.0, True)
    assert numpy.__version__


@pytest.mark.req("PMV-014")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Epoch 3/10 - loss: 0.231 - val_loss: 0.4 - accuracy: 0.91", {"epoch": 3, "epochs": 10, "loss": 0.231,
         "val_loss": 0.4, "accuracy": 0.91}),
        ("{'loss': 2.31, 'grad_norm': 1.5, 'epoch': 0.04}", {"epoch": 0, "loss": 2.31, "grad_norm": 1.5}),
        ("step 1200 of 5000, loss=1.2e-3, lr 3e-4", {"step": 1200, "steps": 5000, "loss": 0.0012, "lr": 3e-4}),
        ("Iter #20: 152.3 samples/sec", {}),
        ("iteration 20: samples/sec 152.3", {"step": 20, "samples_sec": 152.3}),
        ("train loss nan at step 7", {"step": 7, "train_loss": math.nan}),
        ("no metric in here, only 42", {}),
        ("lossless compression 3", {}),
        ("loss of connection to 10.0.0.1", {}),
        ('mpijob-report {"loss": true, "x": "y"}', {}),
        ("mpijob-report not json", {}),
        ("mpijob-report [1, 2]", {}),
    ],
)  # fmt: skip
def test_the_usual_words_are_found_in_lines(text: str, found: dict[str, float]) -> None:
    (values,) = told(text) or [{}]
    assert values == pytest.approx(found, nan_ok=True)


def test_patterns_of_ones_own_name_the_metrics() -> None:
    pattern = r"it=(?P<step>\d+) energy (?P<energy>[-\d.]+)"
    assert told("it=5 energy -3.25", "loss=1", patterns=(pattern,)) == [{"step": 5.0, "energy": -3.25}]
    with pytest.raises(InvalidJob, match="has no named group for a metric"):
        told("x", patterns=(r"loss (\d+)",))
    with pytest.raises(InvalidJob, match="not a regular expression"):
        told("x", patterns=(r"(?P<a>[",))


@given(st.binary(max_size=200))
def test_no_line_is_too_strange(text: bytes) -> None:
    for start in (b"", b"mpijob-report ", b"loss=", b"step "):
        line = LogLine(0, start + text, Role.RANK, rank=0)
        found = training.points([line], training.reader())
        assert all(isinstance(value, float) for one in found for value in one.values.values())


@pytest.mark.req("PMV-014")
def test_progress_and_the_end_follow_from_steps() -> None:
    lines = [a_line(f"step {step}/100 loss={1 / step}", second=10.0 * step) for step in range(1, 51)]
    points = training.points(lines, training.reader())
    found = training.curves(points, now=500.0)
    assert (found.step, found.steps, found.progress) == (50.0, 100.0, 0.5)
    assert found.eta == pytest.approx(500.0)
    assert training.curves(points, now=560.0).eta == pytest.approx(440.0)
    assert training.curves(points).eta is None  # it has ended
    (loss,) = found.series
    assert (loss.name, loss.count, loss.last, loss.most) == ("loss", 50, 0.02, 1.0)


def test_of_several_ranks_the_lowest_counts_unless_one_is_named() -> None:
    lines = [a_line(f"loss={rank}.5", second=rank, rank=rank) for rank in (2, 1)]
    points = training.points(lines, training.reader())
    assert [(one.rank, one.last) for one in training.curves(points).series] == [(1, 1.5)]
    assert [(one.rank, one.last) for one in training.curves(points, rank=2).series] == [(2, 2.5)]


def test_curves_are_bounded_and_keep_their_last_point() -> None:
    points = [training.Point(float(at), 0, {"step": float(at), "loss": float(at)}) for at in range(10_000)]
    (loss,) = training.curves(points, most=100).series
    assert len(loss.values) <= 101
    assert (loss.values[-1], loss.count) == (9999.0, 10_000)
    many = [training.Point(0.0, 0, {f"m{at}": 1.0}) for at in range(500)]
    assert len(training.curves(many).series) == training.MOST_SERIES


LINES = tuple(f"step {step}/3 loss={4 - step}" for step in (1, 2, 3))


@pytest.mark.req("PMV-014", "C-custom")
def test_the_faces_show_the_same_curves() -> None:
    backend = MemoryBackend(script=Script(default=Outcome(lines=LINES)))
    cli = Cli(backend)
    cli("run", "train", "--workers", "2", "--", "true")
    told = cli.ok("curves", "train")
    assert "step 3 of 3, 100% done" in told
    assert told.splitlines()[-1].split()[:5] == ["loss", "1", "1", "3", "3"]
    assert "Training:" in cli.ok("describe", "train")
    found = cli.json("curves", "train")
    assert cli.ok("curves", "train", "-o", "csv").splitlines()[0] == "metric,time,step,value"
    with Client(backend) as client:
        assert json.loads(json.dumps(found))["progress"] == client.curves("train").progress
        client.run(MPIJob(name="other", workers=1, command=("true",)))
    with served(backend) as one:
        browser = one.sign_in()
        answer = browser.get("/trainjobs/default/train/curves")
        assert answer.json()["series"] == found["series"]
        assert [item["ref"]["name"] for item in browser.get("/accounts").json()["items"]] == [
            "other",
            "train",
        ]
        assert browser.get("/accounts/report?by=user").json()["total"]["jobs"] == 2
        assert browser.get("/accounts/report?by=nonsense").status_code == 400


def test_a_job_that_tells_nothing_says_how_to_tell(capsys: pytest.CaptureFixture[str]) -> None:
    cli = Cli(MemoryBackend(script=Script(default=Outcome(lines=("nothing",)))))
    cli("run", "quiet", "--workers", "1", "--", "true")
    result = cli("curves", "quiet")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "mpijob.report(step=…, loss=…)" in result.stderr


@pytest.mark.req("UC3-AF1")
def test_how_far_a_training_came_is_told_by_its_last_lines() -> None:
    assert training.progress_text(
        [b"2026-11-15T10:00:00Z [1,0]<stdout>:epoch 44/100", b"epoch 45/100 loss=0.2"]
    ) == ("epoch 45/100")
    assert training.progress_text([b"step 900 of 1000, loss 0.1"]) == "step 900/1000"
    assert training.progress_text([WORD.encode() + b' {"epoch": 3, "loss": 1}']) == ("epoch 3")
    assert training.progress_text([b"nothing of the kind", b""]) == ""


@pytest.mark.req("PMV-014")
@pytest.mark.parametrize("place", ["status", "annotation"])
def test_what_trainer_knows_completes_what_lines_tell(place: str) -> None:
    status = {
        "progressPercentage": 45, "estimatedRemainingSeconds": 795, "lastUpdatedTime": "2026-11-15T00:00:30Z",
        "metrics": [{"name": name, "value": value} for name, value in (("loss", "0.25"), ("odd", "x"), ("bad", "nan"))],
    }  # fmt: skip
    job: dict[str, Any] = {"metadata": {}, "status": {"trainerStatus": status}}
    if place == "annotation":
        job = {"metadata": {"annotations": {trainer_progress.ANNOTATION: json.dumps(status)}}}
    told_by_trainer = trainer_progress.read(job)
    assert told_by_trainer is not None
    found = training.complete(training.Curves(), told_by_trainer)
    assert (found.progress, found.eta, found.updated) == (0.45, 795.0, 1794700830.0)
    assert [(one.name, one.last) for one in found.series] == [("bad", None), ("loss", 0.25)]
    own = training.curves(training.points([a_line("step 3/4 loss=2", 5.0)], training.reader()))
    both = training.complete(own, told_by_trainer)
    assert both.progress == 0.75
    assert [(one.name, one.last) for one in both.series] == [("loss", 2.0), ("bad", None)]


_WORDS = st.sampled_from(["progressPercentage", "metrics", "name", "value", "lastUpdatedTime"])
_PLAIN = st.none() | st.booleans() | st.integers() | st.text(max_size=5)


@pytest.mark.thorough
@given(st.recursive(_PLAIN, lambda one: st.lists(one, max_size=3) | st.dictionaries(_WORDS, one)))
def test_no_status_of_a_cluster_is_too_strange(status: Any) -> None:
    found = trainer_progress.read({"metadata": {}, "status": {"trainerStatus": status}})
    assert found is None or found.progress is None or 0 <= found.progress <= 1
