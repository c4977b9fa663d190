"""Flags and files become one job: every field has a flag, flags win, errors read the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from tests.unit.cli_support import Cli, a_file

from mpijob.cli.arguments import flag_values
from mpijob.cli.arguments.flags import ELSEWHERE, FLAGS, SWITCHES
from mpijob.model import CustomLaunch, Elastic, Model, MPIJob
from mpijob.model.spec.job import Concurrency

OPTIONAL: dict[str, type[msgspec.Struct]] = {
    "concurrency": Concurrency,
    "launch.custom": CustomLaunch,
    "elastic": Elastic,
    "model": Model,
}


def leaves(kind: type[msgspec.Struct], prefix: str = "") -> list[str]:
    """Return the paths of all fields of the model."""
    found = []
    for field in msgspec.structs.fields(kind):
        path = prefix + field.name
        inner = OPTIONAL.get(path, type(field.default))
        if issubclass(inner, msgspec.Struct):
            found += leaves(inner, f"{path}.")
        else:
            found.append(path)
    return found


def spec_of(*words: str, stdin: str | None = None) -> dict[str, Any]:
    """Return the job that a command line describes."""
    cli = Cli()
    result = cli("create", *words, stdin=stdin)
    assert result.exit_code == 0, result.stderr
    name = result.stdout.split(":")[0]
    spec: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(cli.connect().spec(name)))
    return spec


REACHED = {flag.path for flag in FLAGS} | {switch.path for switch in SWITCHES} | set(ELSEWHERE)


@pytest.mark.req("AC10-parity", "FR-003", "FR-029")
@pytest.mark.parametrize("path", leaves(MPIJob))
def test_each_field_of_the_model_has_a_flag(path: str) -> None:
    assert path in REACHED or path.rpartition(".")[0] in REACHED


@pytest.mark.thorough
@pytest.mark.parametrize("path", sorted(REACHED))
def test_each_flag_sets_a_field_that_exists(path: str) -> None:
    assert any(leaf == path or leaf.startswith(f"{path}.") for leaf in leaves(MPIJob))


def test_no_flag_is_given_twice() -> None:
    options = [flag.option for flag in FLAGS] + [switch.option for switch in SWITCHES]
    assert len(options) == len(set(options))


SAID: list[tuple[tuple[str, ...], str, Any]] = [
    (("--slots", "2"), "slots", 2),
    (("--mpi", "openmpi"), "mpi", "openmpi"),
    (("--max-workers", "8"), "elastic", {"max_workers": 8}),
    (("--min-workers", "2", "--max-workers", "8"), "elastic.min_workers", 2),
    (("--set", "btl=tcp,self", "--set", "a=b"), "launch.settings", {"btl": "tcp,self", "a": "b"}),
    (("--flag", "--verbose"), "launch.flags", ["--verbose"]),
    (("--env", "LR=0.10"), "env", {"LR": "0.10"}),
    (("--env", "X=a=b"), "env", {"X": "a=b"}),
    (("--secret", "TOKEN=env:HOME"), "secrets", [{"env": "TOKEN", "source": "env:HOME"}]),
    (("--cpu", "500m", "--memory", "2Gi"), "resources.cpu", "500m"),
    (("--launcher-cpu", "2"), "launcher.cpu", "2"),
    (("--label", "team=cv"), "labels", {"team": "cv"}),
    (("--retry", "3", "--backoff", "1m"), "retry", {"limit": 3, "backoff_seconds": 60.0}),
    (("--deadline", "1h30m"), "deadline_seconds", 5400.0),
    (("--deadline", "2h", "--signal", "USR1@120"), "signal", {"name": "USR1", "seconds_before": 120.0}),
    (("--deadline", "2h", "--signal", "SIGUSR2@2m"), "signal", {"name": "USR2", "seconds_before": 120.0}),
    (("--no-census",), "census", False),
    (("--requeue",), "requeue_on_lost_worker", True),
    (("--exclude-node", "n1", "--exclude-node", "n2"), "placement.exclude_nodes", ["n1", "n2"]),
    (("--topology", "spread"), "placement.topology", "spread"),
    (("--keep-logs", "12h"), "retention.logs_days", 0.5),
    (("--set-field", "cores_per_rank=1", "--set-field", "env.A=x"), "env", {"A": "x"}),
    (("--priority", "high"), "priority", "high"),
    (("--priority", "5"), "priority", 5),
]


@pytest.mark.thorough
@pytest.mark.req("FR-008", "FR-003", "FR-CLI-001")
@pytest.mark.parametrize(("flags", "path", "wanted"), SAID)
def test_a_flag_reaches_its_field(flags: tuple[str, ...], path: str, wanted: Any) -> None:
    found: Any = spec_of("j", "--workers", "2", *flags, "--", "true")
    for part in path.split("."):
        found = found[part]
    assert found == wanted


@pytest.mark.parametrize(
    ("text", "volume"),
    [
        ("/data:/mnt", {"mount": "/mnt", "kind": "path", "source": "/data"}),
        ("claim:data:/mnt:ro", {"mount": "/mnt", "kind": "claim", "source": "data", "read_only": True}),
        ("nfs:host:/export:/mnt:rw", {"mount": "/mnt", "kind": "nfs", "source": "host:/export"}),
        ("shm:8Gi:/dev/shm", {"mount": "/dev/shm", "kind": "shm", "size": "8Gi"}),
        ("scratch:/tmp/x", {"mount": "/tmp/x", "kind": "scratch"}),
    ],
)
def test_a_volume_is_written_in_one_word(text: str, volume: dict[str, Any]) -> None:
    assert flag_values.volume(text) == volume


@pytest.mark.parametrize("text", ["/data", "claim:data", ""])
def test_a_volume_without_a_mount_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(click.BadParameter, match="SOURCE:MOUNT"):
        flag_values.volume(text)


def test_programs_tolerations_and_documents_are_read() -> None:
    assert flag_values.program("2: python 'a b.py'") == {"ranks": 2, "command": ["python", "a b.py"]}
    assert flag_values.toleration("gpu=a100:NoSchedule") == {
        "key": "gpu",
        "operator": "Equal",
        "value": "a100",
        "effect": "NoSchedule",
    }
    assert flag_values.toleration("gpu") == {"key": "gpu", "operator": "Exists"}
    assert flag_values.document('{"a": 1}') == {"a": 1}


FILE = """\
name: from-file
workers: 2
env: {LR: 0.10, KEEP: yes}
labels: {team: cv}
command: [python, train.py]
args: [--old]
volumes:
- {mount: /a, kind: scratch}
- {mount: /b, kind: scratch}
"""


@pytest.mark.req("FR-007", "FR-CLI-005")
def test_flags_win_over_the_file_and_the_rest_stays(tmp_path: Path) -> None:
    path = a_file(tmp_path, FILE)
    spec = spec_of("-f", path, "--workers", "3", "--env", "NEW=1", "--volume", "shm:1Gi:/b")
    assert (spec["name"], spec["workers"], spec["labels"]) == ("from-file", 3, {"team": "cv"})
    assert spec["env"] == {"LR": "0.10", "KEEP": "yes", "NEW": "1"}
    assert [volume["kind"] for volume in spec["volumes"]] == ["scratch", "shm"]
    assert spec["args"] == ["--old"]


def test_a_command_on_the_line_does_not_keep_the_files_arguments(tmp_path: Path) -> None:
    spec = spec_of("other", "-f", a_file(tmp_path, FILE), "--", "echo", "--", "x")
    assert (spec["name"], spec["command"]) == ("other", ["echo", "--", "x"])
    assert not spec.get("args")


def test_a_job_comes_from_stdin() -> None:
    assert spec_of("-f", "-", stdin=FILE)["name"] == "from-file"


@pytest.mark.req("FR-007", "FR-030")
def test_an_error_in_the_file_keeps_its_line_when_flags_are_given(tmp_path: Path) -> None:
    path = a_file(tmp_path, "name: a\nworkerz: 2\ncommand: [x]\n")
    result = Cli()("plan", "-f", path, "--slots", "2")
    assert result.exit_code == 2
    assert f"{path}:2:1: workerz: unknown field 'workerz'; did you mean 'workers'?" in result.stderr


def test_a_wrong_flag_is_told_in_the_files_words_but_without_a_line(tmp_path: Path) -> None:
    path = a_file(tmp_path, "name: a\nworkers: 2\ncommand: [x]\n")
    by_flag = Cli()("plan", "-f", path, "--workers", "four").stderr
    alone = Cli()("plan", "a", "--workers", "four", "--", "x").stderr
    by_file = Cli()("plan", "-f", a_file(tmp_path, "name: a\nworkers: four\ncommand: [x]\n")).stderr
    sentence = "workers: expected a whole number, got 'four'"
    assert all(sentence in told for told in (by_flag, alone, by_file))
    assert f"{path}:2:10: {sentence}" in by_file
    assert f"  {sentence}" in by_flag.splitlines()


@pytest.mark.req("FR-030")
def test_a_check_that_fails_names_the_line_of_the_file(tmp_path: Path) -> None:
    path = a_file(tmp_path, "name: a\nworkers: 100000\ncommand: [x]\n")
    result = Cli()("create", "-f", path)
    assert result.exit_code == 2
    assert f"{path}:2:10: workers" in result.stderr


@pytest.mark.security
@pytest.mark.parametrize(
    "text", ["a: &x [1]\nb: *x\n", "name: !!python/object:os.system x\n", "name: a\nname: b\n", ""]
)
def test_a_hostile_file_is_refused_with_flags_as_without(tmp_path: Path, text: str) -> None:
    path = a_file(tmp_path, text)
    assert Cli()("plan", "-f", path, "--workers", "2").exit_code == 2
    assert Cli()("plan", "-f", path).exit_code == 2


@pytest.mark.security
def test_a_file_that_is_not_text_or_not_there_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"name: \xff\n")
    told = Cli()("plan", "-f", str(path))
    missing = Cli()("plan", "-f", str(tmp_path / "none"))
    assert (told.exit_code, missing.exit_code) == (2, 2)
    assert "byte 6 is 0xff" in told.stderr
    assert "No such file" in missing.stderr


def test_a_command_without_its_dashes_is_explained() -> None:
    result = Cli()("create", "hello", "python", "x.py")
    assert result.exit_code == 2
    assert "the command goes after --: hello -- python x.py" in result.stderr


def test_a_variable_that_is_not_set_here_is_named() -> None:
    result = Cli()("create", "j", "--env", "NO_SUCH_THING", "--", "true")
    assert (result.exit_code, "NO_SUCH_THING=VALUE" in result.stderr) == (2, True)
