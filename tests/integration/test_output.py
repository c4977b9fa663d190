"""What ranks say arrives whole, labelled with the true rank, and a flood from one delays no other."""

from __future__ import annotations

import itertools
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from mpijob import Client, Phase
from mpijob.model import Role

from . import sight
from .support import PATIENCE, a_job, eventually, running, succeeded

pytestmark = pytest.mark.engine

MIB = 1 << 20


def by_rank(client: Client, script: str, rank: int = 0) -> list[tuple[str, bytes]]:
    """Return stream and text of what one rank says, told by printf in a shell."""
    job = succeeded(client, a_job("says", f'if [ "$MPIJOB_RANK" = {rank} ]; then {script}; fi'))
    return [(line.stream, line.text) for line in job.logs(ranks=(rank,))]


def test_a_last_line_without_newline_is_not_lost(client: Client) -> None:
    assert by_rank(client, r"printf 'one\ntwo'") == [("stdout", b"one"), ("stdout", b"two")]


def test_nul_invalid_utf8_and_empty_lines_arrive_as_they_were(client: Client) -> None:
    heard = by_rank(client, r"printf 'a\000b\n\377\376\n\n\r\n'")
    assert [text for _, text in heard] == [b"a\0b", b"\xff\xfe", b"", b"\r"]


@pytest.mark.req("FR-CLI-003", "AC2")
def test_stdout_and_stderr_are_told_apart(client: Client) -> None:
    heard = by_rank(client, "echo out; echo err >&2", rank=1)
    assert sorted(heard) == [("stderr", b"err"), ("stdout", b"out")]


@pytest.mark.req("AC2")
@pytest.mark.security
def test_a_forged_prefix_stays_labelled_with_the_true_rank(client: Client) -> None:
    forged = r"printf '[Rank-0] all is well\n\033[2J\033[31m[Launcher] bye\n2026-01-01T00:00:00.0Z stdout F forged\n'"
    job = succeeded(client, a_job("forger", f'if [ "$MPIJOB_RANK" = 1 ]; then {forged}; fi'))
    lines = [line for line in job.logs() if line.text]
    assert [(line.source, line.rank, line.worker) for line in lines] == [("Rank-1", 1, 1)] * 3
    assert lines[2].text == b"2026-01-01T00:00:00.0Z stdout F forged"


@pytest.mark.req("FR-009", "B-watch")
def test_following_shows_lines_while_they_come_and_ends_with_the_job(client: Client) -> None:
    job = running(client, a_job("live", "echo first; while [ ! -e go ]; do sleep 0.05; done; echo last"))
    go = Path(client.settings.home) / "jobs" / job.ref.uid / "work" / "go"
    heard = []
    for line in job.logs(follow=True, roles=(Role.RANK,)):
        heard.append(line.text)
        if len(heard) == 2:
            assert job.phase is Phase.RUNNING
            go.touch()
    assert heard == [b"first", b"first", b"last", b"last"]


def test_200_000_lines_arrive_in_order_and_none_is_lost(client: Client) -> None:
    job = succeeded(client, a_job("many", "seq 100000"))
    counts = {rank: itertools.count(1) for rank in (0, 1)}
    for line in job.logs():
        assert line.rank is not None
        assert int(line.text) == next(counts[line.rank])
    assert [next(count) for count in counts.values()] == [100_001, 100_001]


def resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0  # it has ended meanwhile


FLOOD = """
while [ ! -e go ]; do sleep 0.05; done
if [ "$MPIJOB_RANK" = 0 ]; then head -c 100000000 /dev/zero | tr '\\000' x; echo; touch flooded
else while [ ! -e flooded ]; do date +%s%N; sleep 0.005; done; fi
"""


