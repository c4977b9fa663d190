"""`mpijob logs`, and the same options in the SDK, over the memory engine."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli_support import Cli

from mpijob.backends.memory import find_jobs
from mpijob.model import JobRef, LogLine, Mark, Role

SECOND = 1_000_000_000


def line(rank: int, text: bytes, at: int, **more: Any) -> LogLine:
    return LogLine(at * SECOND, text, Role.RANK, worker=rank, rank=rank, **more)


LINES = [
    line(0, b"begin", 1),
    line(1, b"begin", 1),
    line(0, b"WARNING:root:low", 2),
    line(1, b"\r10%\r99%\r100%", 3, stream="stderr"),
    line(0, b"x\x1b]0;title\x07y", 4),
    line(0, b"ERROR: bad", 5),
    line(0, b"  because", 6),
    line(1, b"end", 7, marks=(Mark.OPEN,)),
]


@pytest.fixture
def cli() -> Cli:
    made = Cli()
    made.finished("job")
    record = find_jobs.find(made.backend._engine, JobRef("default", "job"))
    record.lines[:] = LINES
    return made


def shown(cli: Cli, *words: str) -> list[str]:
    return cli.ok("logs", "job", *words).splitlines()


@pytest.mark.req("AC2", "FR-021")
def test_bars_are_their_last_state_and_control_bytes_are_seen(cli: Cli) -> None:
    assert shown(cli)[3:5] == ["[Rank-1] 100%", "[Rank-0] x\\x1b]0;title\\x07y"]


@pytest.mark.req("FR-021")
def test_a_chorus_is_one_line_where_it_is_asked_for(cli: Cli) -> None:
    assert shown(cli)[:2] == ["[Rank-0] begin", "[Rank-1] begin"]
    assert shown(cli, "--fold")[:2] == ["[Rank-0-1] begin ×2 ranks", "[Rank-0] WARNING:root:low"]


@pytest.mark.req("AC2")
def test_lines_are_chosen_by_level_and_stream(cli: Cli) -> None:
    assert shown(cli, "--level", "warning", "--no-prefix") == ["WARNING:root:low", "ERROR: bad", "  because"]
    assert shown(cli, "--stream", "stderr", "--no-prefix") == ["100%"]


@pytest.mark.req("AC2")
def test_lines_around_a_match_are_shown_as_grep_shows_them(cli: Cli) -> None:
    assert shown(cli, "--grep", "WARN|end", "-B1", "--no-prefix") == [
        "begin", "WARNING:root:low", "--", "  because", "end",
    ]  # fmt: skip
    assert "require --grep or --level" in cli("logs", "job", "-C", "1").stderr


@pytest.mark.req("D-loglabels")
def test_json_lines_say_rank_worker_stream_level_time_and_attempt(cli: Cli) -> None:
    found = [json.loads(one) for one in shown(cli, "-o", "json", "--rank", "0", "--grep", "ERROR", "-A1")]
    assert found[0] == {
        "time": 5 * SECOND, "source": "Rank-0", "role": "rank", "worker": 0, "rank": 0, "stream": "stdout",
        "attempt": 1, "level": "error", "text": "ERROR: bad", "marks": ["match"],
    }  # fmt: skip
    assert found[1]["marks"] == ["context"]


def test_attempts_that_were_not_are_named(cli: Cli) -> None:
    assert "has no previous attempt: this is its first" in cli("logs", "job", "--previous").stderr
    assert "exclude each other" in cli("logs", "job", "-p", "--attempt", "1").stderr


def test_each_stream_is_downloaded_byte_for_byte(cli: Cli, tmp_path: Path) -> None:
    cli.ok("logs", "job", "--download", str(tmp_path / "d"))
    there = tmp_path / "d" / "attempt-1"
    assert sorted(path.name for path in there.iterdir()) == ["rank-0.out", "rank-1.err", "rank-1.out"]
    assert (there / "rank-1.err").read_bytes() == b"\r10%\r99%\r100%\n"
    assert (there / "rank-1.out").read_bytes() == b"begin\nend"
    cli.ok("logs", "job", "--download", str(tmp_path / "z"), "--gzip")
    packed = (tmp_path / "z" / "attempt-1" / "rank-1.out.gz").read_bytes()
    assert gzip.decompress(packed) == b"begin\nend"


def test_all_lines_are_downloaded_merged_with_time_and_rank(cli: Cli, tmp_path: Path) -> None:
    target = tmp_path / "all.log.gz"
    cli.ok("logs", "job", "--download", str(target), "--merged", "--gzip", "--level", "error")
    assert gzip.decompress(target.read_bytes()).splitlines() == [
        b"1970-01-01T00:00:05.000000000Z [Rank-0] ERROR: bad",
        b"1970-01-01T00:00:06.000000000Z [Rank-0]   because",
    ]
    assert cli.ok("logs", "job", "--download", "-").splitlines()[0].endswith("Z [Rank-0] begin")
    assert "cannot be combined with --follow" in cli("logs", "job", "-f", "--download", "-").stderr
    assert "require --download" in cli("logs", "job", "--gzip").stderr


def test_a_download_that_fails_leaves_the_file_that_was_there(cli: Cli, tmp_path: Path) -> None:
    target = tmp_path / "keep.log"
    target.write_text("precious")
    assert cli("logs", "nosuchjob", "--download", str(target), "--merged").exit_code == 3
    assert (target.read_text(), [*tmp_path.iterdir()]) == ("precious", [target])
    target.chmod(0o600)
    link = tmp_path / "link.log"
    link.symlink_to(target)
    cli.ok("logs", "job", "--download", str(link), "--merged")
    assert (target.read_text() != "precious", link.is_symlink(), target.stat().st_mode & 0o777) == (
        True,
        True,
        0o600,
    )


@pytest.mark.parametrize("merged", [(), ("--merged",)])
def test_a_place_where_no_log_can_be_written_is_told(
    cli: Cli, tmp_path: Path, merged: tuple[str, ...]
) -> None:
    (tmp_path / "file").write_text("precious")
    told = cli("logs", "job", "--download", str(tmp_path / "file" / "x"), *merged)
    assert told.exit_code not in (0, 70)
    assert f"cannot write the log to {tmp_path}/file/x: " in told.stderr


def test_a_directory_is_no_place_for_a_merged_log(cli: Cli, tmp_path: Path) -> None:
    told = cli("logs", "job", "--download", str(tmp_path), "--merged")
    assert told.exit_code not in (0, 70)
    assert "is a directory; a merged log needs a file name" in told.stderr


@pytest.mark.req("FR-013")
def test_the_sdk_has_the_same_options(cli: Cli, tmp_path: Path) -> None:
    job = cli.connect().get("job")
    assert [one.text for one in job.logs(level="error", tidy=True)] == [b"ERROR: bad", b"  because"]
    assert next(iter(job.logs(fold=True))).ranks == (0, 1)
    assert [one.text for one in job.logs(find="bad") if Mark.MATCH in one.marks] == [b"ERROR: bad"]
    (file,) = job.download_logs(tmp_path / "m.log", merged=True, ranks=[1])
    assert file.read_bytes().count(b"\n") == 3
