"""What a new user runs into: silence, half answers and questions that lead nowhere get a sentence instead."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli_support import Cli, a_file

from mpijob.backends.memory import MemoryBackend, Outcome, Script
from mpijob.client import AsyncClient, Client
from mpijob.client.submit.templates import load_job
from mpijob.errors import InvalidJob, NotFound, Unsupported
from mpijob.model import Amounts, Artifact, JobState, LogLine, LogQuery, MPIJob, Phase
from mpijob.observation.logs import filters

HANGS = Script(default=Outcome(hangs=True))


def busy(cli: Cli, *names: str, labels: str = "team=cv") -> Cli:
    for name in names:
        cli.ok("create", name, "--workers", "2", "--label", labels, "--", "x")
    return cli


# -- ctrl-c -------------------------------------------------------------------------------------------
class Impatient(MemoryBackend):
    """An engine whose user presses Ctrl-C at the first pause."""

    def pause(self, seconds: float) -> None:
        raise KeyboardInterrupt


LONG = MPIJob(name="long", workers=2, command=("x",))
WAITS: dict[str, Callable[[Client], object]] = {
    "wait": lambda client: client.submit(LONG).wait(),
    "wait_for_completion": lambda client: client.submit(LONG).wait_for_completion(),
    "run": lambda client: client.run(LONG),
}


@pytest.mark.parametrize("verb", WAITS)
def test_an_interrupted_wait_says_that_the_job_goes_on_and_how_it_is_ended(verb: str) -> None:
    client = Client(Impatient(script=HANGS))
    with pytest.raises(KeyboardInterrupt) as caught:
        WAITS[verb](client)
    assert caught.value.__notes__ == [
        "job 'long' is still running; to cancel it: client.cancel('long') or mpijob cancel long"
    ]
    assert not client.state("long").phase.final


def test_the_note_names_a_namespace_that_is_not_the_usual_one() -> None:
    client = Client(Impatient(script=HANGS), namespace="team")
    with pytest.raises(KeyboardInterrupt) as caught:
        client.run(LONG)
    assert caught.value.__notes__[0].endswith("mpijob cancel long -n team")


def test_ctrl_c_in_the_command_wait_says_it_too() -> None:
    cli = busy(Cli(Impatient(script=HANGS)), "long")
    result = cli("wait", "long")
    assert result.exit_code == 130
    assert "interrupted" in result.stderr
    assert "mpijob cancel long" in result.stderr


# -- logs ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        (LogQuery(ranks=(7,)), "has no rank 7: its ranks are 0-3"),
        (LogQuery(ranks=(0, 4, 5, 6, 9)), "has no ranks 4-6, 9: its ranks are 0-3"),
        (LogQuery(workers=(2,)), "has no worker 2: its workers are 0-1"),
        (LogQuery(attempt=3), "has no attempt 3: there was 1"),
        (LogQuery(ranks=(0, 3), workers=(1,), attempt=1), ""),
        (LogQuery(), ""),
    ],
)
def test_what_a_job_does_not_have_is_named(query: LogQuery, sentence: str) -> None:
    assert filters.missing_sources(query, ranks=4, workers=2, attempts=1) == sentence


def test_a_single_rank_is_called_the_only_one_and_what_is_not_known_is_not_judged() -> None:
    assert (
        filters.missing_sources(LogQuery(ranks=(1,)), ranks=1, workers=1, attempts=1)
        == "has no rank 1: rank 0 is its only one"
    )
    assert filters.missing_sources(LogQuery(ranks=(7,), workers=(7,)), ranks=0, workers=0, attempts=0) == ""


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        (("--rank", "7"), "job 'two' has no rank 7: its ranks are 0-1"),
        (("--worker", "5"), "job 'two' has no worker 5: its workers are 0-1"),
        (("--attempt", "2"), "job 'two' has no attempt 2: there was 1"),
    ],
)
def test_logs_of_a_rank_that_is_not_there_are_refused(option: tuple[str, str], sentence: str) -> None:
    cli = Cli()
    cli.finished("two")
    result = cli("logs", "two", *option)
    assert (result.exit_code, result.stdout) == (3, "")
    assert sentence in result.stderr
    assert cli.ok("logs", "two", "--rank", "1") == "[Rank-1] hello\n"


def test_the_async_client_refuses_them_too() -> None:
    async def ask() -> list[LogLine]:
        client = AsyncClient(MemoryBackend())
        await client.run(MPIJob(name="two", workers=2, command=("true",)))
        return [line async for line in client.logs("two", ranks=[7])]

    with pytest.raises(NotFound, match="no rank 7"):
        asyncio.run(ask())


def test_logs_that_follow_a_queued_job_say_what_it_waits_for() -> None:
    cli = Cli(MemoryBackend(capacity=Amounts(cores=3, memory_bytes=2**40)))
    cli.ok("create", "first", "--workers", "2", "--", "sleep", "5")
    cli.ok("create", "second", "--workers", "2", "--", "echo", "hi")
    result = cli("logs", "-f", "second")
    assert result.exit_code == 0
    assert sorted(result.stdout.splitlines()) == ["[Rank-0] hi", "[Rank-1] hi"]
    assert result.stderr.startswith("second: Queued, Waiting for")
    assert cli("logs", "-f", "first").stderr == ""


# -- several jobs at once -----------------------------------------------------------------------------
def test_a_name_that_is_not_known_does_not_keep_the_others_from_being_deleted() -> None:
    cli = busy(Cli(MemoryBackend(script=HANGS)), "a", "b")
    result = cli("delete", "a", "nope", "b")
    assert (result.exit_code, result.stdout) == (3, "a deleted\nb deleted\n")
    assert "no job 'nope'" in result.stderr


def test_the_worst_status_is_the_status_of_all() -> None:
    cli = busy(Cli(MemoryBackend(script=HANGS)), "a")
    cli.ok("cancel", "a")
    result = cli("suspend", "nope", "a")  # not found is 3, a conflict is 5
    assert result.exit_code == 5
    assert cli("cancel", "a", "nope").exit_code == 3


@pytest.mark.req("PMV-002")
def test_cancel_by_selector_touches_only_what_matches_and_has_not_ended() -> None:
    cli = busy(busy(Cli(MemoryBackend(script=HANGS)), "a", "b"), "other", labels="team=nlp")
    cli.ok("cancel", "a")
    refused = cli("cancel", "-l", "team=cv")
    assert (refused.exit_code, "Cancel 1 job?" in refused.stderr) == (2, True)  # nobody can be asked here
    assert cli.ok("cancel", "-l", "team=cv", "--yes").startswith("b Cancelled")
    assert not cli.connect().state("other").phase.final
    assert cli("cancel", "-l", "team=cv", "--yes").stderr == "no jobs found\n"
    assert cli.ok("cancel", "--all", "-y").startswith("other Cancelled")
    assert cli("cancel", "other", "--all").exit_code == 2
    assert cli("cancel").exit_code == 2


# -- run ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("verb", ["run", "create", "plan"])
@pytest.mark.parametrize("file", ["job.yaml", "job.YML", "dir/job.json"])
def test_a_job_file_without_its_flag_is_understood(verb: str, file: str) -> None:
    result = Cli()(verb, file)
    assert (result.exit_code, f"specify a job file with -f: -f {file}" in result.stderr) == (2, True)


class Leaves(Client):
    """A client whose jobs leave files."""

    files: tuple[str, ...] = ("model.npz", "loss.csv", "a.txt", "b.txt")

    def artifacts(self, name: Any, **more: Any) -> tuple[Artifact, ...]:
        return tuple(Artifact(path, 1, 0.0) for path in self.files)


class LeavesOne(Leaves):
    files = ("model.npz",)


class CannotLook(Client):
    def artifacts(self, name: Any, **more: Any) -> tuple[Artifact, ...]:
        raise Unsupported("there is no way to look")


@pytest.mark.parametrize(
    ("client", "told"),
    [
        (Leaves, "output files: model.npz, loss.csv, a.txt and 1 more; fetch: mpijob artifacts fetch j"),
        (LeavesOne, "output files: model.npz; fetch: mpijob artifacts fetch j"),
    ],
)
def test_a_run_ends_with_what_the_job_left(client: type[Client], told: str) -> None:
    cli = Cli(client=client)
    assert told in cli("run", "j", "--workers", "2", "--", "true").stderr.splitlines()
    assert "left" not in cli("run", "k", "--rm", "--workers", "2", "--", "true").stderr
    assert "left" not in cli("run", "m", "-o", "json", "--workers", "2", "--", "true").stderr


class LeavesTrouble(Leaves):
    files = ("two\nlines",)

    def fetch(self, name: Any, directory: Any, *more: Any, **options: Any) -> tuple[Path, ...]:
        return tuple(Path(directory, file) for file in self.files)


@pytest.mark.parametrize("words", [("fetch", "j", "--to", "."), ("list", "j", "-o", "name")])
def test_a_file_whose_name_has_a_newline_is_one_line(words: tuple[str, ...]) -> None:
    cli = Cli(client=LeavesTrouble)
    cli.ok("create", "j", "--workers", "2", "--", "true")
    assert cli.ok("artifacts", *words) == "two\\nlines\n"


@pytest.mark.parametrize("client", [Client, CannotLook])
def test_a_run_without_files_says_nothing_of_them(client: type[Client]) -> None:
    result = Cli(client=client)("run", "j", "--workers", "2", "--", "true")
    assert (result.exit_code, "left" in result.stderr) == (0, False)


def test_a_resumed_job_is_in_an_attempt_that_there_is() -> None:
    cli = busy(Cli(MemoryBackend(script=HANGS)), "j")
    cli.ok("suspend", "j")
    cli.ok("resume", "j")
    assert "2 of 2" in next(
        line for line in cli.ok("describe", "j").splitlines() if line.startswith("Attempt:")
    )
    assert "attempt 2 of 2" in cli.ok("cancel", "j")


def test_the_exit_of_a_rank_that_mpi_ended_is_shown_as_a_consequence() -> None:
    from mpijob.cli.render import parts_tree
    from mpijob.model import JobRef, RankState, WorkerState

    ranks = (RankState(0, 0, exit_code=137, followed=True), RankState(1, 0, exit_code=3))
    workers = (WorkerState(0, "w", Phase.FAILED),)
    state = JobState(ref=JobRef("default", "j"), phase=Phase.FAILED, workers=workers, ranks=ranks)
    *_, first, second = parts_tree.lines(state)
    assert [line.split()[1:] for line in (first, second)] == [
        ["rank", "0", "-", "137", "(consequence)", "-"],
        ["rank", "1", "-", "3", "-"],
    ]


# -- everything that is wrong in one answer -----------------------------------------------------------
WRONG = """\
name: My_Job
workrs: 2
slots: many
comand: python train.py
resources: {memory: lots}
retry: {limit: -1}
"""
LINES = {1: "cannot be a name", 2: "unknown field", 3: "expected a whole number", 4: "unknown field",
         5: "is not an amount", 6: "retries requested"}  # fmt: skip


def check_all_told(findings: Any) -> None:
    told = {finding["line"]: finding["message"] for finding in findings}
    assert told.keys() == LINES.keys()
    assert all(words in told[line] for line, words in LINES.items())


def test_a_file_is_refused_once_for_all_that_is_wrong_in_it(tmp_path: Path) -> None:
    file = a_file(tmp_path, WRONG)
    result = Cli()("create", "-f", file, "-o", "json")
    assert result.exit_code == 2
    check_all_told(json.loads(result.stderr)["findings"])
    with pytest.raises(InvalidJob) as caught:
        load_job(file)
    check_all_told([{"line": f.line, "message": f.message} for f in caught.value.findings])


def test_flags_over_such_a_file_are_judged_with_it(tmp_path: Path) -> None:
    result = Cli()("create", "-f", a_file(tmp_path, WRONG), "--slots", "0", "-o", "json")
    found = json.loads(result.stderr)["findings"]
    assert {finding["field"] for finding in found} == {
        "name", "workrs", "comand", "resources.memory", "retry.limit", "slots",
    }  # fmt: skip
    assert [finding.get("line") for finding in found if finding["field"] == "slots"] == [None]


def test_a_command_line_is_refused_once_too() -> None:
    result = Cli()("create", "X_Y", "--workers", "0", "--mpi", "nope", "-o", "json", "--", "true")
    assert {finding["field"] for finding in json.loads(result.stderr)["findings"]} == {
        "name",
        "workers",
        "mpi",
    }


@pytest.mark.parametrize(
    "text", ["name: [", "- a\n- b\n", "", "kind: Pod\napiVersion: v1\nmetadata: {name: x}\n"]
)
def test_a_file_that_is_no_job_is_refused_for_that_alone(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        load_job(a_file(tmp_path, text))
    assert len(caught.value.findings) == 1


# -- explain ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("word", "path"),
    [("map_by", "launch.map_by"), ("factor", "retry.factor"), ("workers", "workers")],
)
def test_explain_finds_a_field_by_its_last_name(word: str, path: str) -> None:
    assert Cli().json("explain", word)["path"] == path


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("mapby", "did you mean launch.map_by?"),
        ("memory", "did you mean resources.memory or launcher.memory?"),
        ("lnch.map_by", "did you mean launch.map_by?"),
        ("UNKOWN_HOST", "did you mean UNKNOWN_HOST?"),
    ],
)
def test_explain_guesses(word: str, hint: str) -> None:
    result = Cli()("explain", word)
    assert (result.exit_code, hint in result.stderr) == (3, True)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("UNKNOWN_HOST", "A host name does not resolve"),
        ("rank_exit", "A rank exited with an error code"),
        ("BAD_NAME", "Fields: name, workers"),
        ("CONFLICT", "conflicts with the current state"),
        ("UNKNOWN", "The cause is not recognised"),
    ],
)
def test_explain_knows_the_codes(code: str, words: str) -> None:
    assert words in Cli().ok("explain", code)
    assert words in Cli().json("explain", code)["text"]
