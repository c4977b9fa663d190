"""Each command asks the client and shows its answer, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.unit.cli_support import Cli, a_file

from mpijob.backends import s3_volumes
from mpijob.backends.memory import MemoryBackend
from mpijob.client import Client
from mpijob.errors import NotAllowed
from mpijob.model import Amounts, Facts, JobRef, LogLine, LogQuery, MPIJob, Quota


@pytest.fixture
def cli() -> Cli:
    made = Cli()
    made.finished("one")
    made.finished("two", "sh", "-c", "exit 7")
    return made


@pytest.mark.req("FR-010", "FR-CLI-001", "FR-002")
def test_list_is_a_table_newest_first(cli: Cli) -> None:
    header, *rows = cli.ok("list").splitlines()
    assert header.split() == ["NAME", "PHASE", "WORKERS", "RANKS", "AGE", "DURATION", "REASON"]
    assert [row.split()[:2] for row in rows] == [["two", "Failed"], ["one", "Succeeded"]]
    assert cli.ok("ls") == cli.ok("list")


@pytest.mark.req("FR-010")
def test_list_speaks_json_yaml_wide_and_names(cli: Cli) -> None:
    page = cli.json("list")
    assert [item["ref"]["name"] for item in page["items"]] == ["two", "one"]
    assert yaml.safe_load(cli.ok("list", "-o", "yaml")) == page
    assert cli.ok("list", "-o", "name") == "two\none\n"
    assert "OWNER" in cli.ok("list", "-o", "wide").splitlines()[0]


def test_list_filters_and_pages(cli: Cli) -> None:
    assert cli.ok("list", "--phase", "failed", "-o", "name") == "two\n"
    result = cli("list", "--limit", "1", "-o", "name")
    assert result.stdout == "two\n"
    assert "2 jobs in total" in result.stderr
    cursor = result.stderr.rpartition(" ")[2].strip()
    assert cli.ok("list", "--limit", "1", "--after", cursor, "-o", "name") == "one\n"


@pytest.mark.parametrize(
    "line",
    [
        ("list", "--after", "abc"),
        ("schedule", "fire", "--document", "{}"),
        ("data", "fetch", "env:bar", "/dev/null/x"),
    ],
)
def test_what_a_user_gets_wrong_is_no_bug(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, line: tuple[str, ...]
) -> None:
    for name in s3_volumes.VARIABLES.values():
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    told = cli(*line)
    assert (told.exit_code not in (0, 70), "hint:" in told.stderr) == (True, True), told.stderr


def test_a_time_before_all_jobs_means_from_the_beginning(cli: Cli) -> None:
    assert "two" in cli.ok("acct", "list", "--since", "999999999999999999999d")
    assert "two" in cli.ok("acct", "list", "--since", "1200-01-01")


def test_an_empty_list_is_said_on_stderr_alone() -> None:
    result = Cli()("list")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no jobs found\n")


def test_namespaces_are_kept_apart(cli: Cli) -> None:
    cli.ok("create", "far", "-n", "team", "--workers", "2", "--", "true")
    assert cli.ok("list", "-n", "team", "-o", "name") == "far\n"
    assert cli.ok("list", "-A", "-o", "name") == "team/far\ndefault/two\ndefault/one\n"
    assert cli("get", "far").exit_code == 3


def test_get_is_one_state_or_several(cli: Cli) -> None:
    assert cli.json("get", "one")["phase"] == "Succeeded"
    assert [state["phase"] for state in cli.json("get", "one", "two")] == ["Succeeded", "Failed"]


@pytest.mark.req("FR-OBS-005", "B-5", "AC3")
def test_describe_tells_state_workers_ranks_spec_events_and_findings(cli: Cli) -> None:
    told = cli.ok("describe", "two")
    for title in ("Launcher, workers and ranks:", "Spec:", "Events:", "Findings:"):
        assert title in told
    assert "worker 0 failed: rank 0 ended with exit code 7" in told
    parts = {"state", "spec", "findings", "warnings", "events", "encryption"}
    assert set(cli.json("describe", "two")) == parts
    assert "starting ranks, MPI data: stays on this machine" in told


class Closed(MemoryBackend):
    """An engine whose lines this user may not read."""

    def logs(self, ref: JobRef, query: LogQuery) -> Iterator[LogLine]:
        raise NotAllowed(f"cannot read the logs of {ref.name}")
        yield  # pragma: no cover - it is an iterator


@pytest.mark.req("A-edge-403")
def test_describe_shows_the_rest_to_who_may_not_read_the_lines() -> None:
    cli = Cli(Closed())
    cli.ok("create", "j", "--workers", "2", "--", "true")
    cli.connect().wait("j")
    assert "Succeeded" in cli.ok("describe", "j")
    assert cli("logs", "j").exit_code == 4


@pytest.mark.req("FR-021", "FR-009", "FR-OBS-002")
def test_logs_are_filtered_by_rank_pattern_and_tail(cli: Cli) -> None:
    cli.finished("said", "sh", "-c", "echo a; sleep 1; echo b")
    assert cli.ok("logs", "said", "--rank", "1").splitlines() == ["[Rank-1] a", "[Rank-1] b"]
    assert cli.ok("logs", "said", "--grep", "^b", "--no-prefix").splitlines() == ["b", "b"]
    assert len(cli.ok("logs", "said", "--tail", "1").splitlines()) == 1
    assert cli.ok("logs", "said", "--worker", "0-1", "--role", "launcher") == ""
    assert cli.ok("logs", "said", "--since", "1h", "--until", "2020-01-01") == ""
    assert cli.ok("logs", "said", "--rank", "0", "--timestamps").startswith("2023-11-14T22:1")


@pytest.mark.req("D-loglabels")
def test_logs_are_json_lines_with_the_rank(cli: Cli) -> None:
    lines = [json.loads(line) for line in cli.ok("logs", "one", "-o", "json").splitlines()]
    assert [(line["rank"], line["text"]) for line in lines] == [(0, "hello"), (1, "hello")]


@pytest.mark.req("D-events", "FR-OBS-003")
def test_events_are_told_in_order(cli: Cli) -> None:
    reasons = [json.loads(line)["reason"] for line in cli.ok("events", "one", "-o", "json").splitlines()]
    assert (reasons[0], reasons[-1]) == ("Submitted", "Succeeded")
    assert "Launcher discovered 2 workers" in cli.ok("events", "one")


def test_top_shows_what_workers_use(cli: Cli) -> None:
    lines = cli.ok("top", "one").splitlines()
    named = ["JOB", "WORKER", "CPU", "MEMORY", "GPUS", "NETWORK", "IO-WAIT", "MPI-TIME", "MEASURED"]
    assert lines[0].split() == named
    assert lines[1].split()[:5] == ["one", "0", "0.90", "512", "MiB"]
    assert cli.json("top", "one")["one"][0]["worker"] == 0
    assert "no job is running" in cli("top").stderr


@pytest.mark.req("FR-002", "R1")
def test_a_job_is_suspended_resumed_cancelled_and_deleted() -> None:
    cli = Cli()
    cli.ok("create", "j", "--workers", "2", "--", "sleep", "100")
    assert cli.json("suspend", "j")["phase"] == "Suspended"
    assert cli.json("resume", "j")["attempt"] == 2
    assert cli.ok("cancel", "j").startswith("j Cancelled")
    assert cli.ok("delete", "j") == "j deleted\n"
    assert cli("get", "j").exit_code == 3
    assert cli("cancel").exit_code == 2


@pytest.mark.req("PMV-002")
def test_delete_by_selector_touches_only_what_matches(cli: Cli) -> None:
    cli.ok("create", "mine", "--workers", "2", "--label", "team=cv", "--", "true")
    assert cli.ok("delete", "-l", "team=cv", "--yes") == "mine deleted\n"
    assert cli.ok("list", "-o", "name") == "two\none\n"
    assert "no jobs found" in cli("delete", "-l", "team=cv", "--yes").stderr


@pytest.mark.security
def test_delete_all_is_refused_where_nobody_can_be_asked(cli: Cli) -> None:
    result = cli("delete", "--all")
    assert (result.exit_code, "add --yes" in result.stderr) == (2, True)
    assert cli("delete").exit_code == 2
    assert cli("delete", "one", "--all", "--yes").exit_code == 2
    assert cli.ok("list", "-o", "name") == "two\none\n"
    assert cli.ok("delete", "--all", "--yes", "-o", "name") == "two\none\n"


@pytest.mark.parametrize(("answer", "left", "status"), [("n\n", "two\none\n", 130), ("y\n", "", 0)])
def test_delete_all_asks_on_a_terminal(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, answer: str, left: str, status: int
) -> None:
    monkeypatch.setattr("mpijob.cli.options.someone_is_there", lambda: True)
    result = cli("delete", "--all", stdin=answer)
    assert (result.exit_code, "Delete 2 jobs?" in result.stderr) == (status, True)
    assert cli.ok("list", "-o", "name") == left


@pytest.mark.req("B-retry")
def test_retry_runs_a_finished_job_again(cli: Cli) -> None:
    assert cli.json("retry", "two")["phase"] == "Pending"
    refused = cli("retry", "two")
    assert refused.exit_code == 5


@pytest.mark.req("B-retry")
@pytest.mark.parametrize(("program", "status", "end"), [("true", 0, "Succeeded"), ("false", 1, "Failed")])
def test_retry_follows_to_the_end_where_asked(program: str, status: int, end: str) -> None:
    cli = Cli()
    cli.ok("create", "job", "--workers", "2", "--", program)
    cli("wait", "job")
    followed = cli("retry", "job", "--follow")
    assert (followed.exit_code, f"job {end}" in followed.stderr) == (status, True)
    assert "logs -f job" in cli("retry", "job").stderr
    assert cli("retry", "job", "--follow", "-o", "yaml").exit_code == 2


@pytest.mark.req("B-retry", "B-story5")
def test_clone_keeps_the_rest_and_changes_what_is_said(cli: Cli) -> None:
    cli.ok("create", "base", "--workers", "2", "--env", "A=1", "--env", "B=1", "--", "echo", "x")
    made = cli.json("clone", "base", "copy", "--workers", "3", "--env", "B=2", "--", "echo", "y")
    spec = cli.connect().spec("copy")
    assert (made["ref"]["name"], spec.workers, spec.command) == ("copy", 3, ("echo", "y"))
    assert spec.env == {"A": "1", "B": "2"}
    assert cli.json("clone", "base")["ref"]["name"] == "base-2"


def test_clone_replaces_a_job_that_has_ended(cli: Cli) -> None:
    assert cli.json("clone", "one", "--replace", "--workers", "3")["workers_wanted"] == 3


@pytest.mark.req("PMV-003")
def test_compare_shows_what_differs(cli: Cli) -> None:
    told = cli.ok("compare", "one", "two")
    rows = {line.split()[0]: line for line in told.splitlines()}
    assert rows["phase"].split() == ["phase", "Succeeded", "Failed"]
    assert '["echo","hello"]' in rows["command"]
    assert cli("compare", "one").exit_code == 2


@pytest.mark.req("B-export", "FR-007")
def test_an_exported_job_can_be_created_again(cli: Cli, tmp_path: Path) -> None:
    path = a_file(tmp_path, cli.ok("export", "one"))
    cli.ok("create", "again", "-f", path)
    assert cli.connect().spec("again").replace(name="one") == cli.connect().spec("one")
    assert json.loads(cli.ok("export", "one", "-o", "json"))["name"] == "one"


def test_an_array_makes_a_job_for_each_combination() -> None:
    cli = Cli()
    flags = ("--workers", "2", "--values", "env.LR=0.10,0.01", "--values", "workers=2,3")
    made = json.loads(cli("array", "sweep", *flags, "-o", "json", "--", "true").stdout)
    specs = [cli.connect().spec(state["ref"]["name"]) for state in made]
    assert [(spec.env["LR"], spec.workers) for spec in specs] == [
        ("0.10", 2),
        ("0.10", 3),
        ("0.01", 2),
        ("0.01", 3),
    ]
    assert cli("array", "sweep", "--", "true").exit_code == 2


@pytest.mark.req("B-dryrun")
def test_a_dry_run_shows_the_plan_and_creates_nothing() -> None:
    cli = Cli()
    words = ("j", "--workers", "3", "--slots", "2", "--", "true")
    shown = cli.ok("create", "--dry-run", *words)
    assert shown == cli.ok("plan", *words)
    assert "6 ranks on 3 workers" in shown
    judged = "memory has no server-side dry run"
    assert judged in cli.ok("create", "--dry-run", "--server", *words)
    assert judged in cli.ok("plan", "--server", *words)
    assert cli("create", "--server", *words).exit_code == 2
    assert cli.ok("list", "-o", "name") == ""


@pytest.mark.req("B-edge-pending", "FR-RES-005")
def test_the_queue_is_shown_in_order() -> None:
    cli = Cli(MemoryBackend(capacity=Amounts(cores=3, memory_bytes=2**40)))
    for name in ("a", "b", "c"):
        cli.ok("create", name, "--workers", "2", "--", "sleep", "9")
    rows = cli.ok("queue").splitlines()[1:]
    assert [row.split()[1] for row in rows] == ["b", "c"]
    assert "Waiting for" in rows[0]
    assert [state["ref"]["name"] for state in cli.json("queue")] == ["b", "c"]


class Knowing(Client):
    """A client that tells what the place says of itself."""

    def facts(self, job: MPIJob | None = None) -> Facts:
        free = Amounts(cores=1, memory_bytes=2**30)
        quota = Quota(namespace="default", cores=8, used=Amounts(cores=2), jobs=3, jobs_running=1)
        return Facts(place="memory", capacity=Amounts(cores=4, memory_bytes=2**32), free=free, quota=quota)


def test_quota_shows_what_is_used_of_each_limit() -> None:
    told = Cli(client=Knowing).ok("quota")
    assert "4 cores, 4 GiB" in told
    assert [line.split() for line in told.splitlines()[-4:]] == [
        ["cores", "2", "8"],
        ["memory", "0", "B", "none"],
        ["GPUs", "0", "none"],
        ["jobs", "1", "3"],
    ]


@pytest.mark.req("PMV-001")
def test_templates_are_saved_listed_used_and_deleted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    cli = Cli()
    assert (
        cli.ok("template", "save", "base", "proto", "--workers", "2", "--env", "A=1", "--", "true")
        == "base saved\n"
    )
    assert "base" in cli.ok("template", "list", "-o", "name").splitlines()
    assert "workers: 2" in cli.ok("template", "show", "base")
    made = cli.json("template", "use", "base", "mine", "--workers", "3")
    assert (made["ref"]["name"], made["workers_wanted"]) == ("mine", 3)
    cli.ok("template", "save", "copy", "--from", "mine")
    assert cli.connect().templates.show("copy").env == {"A": "1"}
    assert cli("template", "save", "copy", "--from", "mine").exit_code == 5
    cli.ok("template", "delete", "base")
    assert cli("template", "show", "base").exit_code == 3


@pytest.mark.req("C-explain")
def test_explain_tells_a_field_and_its_flag() -> None:
    told = Cli().ok("explain", "launch.map_by")
    assert "--map-by" in told
    assert "workers" in Cli().ok("explain")
    missing = Cli()("explain", "workerz")
    assert (missing.exit_code, "workers" in missing.stderr) == (3, True)


def test_schema_version_and_completion_are_printed() -> None:
    assert json.loads(Cli().ok("schema"))["title"] == "MPIJob"
    assert Cli().ok("version").startswith("mpijob 0.")
    assert "_MPIJOB_COMPLETE" in Cli().ok("completion", "zsh")


def test_artifacts_of_a_job_that_left_none_are_an_empty_list() -> None:
    cli = Cli()
    cli.ok("create", "j", "--workers", "2", "--", "true")
    assert cli.json("artifacts", "list", "j") == []
    assert cli.ok("artifacts", "fetch", "j") == ""


def test_a_number_after_n_is_not_taken_for_a_namespace() -> None:
    refused = Cli()("run", "j", "-n", "2", "--", "true")
    assert refused.exit_code == 2
    assert "--ranks 2" in refused.stderr