@pytest.mark.security
@pytest.mark.req("FR-009")
def test_a_line_of_100_mb_delays_nobody_and_needs_no_memory(client: Client) -> None:
    job = running(client, a_job("flood", FLOOD))
    home, uid = Path(client.settings.home), job.ref.uid
    ours = (sight.supervisor(home, uid), sight.worker(home, uid, 0), sight.worker(home, uid, 1))
    peaks = [0]
    (home / "jobs" / uid / "work" / "go").touch()

    def over() -> bool:
        peaks.extend(resident_bytes(pid) for pid in ours)
        return job.state().phase.final

    eventually(over, "the flood is over", PATIENCE)
    assert job.state().phase is Phase.SUCCEEDED
    assert 0 < max(peaks) < 60 * MIB
    late = [line.time - int(line.text) for line in job.logs(ranks=(1,))]
    assert len(late) > 2
    assert max(late) < 1_000_000_000
    assert sum(len(line.text) for line in job.logs(ranks=(0,))) == 100_000_000


FORGED = r"""
if [ "$MPIJOB_RANK" = 1 ]; then
  printf 'half '
  printf '[1,0]<stdout>: [rank 0] [Rank-0] forged\n[1,0]<stdout>: forged\n[rank 0] forged\n[0] forged\n'
fi
"""


@pytest.mark.req("AC2")
@pytest.mark.security
@pytest.mark.parametrize("family", ["mpich", "openmpi", "intel"])
def test_no_familys_tags_can_be_forged(family: str, client: Client) -> None:
    job = succeeded(client, a_job(f"tags-{family}", FORGED, mpi=family))
    lines = [line for line in job.logs() if b"forged" in line.text]
    assert [(line.rank, line.source) for line in lines] == [(1, "Rank-1")] * 4
    assert lines[0].text.startswith(b"half [1,0]<stdout>: ")


def test_what_is_downloaded_is_what_was_written(client: Client, tmp_path: Path) -> None:
    script = r"printf 'a\000\377\r1\r2\n\nlast'; printf 'err\n' >&2; head -c 40000 /dev/zero | tr '\000' x"
    job = succeeded(client, a_job("exact", script))
    files = {path.name: path for path in job.download_logs(tmp_path, ranks=[0])}
    assert files["rank-0.out"].read_bytes() == b"a\0\xff\r1\r2\n\nlast" + b"x" * 40000
    assert files["rank-0.err"].read_bytes() == b"err\n"
    (merged,) = job.download_logs(tmp_path / "all", merged=True)
    told = [line.partition(b"Z [Rank-")[2] for line in merged.read_bytes().splitlines() if b"err" in line]
    assert sorted(told) == [b"0] err", b"1] err"]


def test_following_from_the_tail_shows_the_last_lines_and_then_what_comes(client: Client) -> None:
    script = "seq 100; while [ ! -e go ]; do sleep 0.05; done; echo last"
    job = running(client, a_job("tail", script, workers=1))
    eventually(lambda: len([*job.logs(ranks=[0])]) == 100, "all is said", PATIENCE)
    heard = []
    for line in job.logs(follow=True, ranks=[0], tail=2):
        heard.append(line.text)
        if len(heard) == 2:
            (Path(client.settings.home) / "jobs" / job.ref.uid / "work" / "go").touch()
    assert heard == [b"99", b"100", b"last"]


@pytest.mark.req("B-watch")
def test_running_is_told_while_the_program_is_silent(client: Client) -> None:
    words = [sys.executable, "-m", "mpijob", "run", "quiet", "--workers", "2", "--cpu", "500m"]
    env = os.environ | {"MPIJOB_HOME": client.settings.home, "MPIJOB_ENGINE": "local"}
    silent = ["--", "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done"]
    with subprocess.Popen([*words, *silent], env=env, stderr=subprocess.PIPE, bufsize=0) as process:
        assert process.stderr is not None
        eventually(lambda: client.list().total, "the job is there")
        state = client.wait("quiet", PATIENCE, {Phase.RUNNING})
        told = b""
        while b"quiet: Running" not in told and select.select([process.stderr], [], [], 10.0)[0]:
            told += process.stderr.read(1000) or b""
        (Path(client.settings.home) / "jobs" / state.ref.uid / "work" / "go").touch()
        assert process.wait(PATIENCE) == 0
    assert b"quiet: Running" in told
