"""What is printed is safe, stable and in its place."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import pages
from tests.unit.cli_support import Cli

from mpijob.backends.memory import MemoryBackend, Outcome, Script
from mpijob.cli import exit_codes
from mpijob.cli.command_table import ENTRIES
from mpijob.cli.context import App
from mpijob.cli.main import program_words
from mpijob.cli.output import Format, Output, as_json, as_yaml, painted
from mpijob.cli.render import parts_tree, text
from mpijob.cli.root import cli
from mpijob.client import Client
from mpijob.errors import BackendError, Finding, Fix, InvalidJob, Kind, MpiJobError, NotAllowed, QuotaExceeded
from mpijob.model import (
    JobRef,
    JobState,
    LauncherPhase,
    LauncherState,
    LogLine,
    Phase,
    RankState,
    Role,
    WorkerState,
)

ROOT = Path(__file__).resolve().parents[3]
HOSTILE = "a\x1b[31mred\x1b]0;title\x07\u202egnp.exe\x9b2J\x7f"


@pytest.mark.thorough
@pytest.mark.security
@given(st.text())
def test_no_text_reaches_a_terminal_as_control_bytes(given_text: str) -> None:
    shown = text.visible(given_text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
    shown.encode("utf-8")


@pytest.mark.thorough
@pytest.mark.security
@given(st.text())
def test_json_stays_the_same_value_and_is_ascii(value: str) -> None:
    shown = as_json({"text": value.encode("utf-8", "replace").decode()})
    assert shown.isascii()
    assert "\x7f" not in shown
    assert json.loads(shown) == {"text": value.encode("utf-8", "replace").decode()}


@pytest.mark.security
@pytest.mark.parametrize(
    "words", [("list",), ("get", "j"), ("describe", "j"), ("list", "-o", "yaml"), ("list", "-o", "json")]
)
def test_hostile_descriptions_and_labels_are_made_visible(words: tuple[str, ...]) -> None:
    runner = Cli()
    runner.ok("create", "j", "--workers", "2", "--description", HOSTILE, "--", "true", "\x1b[31m\u202e")
    result = runner(*words)
    assert result.exit_code == 0, result.stderr
    assert not re.search("[\x1b\x07\x7f-\x9f\u202e]", result.output)


@pytest.mark.security
@pytest.mark.req("FR-009")
def test_control_bytes_in_logs_are_visible_unless_raw_is_asked_for() -> None:
    runner = Cli(MemoryBackend(script=Script(default=Outcome(lines=("\x1b[31mred",)))))
    runner.finished("j", "x")
    assert runner.ok("logs", "j", "--rank", "0") == "[Rank-0] \\x1b[31mred\n"
    assert runner.ok("logs", "j", "--rank", "0", "--raw", "--no-prefix") == "\x1b[31mred\n"


@pytest.mark.security
def test_bytes_that_are_not_utf8_are_written_out() -> None:
    assert text.visible(b"a\xff\xfeb\x00") == "a\\xff\\xfeb\\x00"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"),
        (0, "0.0s"),
        (4.21, "4.2s"),
        (9.96, "10s"),
        (64, "1m04s"),
        (3725, "1h02m"),
        (90000, "1d01h"),
        (-5, "0.0s"),
    ],
)
def test_durations_read_well(seconds: float | None, shown: str) -> None:
    assert text.duration(seconds) == shown


@pytest.mark.parametrize(
    ("age", "shown"),
    [(5, "5s ago"), (300, "5m ago"), (7300, "2h ago"), (86400 * 3, "3d ago"), (-9, "0s ago")],
)
def test_times_are_relative(age: float, shown: str) -> None:
    assert text.ago(1000.0 - age, 1000.0) == shown


@pytest.mark.parametrize(
    ("given_text", "seconds"),
    [("90", 90), ("1h30m", 5400), ("1.5h", 5400), ("x", None), ("1h 3m", None), ("-5", None), ("٣", None)],
)
def test_durations_are_read_back(given_text: str, seconds: float | None) -> None:
    assert text.seconds_of(given_text) == seconds


def test_number_lists_are_read_and_nonsense_is_refused() -> None:
    assert text.numbers("0-3,7,2") == (0, 1, 2, 3, 7)
    for nonsense in ("", "a", "3-1", "1-", "0-999999999"):
        with pytest.raises(ValueError, match="list of numbers"):
            text.numbers(nonsense)


def test_table_columns_line_up_for_wide_letters() -> None:
    lines = text.table(("A", "B"), [("日本", "x"), ("ab", "y\nz")])
    assert lines == ["A     B", "日本  x", "ab    y\\nz"]


class Terminal:
    def isatty(self) -> bool:
        return True


@pytest.mark.req("FR-010")
def test_colour_needs_a_terminal_that_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert painted("j Failed", Phase.FAILED, Terminal()) == "j \x1b[31mFailed\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert painted("j Failed", Phase.FAILED, Terminal()) == "j Failed"


def test_yaml_with_hostile_text_is_escaped_and_reads_back() -> None:
    import yaml

    shown = as_yaml({"a": HOSTILE, "b": "ü"})
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert yaml.safe_load(shown) == {"a": HOSTILE, "b": "ü"}


FINDING = Finding(
    "OOM", "worker 3 ran out of memory", evidence=("Killed\x1b",), fixes=(Fix("raise memory to 4Gi"),)
)


def test_a_finding_is_cause_evidence_and_fixes(capsys: pytest.CaptureFixture[str]) -> None:
    Output().findings((FINDING,))
    told = capsys.readouterr().err.splitlines()
    assert told == [
        "error: worker 3 ran out of memory [OOM]",
        "  seen: Killed\\x1b",
        "  fix:  raise memory to 4Gi",
    ]


class Broken(Client):
    """A client whose list fails as the test wants it."""

    error: Exception = RuntimeError("boom")

    def list(self, **wanted: Any) -> Any:
        raise self.error


def failing(error: Exception) -> Cli:
    return Cli(client=type("Failing", (Broken,), {"error": error}))


@pytest.mark.req("FR-010")
@pytest.mark.parametrize("kind", list(Kind))
def test_each_kind_of_error_has_its_exit_code(kind: Kind) -> None:
    error = type("Made", (MpiJobError,), {"kind": kind})("it went wrong", hint="do this")
    result = failing(error)("list")
    assert result.exit_code == exit_codes.STATUS[kind]
    assert result.stderr == "error: it went wrong\nhint: do this\n"
    assert result.stdout == ""


@pytest.mark.req("FR-010")
def test_the_exit_codes_are_the_promised_ones() -> None:
    errors = (InvalidJob("x"), NotAllowed("x"), QuotaExceeded("x"), BackendError("x"))
    assert [failing(error)("list").exit_code for error in errors] == [2, 4, 5, 6]


@pytest.mark.req("FR-010", "FR-030")
def test_an_error_for_a_program_is_json() -> None:
    result = failing(InvalidJob.of((FINDING,)))("list", "-o", "json")
    told = json.loads(result.stderr)
    assert set(told) == {"code", "message", "hint", "findings"}
    assert (told["code"], told["findings"][0]["fixes"][0]["text"]) == ("INVALID_JOB", "raise memory to 4Gi")


def test_a_usage_error_for_a_program_is_json_too() -> None:
    told = json.loads(Cli()("list", "--nonsense", "-o", "json").stderr)
    assert told["code"] == "USAGE"


def test_a_bug_of_ours_is_one_sentence_and_a_private_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = failing(RuntimeError("boom"))("list")
    (path,) = tmp_path.iterdir()
    assert (result.exit_code, len(result.stderr.splitlines())) == (70, 1)
    assert str(path) in result.stderr
    assert "RuntimeError: boom" in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    shown = failing(RuntimeError("boom"))("list", env={"MPIJOB_DEBUG": "1"})
    assert "Traceback" in shown.stderr


def test_an_interrupted_command_ends_with_130() -> None:
    class Interrupted(Client):
        def list(self, **wanted: Any) -> Any:
            raise KeyboardInterrupt

    result = Cli(client=Interrupted)("list")
    assert (result.exit_code, "interrupted" in result.stderr) == (130, True)


def test_the_exit_codes_are_documented_where_they_are_promised() -> None:
    page = pages.read("exit-codes")
    help_text = Cli().ok("--help-all")
    for code, meaning in exit_codes.MEANINGS.items():
        assert f"| {code} | {meaning} |" in page
        assert re.search(rf"^  {code} +{re.escape(meaning)}$", help_text, re.MULTILINE)
    assert set(exit_codes.STATUS.values()) <= set(exit_codes.MEANINGS)


def commands() -> list[tuple[str, click.Command]]:
    context = click.Context(cli, obj=App())
    found = [(name, cli.get_command(context, name)) for name in ENTRIES]
    return [(name, command) for name, command in found if command is not None]


def test_the_table_of_commands_says_what_the_commands_say() -> None:
    assert len(commands()) == len(ENTRIES)
    for name, command in commands():
        assert (command.name, command.get_short_help_str(200)) == (name, ENTRIES[name].help)


@pytest.mark.thorough
@pytest.mark.req("FR-UX-002")
@pytest.mark.parametrize("name", list(ENTRIES))
def test_help_uses_only_our_words(name: str) -> None:
    told = Cli().ok(name, "--help").lower()
    assert not re.search(r"\b(replicas?|masters?|slaves?|pods?)\b", told)


def test_a_near_miss_is_named() -> None:
    result = Cli()("lst")
    assert (result.exit_code, "did you mean 'list'?" in result.stderr) == (2, True)


@pytest.mark.req("FR-006", "E-cli", "FR-CLI-004")
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/usr/bin/mpijob", "mpijob"),
        ("/x/kubectl-mpijob", "kubectl mpijob"),
        ("oc-mpijob", "oc mpijob"),
        ("kubectl-odh-mpijob", "kubectl odh mpijob"),
        ("/x/oc-odh-mpijob", "oc odh mpijob"),
        ("/x/mpijob/__main__.py", "python -m mpijob"),
    ],
)
def test_the_usage_line_shows_the_words_that_were_typed(path: str, words: str) -> None:
    assert program_words(path) == words


def test_names_complete_and_completion_never_complains() -> None:
    from mpijob.cli.options import job_names

    runner = Cli()
    runner.finished("bert")
    context = click.Context(cli, obj=App(connect=runner.connect))
    assert job_names(context, click.Argument(["name"]), "be") == ["bert"]
    broken = click.Context(cli, obj=App(connect=failing(BackendError("down")).connect))
    assert job_names(broken, click.Argument(["name"]), "") == []


def a_state(**fields: Any) -> JobState:
    workers = (
        WorkerState(0, "w-0", Phase.RUNNING, cpu_cores=0.5, memory_bytes=2**20, memory_limit_bytes=2**30),
    )
    base: dict[str, Any] = {
        "ref": JobRef("default", "j"),
        "phase": Phase.RUNNING,
        "workers_wanted": 1,
        "created": 10.0,
    }
    return JobState(**{**base, "workers": workers, "ranks": (RankState(0, 0), RankState(1, 0)), **fields})


def drawn(renderable: Any) -> str:
    from io import StringIO

    from rich.console import Console

    page = StringIO()
    Console(file=page, width=120, no_color=True).print(renderable)
    return page.getvalue()


@pytest.mark.req("FR-CLI-002", "FR-020")
def test_the_live_screen_shows_phase_workers_ranks_and_last_lines() -> None:
    from mpijob.cli.render import live_view

    line = LogLine(time=1, text=b"[bold]loss \x1b[2J 0.5", role=Role.RANK, worker=0, rank=1)
    page = drawn(live_view.job(a_state(findings=(FINDING,)), (line,), 20.0))
    assert "j: Running, workers 1/1 Running" in page
    assert "0,1" in page
    assert "1 MiB of 1 GiB" in page
    assert "[Rank-1] [bold]loss \\x1b[2J 0.5" in page
    assert "worker 3 ran out of memory" in page


def test_the_live_list_shows_every_job() -> None:
    from mpijob.cli.render import live_view

    page = drawn(live_view.jobs([a_state(), a_state(ref=JobRef("default", "k"), phase=Phase.FAILED)], 20.0))
    assert [line.split()[:2] for line in page.splitlines()[1:3]] == [["j", "Running"], ["k", "Failed"]]


def test_structured_output_is_for_programs() -> None:
    assert [Output(format).structured for format in Format] == [False, False, True, True, False, False]


def test_a_worker_that_ended_well_itself_shows_how_its_rank_failed() -> None:
    workers = [
        WorkerState(index, f"w-{index}", Phase.FAILED, exit_code=code)
        for index, code in enumerate((0, 0, 255, 0))
    ]
    ends = ((127, False), (143, True), (3, False), (0, False))
    ranks = [RankState(at, at, exit_code=code, followed=followed) for at, (code, followed) in enumerate(ends)]
    state = JobState(
        ref=JobRef("default", "w"), phase=Phase.FAILED, workers=tuple(workers), ranks=tuple(ranks)
    )
    rows = [line for line in parts_tree.lines(state) if line.startswith("w-")]
    assert [row.split(maxsplit=3)[3].split("  ")[0] for row in rows] == ["127 (rank 0)", "0", "255", "0"]


@pytest.mark.req("R3", "FR-017", "C-tabs")
def test_the_parts_of_a_job_are_a_tree_of_launcher_workers_and_ranks() -> None:
    launcher = LauncherState(
        name="j-launcher-0-0-x7k2p", phase=LauncherPhase.RUNNING, node="n1", restarts=1, cores=0.5,
        memory_limit_bytes=1 << 28, log_source="pod/j-launcher-0-0-x7k2p/node",
    )  # fmt: skip
    workers = tuple(WorkerState(at, f"j-node-0-{at}", Phase.RUNNING, node=f"n{at}") for at in range(2))
    ranks = tuple(RankState(at, at // 2, node=f"n{at // 2}") for at in range(4))
    state = JobState(
        ref=JobRef("default", "j"), phase=Phase.RUNNING, launcher=launcher, workers=workers, ranks=ranks
    )
    header, first, *rest = parts_tree.lines(state)
    assert header.split()[:5] == ["PART", "PHASE", "NODE", "EXIT", "RESTARTS"]
    assert first.split() == [
        "j-launcher-0-0-x7k2p", "Running", "n1", "-", "1", "asks", "0.5", "limit", "256", "MiB", "-", "-",
    ]  # fmt: skip
    assert [line.split("  ")[0] for line in rest] == [
        "├─ j-node-0-0", "│", "│", "└─ j-node-0-1", "", "",
    ]  # fmt: skip
    assert [line[:13].strip() for line in rest if "rank" in line] == [
        "│  ├─ rank 0", "│  └─ rank 1", "├─ rank 2", "└─ rank 3",
    ]  # fmt: skip
