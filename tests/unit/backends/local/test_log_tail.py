"""Following a log from its last lines on: what was written before them is not read."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from mpijob.backends.attempts import log_reader
from mpijob.backends.local.logs.log_writer import LogFile
from mpijob.model import LogQuery


def written(folder: Path, rank: int, count: int, width: int = 0) -> LogFile:
    log = LogFile(folder / f"rank-{rank}.log")
    for number in range(count):
        log.feed("stdout", b"%d of %d %s\n" % (number, rank, b"x" * width))
    return log


def texts(folder: Path, query: LogQuery, *, over: bool = True) -> list[bytes]:
    def where() -> tuple[Iterable[tuple[Path, int]], dict[int, int], bool]:
        return [(folder, 1)], {0: 0, 1: 0}, over

    return [line.text.split(b" x")[0].strip() for line in log_reader.follow(where, query, time.sleep)]


@pytest.mark.parametrize(("count", "width"), [(5, 0), (3000, 0), (3000, 700)])
def test_a_followed_log_begins_at_its_last_lines(tmp_path: Path, count: int, width: int) -> None:
    written(tmp_path, 0, count, width)
    found = texts(tmp_path, LogQuery(follow=True, tail=10))
    assert found == [b"%d of 0" % number for number in range(max(0, count - 10), count)]


def test_the_last_lines_of_several_ranks_are_the_last_of_all(tmp_path: Path) -> None:
    written(tmp_path, 0, 2000)
    written(tmp_path, 1, 3)
    assert texts(tmp_path, LogQuery(follow=True, tail=3, tidy=True)) == [b"0 of 1", b"1 of 1", b"2 of 1"]


def test_what_is_written_after_the_last_lines_follows_them_once(tmp_path: Path) -> None:
    log, looks = written(tmp_path, 0, 500), iter(range(100))

    def where() -> tuple[Iterable[tuple[Path, int]], dict[int, int], bool]:
        if next(looks) == 2:
            log.feed("stdout", b"later\n")
        return [(tmp_path, 1)], {0: 0}, next(looks) > 20

    found = [line.text for line in log_reader.follow(where, LogQuery(follow=True, tail=2), lambda s: None)]
    assert found == [b"498 of 0 ", b"499 of 0 ", b"later"]


def test_little_of_a_long_log_is_read(tmp_path: Path) -> None:
    written(tmp_path, 0, 20_000)
    log = log_reader.LogFileSource(tmp_path / "rank-0.log", 1, {})
    log.skip_to_last(100)
    assert log.path.stat().st_size - log._offset < 10_000
    assert next(line.text for line in log.read()) == b"19900 of 0 "
