"""run: the log on stdout, phases and result on stderr, Ctrl-C detaches, twice cancels."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.unit.cli_support import Cli

from mpijob.accounting import build
from mpijob.api.live import list_query, rows
from mpijob.backends.memory import MemoryBackend, Outcome, Script
from mpijob.cli.render import job_table
from mpijob.client import Client
from mpijob.model import Amounts, JobRef, JobState, LogLine, Phase, Role


@pytest.mark.req("FR-CLI-003", "FR-009", "FR-CLI-002", "FR-020")
def test_run_prints_ranks_lines_on_stdout_and_the_rest_on_stderr() -> None:
    result = Cli()("run", "hello", "--workers", "2", "--", "echo", "hi")
    assert result.exit_code == 0
    assert sorted(result.stdout.splitlines()) == ["[Rank-0] hi", "[Rank-1] hi"]
    first, *_, last = result.stderr.splitlines()
    assert first.startswith("hello: Pending")
    assert "hello: Running" in result.stderr
    assert last == "hello Succeeded after 0.7s, ran 0.7s, 2 ranks on 2 workers"


@pytest.mark.req("AC3", "FR-010")
def test_a_failed_run_ends_with_1_and_tells_the_cause() -> None:
    result = Cli()("run", "bad", "--workers", "2", "--", "sh", "-c", "exit 3")
    assert result.exit_code == 1
    assert "bad Failed after" in result.stderr
    assert "error: worker 0 failed: rank 0 ended with exit code 3 [WORKER_FAILED]" in result.stderr


def test_a_waiting_job_says_what_it_waits_for_before_it_runs() -> None:
    cli = Cli(MemoryBackend(capacity=Amounts(cores=3, memory_bytes=2**40)))
    cli.ok("create", "first", "--workers", "2", "--", "sleep", "5")
    result = cli("run", "second", "--workers", "2", "--", "echo", "hi")
    assert result.exit_code == 0
    lines = result.stderr.splitlines()
    assert "second: Queued" in lines[0]
    assert "Waiting for" in lines[0]
    assert "waited" in lines[-1]


@pytest.mark.req("PMV-005")
def test_a_retried_run_counts_its_attempts() -> None:
    cli = Cli(MemoryBackend(script=Script(jobs={"r": Outcome(exit_code=1, attempts=1)})))
    result = cli("run", "r", "--workers", "2", "--retry", "2", "--", "x")
    assert result.exit_code == 0
    assert "attempt 2 of 3" in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(("seconds", "told"), [(None, ""), (0.0, ""), (90.0, ", about 1m30s")])
def test_a_wait_that_nobody_can_tell_or_that_is_none_is_not_told(seconds: float | None, told: str) -> None:
    state = JobState(ref=JobRef("default", "r"), phase=Phase.QUEUED, waiting_for="2 cores", queue_position=1,
                     wait_estimate_seconds=seconds)  # fmt: skip
    assert job_table.phase_line(state) == f"r: Queued, 2 cores, position 1{told}"


def test_what_an_earlier_attempt_ran_is_no_wait_of_the_last_one() -> None:
    state = JobState(ref=JobRef("default", "r"), phase=Phase.SUCCEEDED, created=100.0, queued=112.0, started=113.0,
                     finished=115.1, attempt=2, attempts_allowed=2, world=1, workers_wanted=1)  # fmt: skip
    line = job_table.result_line(state)
    told = "the last attempt waited 1.0s and ran 2.1s, attempt 2 of 2, 1 rank on 1 worker"
    assert line == f"r Succeeded after 15s, {told}"
    first = msgspec.structs.replace(state, attempt=1, queued=100.0, started=101.0)
    assert job_table.result_line(first) == "r Succeeded after 15s, waited 1.0s, ran 14s, 1 rank on 1 worker"
    rested = msgspec.structs.replace(first, phase=Phase.CANCELLED, released=103.0)
    assert "after 15s, waited 1.0s, ran 2.0s" in job_table.result_line(rested)
    assert list_query._duration(rows.row(rested), 900.0) == 2.0
    assert (state.queued_seconds(120.0), build.account(state, now=120.0).queued_seconds) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("python", "-u", "My_Train.py", "--lr", "1"), "my-train"),
        (("python", "-c", "pass"), "python"),
        (("./solver",), "solver"),
    ],
)
def test_a_run_without_a_name_is_called_after_its_program(command: tuple[str, ...], name: str) -> None:
    cli = Cli()
    assert cli("run", "--workers", "2", "--", *command).exit_code == 0
    assert [one["ref"]["name"] for one in cli.json("list")["items"]] == [name]
    assert cli("create", "--workers", "2", "--", *command).exit_code == 2


def test_a_job_of_another_namespace_is_told_with_it() -> None:
    cli = Cli()
    job = "name: far\nnamespace: team\nworkers: 2\ncommand: [echo]\n"
    assert "follow it: mpijob logs -f far -n team" in cli("create", "-f", "-", stdin=job).stderr
    assert cli("logs", "far", "-n", "team").exit_code == 0


def test_rm_deletes_the_job_after_its_end() -> None:
    cli = Cli()
    cli("run", "gone", "--workers", "2", "--rm", "--", "true")
    assert cli("get", "gone").exit_code == 3


def test_run_in_json_prints_lines_and_then_the_state() -> None:
    lines = Cli()("run", "j", "--workers", "2", "-o", "json", "--", "echo", "hi").stdout.splitlines()
    assert '"text":"hi"' in lines[0]
    assert '"phase":"Succeeded"' in lines[-1]


class Interrupted(Client):
    """A client whose log is interrupted after the first line."""

    def logs(self, name: Any, **wanted: Any) -> Iterator[LogLine]:
        yield next(iter(super().logs(name, **wanted)))
        raise KeyboardInterrupt


CRASHLIKE = (
    b"[proxy:0@vm] HYD_pmcd_pmip_control_cmd_cb (/mpich/src/pm/hydra/proxy/pmip_cb.c:490): assert (!closed) failed",
    b"[proxy:0@vm] HYDT_dmxu_poll_wait_for_event (/mpich/src/demux_poll.c:76): callback returned error status",
    b"[proxy:0@vm] main (/mpich/src/pm/hydra/proxy/pmip.c:123): demux engine error waiting for event",
)


class Ended(Client):
    """A client in whose logs Hydra's proxies complain that they were left; a rank that says the same means it."""

    def logs(self, name: Any, **wanted: Any) -> Iterator[LogLine]:
        yield from super().logs(name, **wanted)
        yield LogLine(1, CRASHLIKE[0], Role.RANK, "stderr", 0, 0)
        yield LogLine(1, b"[proxy:0@vm] execvp error on file x", Role.WORKER, "stderr", 0)
        yield from (LogLine(1, text, Role.WORKER, "stderr", 0) for text in CRASHLIKE)


