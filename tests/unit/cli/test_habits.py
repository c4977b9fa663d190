"""What people of batch systems type out of habit: the refusal names what takes its place here."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli_support import Cli

from mpijob.backends.mpi import command_check
from mpijob.cli.exit_codes import HABITS
from mpijob.errors import InvalidJob
from mpijob.model import MPIJob

pytestmark = pytest.mark.req("C-hpc")


@pytest.mark.thorough
@pytest.mark.parametrize("command", ["create", "run", "plan"])
@pytest.mark.parametrize("option", HABITS)
def test_an_option_of_a_batch_system_is_answered_with_ours(command: str, option: str) -> None:
    result = Cli()(command, "job", option, "8", "--", "./model")
    ours, example = HABITS[option]
    assert result.exit_code == 2
    assert f"there is no option {option}" in result.stderr
    assert f"it is called {ours} here: {ours} {example}" in result.stderr
    assert Cli()("plan", "job", ours, example, "--workers", "8", "--", "./model").exit_code == 0


def test_a_command_without_our_option_does_not_name_it() -> None:
    assert "--deadline" not in Cli()("logs", "job", "--time", "8").stderr


@pytest.mark.parametrize("given", ["00:10:00", "ten minutes"])
def test_a_time_that_cannot_be_read_is_answered_with_one_that_can(given: str) -> None:
    said = Cli()("plan", "job", "--deadline", given, "--", "./model").stderr
    assert "for example deadline_seconds: 600" in said
    assert "--deadline 10m" in said
    assert Cli()("plan", "job", "--deadline", "10m", "--", "./model").exit_code == 0


def test_a_time_in_a_file_is_answered_with_seconds() -> None:
    file = "name: a\nworkers: 2\ncommand: [./model]\ndeadline_seconds: 10m\n"
    said = Cli()("plan", "-f", "-", stdin=file).stderr
    assert "deadline_seconds: expected a number, got '10m'" in said
    assert "write seconds, for example deadline_seconds: 600" in said


@pytest.mark.parametrize(
    ("given", "right"),
    [("100GB", ("100G", "100Gi")), ("512 MiB", ("512M", "512Mi")), ("2000000kb", ("2000000k", "2000000Ki"))],
)
def test_memory_with_a_b_is_answered_with_the_amounts_that_it_may_mean(
    given: str, right: tuple[str, str]
) -> None:
    said = Cli()("plan", "job", "--memory", given, "--", "./model").stderr
    assert f"write {right[0]} or {right[1]}, without the B" in said
    for amount in right:
        assert Cli()("plan", "job", "--memory", amount, "--", "./model").exit_code == 0


@pytest.mark.parametrize(
    ("program", "hint"),
    [
        ("srun", "leave srun out: the job starts the ranks"),
        ("aprun", "leave aprun out: the job starts the ranks"),
        ("sbatch", "mpijob run SCRIPT"),
        ("qsub", "mpijob run SCRIPT"),
        ("gmx", "use its full path, install it, or correct the spelling"),
    ],
)
def test_a_program_of_a_batch_system_is_not_to_be_installed(tmp_path: Path, program: str, hint: str) -> None:
    job = MPIJob(name="job", workers=2, command=(program, "./model"))
    with pytest.raises(InvalidJob) as refused:
        command_check.refuse_missing(job, str(tmp_path), tmp_path)
    (finding,) = refused.value.findings
    assert hint in finding.hint
    assert ("mpijob run SCRIPT" in finding.hint) is (program != "gmx")
