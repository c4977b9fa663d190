"""squeue is asked once in two seconds, by all clients of a user together; without an answer the last one stands."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.slurm_support import FakeHost, squeue

from mpijob.backends.slurm.client import SlurmClient
from mpijob.backends.slurm.host import Answer
from mpijob.backends.slurm.jobs import poll
from mpijob.backends.slurm.jobs.poll import Poll, Snapshot
from mpijob.errors import BackendError

SILENT = Answer(1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n")


class Clock:
    """The time as `poll` reads it; it passes when a test says so."""

    def __init__(self) -> None:
        self.now = time.time()

    def time(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(poll, "time", clock)
    return clock


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path / "root", squeue=squeue({}))


@pytest.fixture
def client(host: FakeHost, tmp_path: Path) -> Callable[[], Poll]:
    """Return what makes one more client of the same user."""
    return lambda: Poll(SlurmClient(host), tmp_path / "poll")


def test_many_questions_within_two_seconds_are_one_to_slurm(
    client: Callable[[], Poll], host: FakeHost, clock: Clock
) -> None:
    one = client()
    for _ in range(5):
        assert [*one.snapshot().rows] == ["67"]
        clock.now += 0.3
    assert host.count("squeue") == 1


def test_other_processes_of_the_user_read_the_same_answer(
    client: Callable[[], Poll], host: FakeHost, clock: Clock
) -> None:
    first = client().snapshot()
    clock.now += 1.9
    second = client().snapshot()
    assert host.count("squeue") == 1
    assert [*second.rows] == ["67"]
    assert second.time == pytest.approx(first.time, abs=1e-3)


def test_after_two_seconds_it_is_asked_anew(client: Callable[[], Poll], host: FakeHost, clock: Clock) -> None:
    one = client()
    one.snapshot()
    host.replies["squeue"] = squeue({"%A": "68"})
    clock.now += 2.1
    assert [*one.snapshot().rows] == ["68"]
    assert host.count("squeue") == 2


def test_an_answer_older_than_what_is_wanted_is_not_good_enough(
    client: Callable[[], Poll], host: FakeHost, clock: Clock
) -> None:
    one = client()
    one.snapshot()
    clock.now += 0.5
    since = clock.now
    assert one.snapshot(since=since).time >= since
    assert host.count("squeue") == 2


def test_questions_of_many_threads_at_once_are_one_to_slurm(
    client: Callable[[], Poll], host: FakeHost
) -> None:
    one, found = client(), list[Snapshot]()
    threads = [threading.Thread(target=lambda: found.append(one.snapshot())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert len(found) == 8
    assert host.count("squeue") == 1


def test_without_an_answer_the_last_one_stands_with_the_reason(
    client: Callable[[], Poll], host: FakeHost, clock: Clock
) -> None:
    one = client()
    one.snapshot()
    host.replies["squeue"] = SILENT
    clock.now += 2.1
    found = one.snapshot()
    assert ([*found.rows], found.answered) == (["67"], True)
    assert found.error is not None
    assert "Unable to contact" in found.error.message


def test_a_slurm_that_never_answered_is_asked_again_only_after_two_seconds(
    client: Callable[[], Poll], host: FakeHost, clock: Clock
) -> None:
    host.replies["squeue"] = SILENT
    one = client()
    for _ in range(3):
        found = one.snapshot()
        assert (found.answered, len(found.rows), found.error is not None) == (False, 0, True)
    assert host.count("squeue") == 1
    clock.now += 2.1
    host.replies["squeue"] = squeue({})
    found = one.snapshot()
    assert (found.answered, found.error) == (True, None)


def test_a_machine_without_slurms_commands_says_so(client: Callable[[], Poll], host: FakeHost) -> None:
    host.replies["squeue"] = BackendError("there is no program 'squeue' here")
    found = client().snapshot()
    assert found.error is not None
    assert "squeue" in found.error.message


def test_a_directory_that_cannot_be_written_keeps_nobody_from_asking(host: FakeHost, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    one = Poll(SlurmClient(host), tmp_path / "file" / "poll")
    assert [*one.snapshot().rows] == ["67"]


def test_neither_a_directory_nor_an_answer_is_told_as_no_answer(host: FakeHost, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    host.replies["squeue"] = SILENT
    found = Poll(SlurmClient(host), tmp_path / "file" / "poll").snapshot()
    assert not found.answered
    assert found.error is not None


@pytest.mark.security
@pytest.mark.parametrize(
    "held",
    [b"\xff\xfe\x00", b"", b"not JSON at all\n", b'{"time":', b'{"time":{now},"text":"no rows"}'],
)
def test_a_kept_answer_that_is_damaged_stops_nobody(
    client: Callable[[], Poll], host: FakeHost, clock: Clock, tmp_path: Path, held: bytes
) -> None:
    (tmp_path / "poll").mkdir()
    (tmp_path / "poll" / "squeue").write_bytes(held.replace(b"{now}", str(clock.now).encode()))
    found: list[Snapshot] = []
    one = client()
    thread = threading.Thread(target=lambda: found.append(one.snapshot()), daemon=True)
    thread.start()
    thread.join(timeout=5)
    assert len(found) == 1
    assert [*found[0].rows] == ([] if b"now" in held else ["67"])


def test_a_kept_answer_from_the_future_is_not_believed(
    client: Callable[[], Poll], host: FakeHost, clock: Clock, tmp_path: Path
) -> None:
    (tmp_path / "poll").mkdir()
    kept = f'{{"time":{clock.now + 3600},"text":""}}'
    (tmp_path / "poll" / "squeue").write_text(kept)
    assert [*client().snapshot().rows] == ["67"]