def test_what_hydra_says_when_it_is_ended_is_left_out_of_a_failed_run_and_not_of_the_log() -> None:
    cli = Cli(client=Ended)
    result = cli("run", "bad", "--workers", "2", "--", "sh", "-c", "exit 3")
    assert [line.partition("] ")[0] for line in result.stdout.splitlines() if "proxy" in line] == [
        "[Rank-0",
        "[Worker-0",
    ]
    note = "(3 lines of MPI's launcher at its end are hidden; mpijob logs bad has them)"
    assert result.stderr.splitlines().count(note) == 1
    assert all(text.decode() in cli.ok("logs", "bad") for text in CRASHLIKE)
    good = cli("run", "good", "--workers", "2", "--", "true")
    assert sum(text.decode() in good.stdout for text in CRASHLIKE) == 3
    assert all(
        text in cli("run", "raw", "--workers", "2", "--raw", "--", "false").stdout_bytes for text in CRASHLIKE
    )


def a_hanging_job() -> MemoryBackend:
    return MemoryBackend(script=Script(default=Outcome(hangs=True, lines=("step",))))


def test_ctrl_c_detaches_and_the_job_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("mpijob.cli.follow.time.sleep", slept.append)
    cli = Cli(a_hanging_job(), Interrupted)
    result = cli("run", "long", "--workers", "2", "--", "x")
    assert (result.exit_code, slept) == (130, [2.0])
    assert "job long is still running; reattach: mpijob logs -f long" in result.stderr
    assert "cancel: mpijob cancel long" in result.stderr
    assert cli.connect().state("long").phase is Phase.RUNNING


def test_a_second_ctrl_c_cancels(monkeypatch: pytest.MonkeyPatch) -> None:
    def again(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mpijob.cli.follow.time.sleep", again)
    cli = Cli(a_hanging_job(), Interrupted)
    result = cli("run", "long", "--workers", "2", "--", "x")
    assert result.exit_code == 130
    assert cli.connect().state("long").phase is Phase.CANCELLED
    assert "long: Cancelled" in result.stderr


def test_something_slow_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    from mpijob.cli.output import Output

    with Output().progress("waiting for room …", after_seconds=0.0):
        deadline = time.monotonic() + 10
        told = ""
        while not told and time.monotonic() < deadline:
            told = capsys.readouterr().err
    assert told == "waiting for room …\n"


def test_alloc_holds_workers_runs_the_shell_and_gives_them_back() -> None:
    ran: list[tuple[Any, ...]] = []

    class Inside(Client):
        def execute(self, name: Any, argv: Any, worker: Any = None, rank: Any = None, **more: Any) -> int:
            state = self.state(name)
            ran.append((tuple(argv), worker, state.phase, state.labels))
            return 5

    cli = Cli(a_hanging_job(), Inside)
    result = cli("alloc", "held", "--workers", "2", "--label", "a=b", "--", "mpirun", "x")
    assert result.exit_code == 5, result.stderr
    assert ran == [(("mpirun", "x"), 0, Phase.RUNNING, {"a": "b", "mpijob/alloc": "true"})]
    assert cli.connect().state("held").phase is Phase.CANCELLED


@pytest.mark.req("C-exec")
def test_exec_passes_the_command_on_and_returns_its_status() -> None:
    ran: list[tuple[Any, ...]] = []

    class Inside(Client):
        def execute(self, name: Any, argv: Any, worker: Any = None, rank: Any = None, **more: Any) -> int:
            ran.append((name, tuple(argv), worker, rank))
            return 42

    cli = Cli(client=Inside)
    assert cli("exec", "j", "--rank", "3", "--", "cat", "--", "-x").exit_code == 42
    assert cli("exec", "j", "--worker", "1").exit_code == 42
    assert ran[0] == ("j", ("cat", "--", "-x"), None, 3)
    assert ran[1][2:] == (1, None)
    assert cli("exec", "j", "--worker", "1", "--rank", "2").exit_code == 2
