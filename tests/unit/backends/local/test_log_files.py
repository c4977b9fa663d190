"""Writing what ranks say: a disk that is full costs lines, never the lines around them; many lines gather."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest

from mpijob.backends.local.logs.log_writer import LogFile, PipeReader
from mpijob.backends.local.worker.worker import OutputBatcher
from mpijob.history.storage import disk_reserve
from mpijob.observation.logs import cri
from mpijob.observation.redaction import masking


def lines(path: Path) -> list[cri.Parsed]:
    return [cri.parse(raw + b"\n") for raw in path.read_bytes().removesuffix(b"\n").split(b"\n")]


@pytest.mark.security
def test_a_disk_that_fills_in_the_middle_of_a_line_leaves_every_other_line_whole(tmp_path: Path) -> None:
    """The kernel writes the first part of a line, then nothing: as on a full disk."""
    path = tmp_path / "rank-0.log"
    log = LogFile(path)
    log.feed("stdout", b"first\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 60, before[1]))
    try:
        log.feed("stdout", b"second " + b"x" * 100 + b"\n")
        log.feed("stdout", b"third\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, old)
    assert log.lost_bytes > 0
    log.feed("stdout", b"fourth\n")
    log.close()
    said = [line.text for line in lines(path)]
    assert said[0] == b"first"
    assert said[1].startswith(b"second x")
    assert b"bytes of output are missing here: the disk was full" in said[2]
    assert said[3:] == [b"fourth"]


@pytest.mark.security
@pytest.mark.req("D-sanitize")
def test_a_secret_is_in_no_log_wherever_its_bytes_are_cut(tmp_path: Path) -> None:
    path, secret = tmp_path / "rank-0.log", b"hunter2-secret"
    log = LogFile(path, masked_values=masking.spellings([secret.decode()]))
    long = b"x" * (cri.PIECE_BYTES - 5)  # so that it would be in two pieces of a long line
    for piece in (b"one hunter2", b"-sec", b"ret two\n", long + secret + b"y\n", b"hunter2"):
        log.feed("stdout", piece)
    log.feed("stderr", b"-secret\n")  # another stream, and not the rest of it
    log.close()
    said = dict.fromkeys(("stdout", "stderr"), b"")
    for line in lines(path):
        said[line.stream] += line.text + (b"\n" if line.newline else b"")
    assert said == {"stdout": b"one *** two\n" + long + b"***y\nhunter2", "stderr": b"-secret\n"}


class Time:
    """A clock that goes on only while somebody waits."""

    def __init__(self) -> None:
        self.now, self.waited = 0.0, 0

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.waited += 1


def test_where_little_is_said_nobody_waits_and_where_much_is_said_one_by_one_lines_gather() -> None:
    clock = Time()
    breath = OutputBatcher(lambda: clock.now, clock.wait)

    def said(pulls: int, *, has_more: bool = False, apart: float = 0.001) -> int:
        """Return how often it waited while so many pipes spoke, one after the other."""
        before = clock.waited
        for _ in range(pulls):
            clock.now += apart
            breath.record_read(has_more=has_more)
            breath.pause_if_busy()
        return clock.waited - before

    assert said(100, apart=0.01) == 0
    assert said(19) == 0, "it must last"
    assert said(100) > 80
    assert said(100, has_more=True) == 0, "a pipe that fills is not kept waiting"
    clock.now += 10.0
    assert said(5) <= 1, "what was long ago does not count"
    before = clock.waited
    breath.pause_if_busy()
    assert clock.waited == before, "nothing was said: nothing gathers"


def test_a_pump_tells_whether_much_was_there(tmp_path: Path) -> None:
    out, end = os.pipe()
    pump = PipeReader(out, LogFile(tmp_path / "log"), "stdout")
    os.write(end, b"little\n")
    pump.read_some()
    assert not pump.has_more
    os.write(end, b"much\n" * 4000)
    pump.read_some()
    assert pump.has_more
    os.close(end)
    pump.read_some()
    assert pump.ended
    os.close(out)


def test_the_last_of_a_disk_is_left_to_the_state_and_what_is_missing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, room = tmp_path / "rank-0.log", True
    monkeypatch.setattr(disk_reserve, "available_bytes", lambda directory: 1 << 20 if room else 0)
    log = LogFile(path)
    log.feed("stdout", b"before\n" * 1000)
    room = False
    log.feed("stdout", b"lost\n" * 1000)
    log.feed("stdout", b"lost\n" * 1000)
    assert log.lost_bytes == 10_000
    room = True
    log.feed("stdout", b"behind\n")
    room = False
    log.feed("stdout", b"x" * 7000 + b"\n")
    log.close()
    told = [line.text for line in lines(path) if line.text != b"before"]
    assert told == [
        b"mpijob: 10000 bytes of output are missing here: the disk was full",
        b"behind",
        b"mpijob: 7001 bytes of output are missing here: the disk was full",
    ]


def test_a_disk_has_room_until_its_last_part(tmp_path: Path) -> None:
    free = os.statvfs(tmp_path)
    assert disk_reserve.has_space(tmp_path)
    assert not disk_reserve.has_space(tmp_path, free.f_blocks * free.f_frsize)
    assert disk_reserve.has_space(tmp_path / "gone"), "nobody can say"
