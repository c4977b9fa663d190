"""Event files of TensorBoard: what real writers write is read, what is damaged is named, and nothing is unbounded."""

from __future__ import annotations

import io
import math
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpijob.client.integrations import tfevents
from mpijob.observation.metrics import event_files
from mpijob.observation.metrics.event_files import Budget, EventFile, ScalarSeries

FIXTURES = Path(__file__).parents[2] / "fixtures" / "event_files"
pytestmark = pytest.mark.req("C-tb", "PMV-014")


def read(data: bytes, budget: Budget | None = None) -> EventFile:
    return event_files.read(io.BytesIO(data), len(data), budget)


def written(tag: str, values: dict[int, float], time: float = 1e9) -> bytes:
    return b"".join(
        tfevents.record(tfevents.event(time + step, step, {tag: value})) for step, value in values.items()
    )


def series(data: bytes, budget: Budget | None = None) -> list[ScalarSeries]:
    return event_files.merged([(".", "w", read(data, budget))], budget)


def fixture(name: str) -> EventFile:
    (path,) = (FIXTURES / name).glob("events*")
    return read(path.read_bytes())


def test_scalars_of_tensorflow_are_tensors() -> None:
    found = fixture("tensorflow")
    assert {*found.curves} == {"loss", "epoch/accuracy"}
    (accuracy, loss) = event_files.merged([("logs", "w", found)])
    assert [value for value in loss.values if value is not None][:3] == pytest.approx([2, 1, 2 / 3])
    assert (loss.run, loss.tag, loss.count) == ("logs", "loss", 20)
    assert loss.last == pytest.approx(0.1)
    assert accuracy.steps == tuple(range(20))
    assert accuracy.values == pytest.approx([1 - 1 / (step + 1) for step in range(20)])
    assert found.notes == []


def test_scalars_of_tensorboardx_are_simple_values_and_a_loss_may_be_no_number() -> None:
    found = fixture("tensorboardx")
    assert {*found.curves} == {"train/loss", "train/lr"}
    (loss, rate) = event_files.merged([("logs", "w", found)])
    assert (loss.count, loss.last, loss.most) == (21, None, 2.0)
    assert loss.values[-2] == pytest.approx(0.1)
    assert loss.values[-1] is None
    assert rate.values == pytest.approx([1e-3] * 20)
    assert found.notes == []


def test_a_file_that_is_being_written_is_read_as_far_as_it_is_whole() -> None:
    data = written("loss", {0: 3.0, 1: 2.0, 2: 1.0})
    lengths = {
        len(read(data[:end]).curves) and read(data[:end]).curves["loss"].count for end in range(len(data))
    }
    assert lengths == {0, 1, 2}
    assert all(read(data[:end]).notes == [] for end in range(len(data)))


def test_a_damaged_record_is_named_and_those_after_it_are_read() -> None:
    record = len(written("loss", {0: 3.0}))
    data = bytearray(written("loss", {0: 3.0, 1: 2.0, 2: 1.0}))
    data[record + 20] ^= 1  # in the data of the second record
    found = read(bytes(data))
    assert [step for _, step, _ in found.curves["loss"].points()] == [0, 2]
    assert found.notes == [
        f"wrong checksum or contents at byte {record + 12}",
        "1 damaged record was skipped",
    ]


def test_nothing_is_read_after_a_length_that_is_damaged() -> None:
    record = len(written("loss", {0: 3.0}))
    data = bytearray(written("loss", {0: 3.0, 1: 2.0}))
    data[record + 6] ^= 1
    found = read(bytes(data))
    assert found.curves["loss"].count == 1
    assert found.notes == [f"wrong checksum at byte {record}; the rest of the file is not read"]


@pytest.mark.security
def test_a_length_that_is_larger_than_the_file_is_not_believed() -> None:
    length = struct.pack("<Q", 1 << 62)
    data = length + struct.pack("<I", event_files.masked_checksum(length)) + b"x" * 100
    assert read(data).curves == {}


@pytest.mark.security
def test_records_without_scalars_are_skipped_whatever_their_size() -> None:
    image = tfevents.record(b"\x2a" + b"\xff" * (1 << 20))
    found = read(image + written("loss", {1: 2.0}))
    assert [*found.curves] == ["loss"]
    assert found.notes == []


@pytest.mark.security
def test_tags_points_and_bytes_have_a_bound() -> None:
    many = b"".join(written(f"tag-{at}", {0: 1.0}) for at in range(20))
    found = read(many, Budget(series=5))
    assert len(found.curves) == 5
    assert found.notes == ["only the first 5 tags are shown"]
    long = written("loss", {step: float(step) for step in range(5000)})
    (loss,) = series(long, Budget(points=50))
    assert len(loss.values) <= 50
    assert (loss.count, loss.steps[0], loss.last, loss.least, loss.most) == (5000, 0, 4999.0, 0.0, 4999.0)
    part = read(long, Budget(bytes=len(long) // 4))
    assert 800 < part.curves["loss"].count < 1700
    assert part.notes == ["the file has 0 MiB; about one of 4 values is shown"]
    assert read(long, Budget(records=7)).notes == ["only the first 7 records are read"]
    (named,) = series(written("x" * 5000 + "\x1b[2J", {0: 1.0}))
    assert len(named.tag) == event_files.LONGEST_TAG


@pytest.mark.security
def test_a_tag_has_no_control_characters() -> None:
    (named,) = series(written("loss\x1b[2J\n", {0: 1.0}))
    assert named.tag == "loss\ufffd[2J\ufffd"


def test_a_restart_replaces_what_was_after_its_checkpoint() -> None:
    first = read(written("loss", {0: 4.0, 1: 3.0, 2: 2.0, 3: 1.0}))
    again = read(written("loss", {2: 2.5, 3: 1.5}, time=1e9 + 100))
    (loss,) = event_files.merged([("run", "b", again), ("run", "a", first)])
    assert (loss.run, loss.steps, loss.values, loss.count) == ("run", (0, 1, 2, 3), (4.0, 3.0, 2.5, 1.5), 6)


def test_files_that_several_ranks_write_into_one_directory_are_runs_of_their_own() -> None:
    ranks = [("run", f"host.{rank}", read(written("loss", {0: 4.0, 1: float(rank)}))) for rank in range(2)]
    found = event_files.merged(ranks)
    assert [(one.run, one.last) for one in found] == [("run (host.0)", 0.0), ("run (host.1)", 1.0)]


@given(st.lists(st.tuples(st.integers(0, 30), st.floats(width=32)), max_size=60), st.integers(2, 20))
def test_the_last_value_is_always_there_and_steps_never_go_back(
    told: list[tuple[int, float]], most: int
) -> None:
    curve = event_files.Curve(most)
    for step, value in told:
        curve.add((float(step), step, value))
    kept = curve.points()
    assert len(kept) <= most
    assert [step for _, step, _ in kept] == sorted(step for _, step, _ in kept)
    if told:
        (time, step, value) = kept[-1]
        assert (time, step) == (float(told[-1][0]), told[-1][0])
        assert value == told[-1][1] or math.isnan(value)


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    after = written("loss", {1: 2.0})
    assert len(read(data).notes) <= 1
    assert "loss" in read(tfevents.record(data) + after).curves
    assert "loss" in read(tfevents.record(b"\x2a" + bytes([len(data) & 0x7F]) + data) + after).curves
