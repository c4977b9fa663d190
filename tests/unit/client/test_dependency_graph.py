"""Jobs that wait for each other: their order, what a circle is told, files with several jobs, a cluster's words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cli_support import Cli, a_file
from tests.unit.cluster_support import a_rich_job

from mpijob import Client, MPIJob, Phase
from mpijob.backends.memory import MemoryBackend
from mpijob.client.submit import dependency_graph
from mpijob.errors import InvalidJob
from mpijob.formats.kubernetes import mpijob, trainjob
from mpijob.formats.kubernetes.metadata import controller_notes
from mpijob.formats.kubernetes.metadata.well_known import AFTER_ANNOTATION, QUEUE_LABEL
from mpijob.model import JobRef
from mpijob.model.spec.dependencies import Dependency, judge, sentence

DIAMOND = """\
name: report
workers: 2
command: [echo, report]
after: [train, evaluate]
---
name: train
workers: 2
command: [echo, train]
after: [prepare]
---
name: evaluate
workers: 2
command: [echo, evaluate]
after: [prepare]
---
name: prepare
workers: 2
command: [echo, prepare]
"""


def job(name: str, *after: str, **fields: Any) -> MPIJob:
    return MPIJob(name=name, workers=2, command=("true",), after=after, **fields)


@pytest.mark.thorough
@given(st.lists(st.lists(st.integers(0, 11), max_size=4), max_size=12))
def test_every_job_stands_behind_those_that_it_waits_for(waits: list[list[int]]) -> None:
    jobs = [
        job(f"j{index}", *{f"j{other}" for other in others if other < index})
        for index, others in enumerate(waits)
    ]
    order = [one.name for one in dependency_graph.ordered(reversed(jobs))]
    assert sorted(order) == sorted(one.name for one in jobs)
    for one in jobs:
        assert all(order.index(name) < order.index(one.name) for name in one.after)


def test_jobs_in_a_circle_are_refused_by_name() -> None:
    with pytest.raises(InvalidJob, match=r"dependency cycle: ('a' → 'b' → 'a'|'b' → 'a' → 'b')"):
        dependency_graph.ordered([job("a", "b"), job("b", "a")])
    with pytest.raises(InvalidJob, match="two jobs have the name 'a'"):
        dependency_graph.ordered([job("a"), job("a")])


def test_nothing_is_created_when_one_job_of_several_is_not_sound() -> None:
    client = Client(MemoryBackend())
    with pytest.raises(InvalidJob):
        client.submit_all([job("a"), job("b", "a").replace(workers=0)])
    assert client.list().total == 0


@pytest.mark.req("PMV-004")
def test_a_file_with_several_jobs_runs_in_the_order_of_their_waits(tmp_path: Path) -> None:
    cli = Cli()
    done = cli("run", "-f", a_file(tmp_path, DIAMOND))
    assert done.exit_code == 0, done.stderr
    said = [line.split()[-1] for line in done.stdout.splitlines() if line.startswith("[Rank-0]")]
    assert (said[0], set(said[1:3]), said[3]) == ("prepare", {"train", "evaluate"}, "report")
    started = {state.ref.name: state.started or 0.0 for state in cli.connect().jobs()}
    assert started["prepare"] < started["train"] <= started["report"]


@pytest.mark.req("PMV-004")
def test_the_failure_of_one_job_of_a_file_is_the_status_of_all(tmp_path: Path) -> None:
    cli = Cli()
    done = cli("run", "-f", a_file(tmp_path, DIAMOND.replace("[echo, prepare]", "['false']")))
    assert done.exit_code == 1
    assert "not started: job 'prepare', which it waits for, failed" in done.stderr
    phases = {state.ref.name: state.phase for state in cli.connect().jobs()}
    assert set(phases.values()) == {Phase.FAILED}


def test_a_file_with_several_jobs_is_planned_created_and_takes_no_flags(tmp_path: Path) -> None:
    cli, file = Cli(), a_file(tmp_path, DIAMOND)
    assert cli("create", "-f", file, "--dry-run").exit_code == 0
    assert cli("plan", "-f", file).exit_code == 0
    assert cli.connect().list().total == 0
    refused = cli("create", "-f", file, "--workers", "3")
    assert refused.exit_code == 2
    assert "holds several jobs" in refused.stderr
    listed = cli.ok("create", "-f", file, "-n", "team-a")
    assert next(line.split()[0] for line in listed.splitlines()[1:]) == "prepare"
    assert {state.ref.namespace for state in cli.connect().jobs(all_namespaces=True)} == {"team-a"}


def two_files(tmp_path: Path) -> tuple[str, ...]:
    for name in ("one", "two"):
        (tmp_path / f"{name}.sh").write_text(f"echo {name}")
        (tmp_path / f"{name}.yaml").write_text(
            f"name: {name}\nworkers: 2\ncommand: [sh, {name}.sh]\ncode: {{path: .}}\n"
        )
    return tuple(word for name in ("one", "two") for word in ("-f", str(tmp_path / f"{name}.yaml")))


def test_several_files_are_all_run_created_and_planned_in_their_order(tmp_path: Path) -> None:
    files = two_files(tmp_path)
    planned = Cli().ok("plan", *files)
    assert planned.index("one-worker-0") < planned.index("two-worker-0")
    assert Cli().ok("create", "--dry-run", *files) == planned
    listed = Cli().ok("create", *files, "-f", a_file(tmp_path, DIAMOND))
    assert sorted(line.split()[0] for line in listed.splitlines()[1:]) == [
        "evaluate", "one", "prepare", "report", "train", "two"]  # fmt: skip
    cli = Cli()
    done = cli("run", *files, "-n", "team-a")
    assert done.exit_code == 0
    assert done.stderr.index("-- one") < done.stderr.index("-- two")
    states = list(cli.connect().jobs(all_namespaces=True))
    assert {(one.ref.name, one.ref.namespace) for one in states} == {("one", "team-a"), ("two", "team-a")}
    assert cli.connect().spec("two", "team-a").code.path == str(tmp_path.resolve())


def test_the_failure_of_one_file_is_the_status_of_all_and_a_wrong_one_stops_them(tmp_path: Path) -> None:
    files = two_files(tmp_path)
    (tmp_path / "one.yaml").write_text("name: one\nworkers: 2\ncommand: ['false']\n")
    assert Cli()("run", *files).exit_code == 1
    (tmp_path / "two.yaml").write_text("name: two\nworkerz: 2\n")
    cli = Cli()
    refused = cli("create", *files)
    assert refused.exit_code == 2
    assert f"{tmp_path / 'two.yaml'}:2:1" in refused.stderr
    assert cli.connect().list().total == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", "--workers", "3"), "2 files hold several jobs: NAME and flags cannot be used with them"),
        (("schedule", "create", "--when", "@daily"), "this command accepts one job file only: -f "),
        (("array", "--values", "env.LR=1,2"), "this command accepts one job file only: -f "),
        (("alloc",), "this command accepts one job file only: -f "),
        (("template", "save", "mine"), "this command accepts one job file only: -f "),
    ],
)
def test_a_second_file_is_refused_where_it_would_be_left_out(
    tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    refused = Cli()(*words, *two_files(tmp_path))
    assert refused.exit_code == 2
    assert told in refused.stderr


@pytest.mark.req("PMV-004")
def test_after_is_a_flag_as_sbatch_has_it() -> None:
    cli = Cli()
    cli.finished("prepare")
    cli.ok("run", "train", "--workers", "2", "--after", "prepare", "--", "true")
    refused = cli("create", "next", "--workers", "2", "--after", "nobody", "--", "true")
    assert refused.exit_code == 5
    assert "which does not exist" in refused.stderr


def test_a_job_that_was_cancelled_or_deleted_ends_what_waits_for_it() -> None:
    client = Client(MemoryBackend())
    hangs = {"memory.mpijob/outcome": "hangs"}
    first = client.submit(job("first", labels=hangs))
    second = first.then(job("second"))
    first.cancel()
    assert second.wait(60).message == "not started: job 'first', which it waits for, was cancelled"
    third = client.submit(job("third", labels=hangs))
    fourth = third.then(job("fourth"))
    third.delete()
    assert "was deleted before it succeeded" in fourth.wait(60).message


def test_a_later_job_of_the_same_name_is_not_the_one_that_was_meant() -> None:
    ref = JobRef("default", "first", "uid-1")
    assert judge("second", [Dependency(ref, Phase.RUNNING)]).waits == ("first",)
    assert judge("second", [Dependency(ref, Phase.SUCCEEDED)]) == ((), None)
    assert sentence(("a", "b", "c")) == "Waiting for jobs 'a', 'b' and 'c' to succeed"


# -- a cluster's words ---------------------------------------------------------------------------------
@pytest.mark.parametrize("dialect", [trainjob, mpijob])
@pytest.mark.parametrize("queue", ["", "main"])
def test_a_job_that_waits_is_suspended_outside_its_queue_and_still_reads_back(
    dialect: Any, queue: str
) -> None:
    wanted = a_rich_job(queue=queue, after=("prepare",))
    documents = [*dialect.write(wanted)]
    controller_notes.hold(documents[-1], ["prepare"], [JobRef("team-cv", "prepare", "uid-1")])
    held = documents[-1]
    assert QUEUE_LABEL not in held["metadata"]["labels"]
    assert dialect.read(documents).job == wanted
    note = controller_notes.read(held)
    assert note is not None
    assert note.jobs == {"prepare": "uid-1"}
    patch = controller_notes.release(held, note)
    assert patch["metadata"]["annotations"] == {AFTER_ANNOTATION: None}
    if queue:
        assert patch["metadata"]["labels"] == {QUEUE_LABEL: "main"}
        assert "spec" not in patch  # its queue starts it
    else:
        assert "False" in str(patch["spec"])


@pytest.mark.security
@pytest.mark.parametrize("text", ["", "nonsense", "[]", '{"jobs": 3}'])
def test_a_note_that_somebody_else_wrote_is_no_note(text: str) -> None:
    assert controller_notes.read({"metadata": {"annotations": {AFTER_ANNOTATION: text}}}) is None


@pytest.mark.req("FR-INT-004")
def test_the_pull_policy_stands_in_every_container_and_reads_back() -> None:
    wanted = a_rich_job(pull_policy="Never")
    documents = trainjob.write(wanted)
    assert str(documents).count("'imagePullPolicy': 'Never'") == 4
    assert trainjob.read(documents).job == wanted
    assert "imagePullPolicy" not in str(trainjob.write(a_rich_job()))
    with pytest.raises(InvalidJob, match="'Sometimes' is not a pull policy"):
        Client(MemoryBackend()).plan(job("a", pull_policy="Sometimes"))
