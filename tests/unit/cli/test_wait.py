"""`mpijob wait` and `mpijob watch`: until jobs have ended, with their result, alone, several or a whole array."""

from __future__ import annotations

import json

import pytest
from tests.unit.cli_support import Cli

from mpijob.backends.memory import MemoryBackend, Outcome, Script


def test_wait_ends_with_the_jobs_result() -> None:
    cli = Cli()
    cli.ok("create", "good", "--workers", "2", "--", "true")
    cli.ok("create", "bad", "--workers", "2", "--", "false")
    assert cli("wait", "good").exit_code == 0
    bad = cli("wait", "bad")
    assert (bad.exit_code, "WORKER_FAILED" in bad.stderr) == (1, True)
    assert cli("wait", "bad", "--for", "Failed").exit_code == 0
    assert cli("wait", "bad", "--for", "Succeeded").exit_code == 1


def test_wait_waits_for_several_jobs_and_ends_with_the_worst_result() -> None:
    cli = Cli()
    for name, program in (("a", "true"), ("b", "false"), ("c", "true")):
        cli.ok("create", name, "--workers", "2", "--", program)
    told = cli("wait", "a", "b", "c")
    assert (told.exit_code, len(told.stdout.splitlines())) == (1, 3)
    assert cli("wait", "a", "c").exit_code == 0
    missing = cli("wait", "a", "nobody", "c")
    assert (missing.exit_code, "nobody" in missing.stderr, len(missing.stdout.splitlines())) == (3, True, 2)
    assert "name the jobs, or choose them" in cli("wait").stderr


def test_one_waits_for_a_whole_array() -> None:
    cli = Cli()
    made = cli("array", "study", "--workers", "2", "--values", "env.LR=1,2,3", "--", "true")
    assert "mpijob wait -l mpijob/array=study" in made.stderr
    told = cli("wait", "-l", "mpijob/array=study")
    assert (told.exit_code, len(told.stdout.splitlines())) == (0, 3)
    assert cli("wait", "-l", "mpijob/array=other").exit_code == 3
    assert cli("wait", "study-0", "-l", "mpijob/array=study").exit_code == 2


def test_an_array_that_is_submitted_again_smaller_is_waited_for_without_what_is_left_of_the_first() -> None:
    cli = Cli(MemoryBackend(script=Script(jobs={"study-2": Outcome(exit_code=3)})))
    array = ("array", "study", "--workers", "2")
    cli.ok(*array, "--values", "env.LR=1,2,3", "--", "true")
    assert cli("wait", "-l", "mpijob/array=study").exit_code == 1
    cli.ok(*array, "--values", "env.LR=1,2", "--", "true")
    told = cli("wait", "-l", "mpijob/array=study")
    assert (told.exit_code, len(told.stdout.splitlines())) == (0, 2)
    assert "not waiting for 1 jobs of an earlier submission of the array" in told.stderr
    assert len(cli.json("list", "-l", "mpijob/array=study")["items"]) == 3


def test_wait_gives_up_with_7() -> None:
    cli = Cli(MemoryBackend(script=Script(default=Outcome(hangs=True))))
    cli.ok("create", "long", "--workers", "2", "--", "x")
    result = cli("wait", "long", "--timeout", "1s")
    assert (result.exit_code, "still Running after 1 s" in result.stderr) == (7, True)


@pytest.mark.req("FR-CLI-002", "B-watch")
def test_watch_in_a_pipe_is_a_line_for_each_change() -> None:
    cli = Cli()
    cli.ok("create", "j", "--workers", "2", "--", "false")
    result = cli("watch", "j")
    lines = result.stdout.splitlines()
    assert result.exit_code == 1
    assert [line.split()[1].rstrip(",") for line in lines if line.startswith("j:")][:2] == [
        "Pending",
        "Initializing",
    ]
    assert lines[-1].startswith("j Failed")
    assert "\x1b" not in result.output
    assert cli("watch", "nobody").exit_code == 3


@pytest.mark.req("FR-CLI-002", "FR-020")
def test_watch_on_a_terminal_draws_until_the_job_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    cli = Cli()
    cli.ok("create", "j", "--workers", "2", "--", "echo", "hello")

    def pass_by(seconds: float) -> None:
        cli.connect().wait("j")

    monkeypatch.setattr("mpijob.cli.output.Output.live", lambda self: True)
    monkeypatch.setattr("mpijob.cli.commands.watch.time.sleep", pass_by)
    page = cli.ok("watch", "j")
    assert "j Succeeded after 0.7s" in page
    assert "[Rank-1] hello" in page


def test_watch_speaks_json_lines() -> None:
    cli = Cli()
    cli.finished("j")
    states = [json.loads(line) for line in cli.ok("watch", "j", "-o", "json").splitlines()]
    assert states[-1]["phase"] == "Succeeded"
