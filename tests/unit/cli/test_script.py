"""`mpijob run script.sh`: the header gives the job, flags win over it, the words after `--` are the script's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli_support import Cli

pytestmark = pytest.mark.req("C-hpc")
SLURM = "#!/bin/bash\n#SBATCH -J My_Run -n 4 --mem=512M -t 10\nsrun ./a $1\n"
PLAIN = "mpirun -n 2 ./a\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "case"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def planned(*words: str) -> dict[str, Any]:
    job: dict[str, Any] = Cli().json("create", words[0], "--dry-run", *words[1:])["job"]
    return job


def test_the_header_names_the_job_and_gives_its_size(folder: Path) -> None:
    (folder / "x.sbatch").write_text(SLURM)
    job = planned("x.sbatch")
    assert (job["name"], job["script"], job.get("args", [])) == ("my-run", "x.sbatch", [])
    assert (job["workers"], job["slots"], job["resources"]) == (1, 4, {"cpu": "4", "memory": "512Mi"})
    assert (job["deadline_seconds"], job["env"]) == (600.0, {"SLURM_JOB_NAME": "My_Run"})
    assert "code" not in job, "the engine takes the directory of what is named along"


def test_flags_win_over_the_header_and_words_after_the_dashes_are_arguments(folder: Path) -> None:
    (folder / "x.sbatch").write_text(SLURM)
    flags = ("--slots", "2", "--memory", "1536Mi", "--env", "A=1", "--deadline", "1h")
    job = planned("./x.sbatch", *flags, "--", "one", "--two")
    assert (job["args"], job["script"]) == (["one", "--two"], "x.sbatch")
    assert (job["slots"], job["resources"]) == (2, {"cpu": "2", "memory": "1536Mi"})
    assert job["env"] == {"SLURM_JOB_NAME": "My_Run", "A": "1"}
    assert job["deadline_seconds"] == 3600.0


def test_ranks_of_the_header_give_way_to_workers_and_slots_of_flags(folder: Path) -> None:
    (folder / "x.sbatch").write_text("#!/bin/bash\n#SBATCH -N 2 -n 3\nsrun ./a\n")
    assert planned("x.sbatch")["ranks"] == 3
    assert "ranks" not in planned("x.sbatch", "--workers", "3")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.sh", PLAIN),
        ("run.slurm", f"#!/bin/sh\n{PLAIN}"),
        ("run.csh", "#!/bin/csh -f\nsetenv A 1\n"),
        ("run", f"#!/bin/sh\n{PLAIN}"),
        ("run.txt", f"#!/usr/bin/env bash\n{PLAIN}"),
        ("run.job", f"#PBS -l select=2\n{PLAIN}"),
        ("run.lsf", f"#BSUB -n 2\n{PLAIN}"),
    ],
)
def test_a_shell_script_is_known_by_its_header_its_first_line_or_its_name(
    folder: Path, name: str, text: str
) -> None:
    (folder / name).write_text(text)
    assert (planned(name)["script"], planned(name)["name"]) == (name, "run")


@pytest.mark.parametrize("text", [f"#!/bin/sh\n{PLAIN}", "just a text", "#!/usr/bin/python\n", "\0\xff"])
def test_a_name_with_a_command_stays_one_where_a_file_has_the_same_name(folder: Path, text: str) -> None:
    (folder / "run").write_text(text)
    job = planned("run", "--", "hostname")
    assert (job["name"], job["command"], job.get("script", "")) == ("run", ["hostname"], "")


def test_a_script_outside_of_the_directory_goes_along_as_a_text(folder: Path) -> None:
    (folder.parent / "outside.sh").write_text(SLURM)
    for word in ("../outside.sh", str(folder.parent / "outside.sh")):
        job = planned(word)
        assert (job["script"], job["code"]["files"]) == ("outside.sh", {"outside.sh": SLURM})
        assert job["code"]["path"] == "."


def test_what_nobody_asked_for_is_told_unless_a_flag_says_it(folder: Path) -> None:
    (folder / "x.sbatch").write_text("#!/bin/bash\n#SBATCH -n 4\nsrun ./a\n")
    sentence = "memory is not requested: no request and no limit are set"
    assert sentence in Cli()("run", "x.sbatch").stderr
    assert sentence not in Cli()("run", "x.sbatch", "--memory", "2Gi").stderr


@pytest.mark.parametrize(
    ("head", "words", "message"),
    [
        ("--array=0-3", ("run", "x.sbatch"), "x.sbatch asks for an array of 4 tasks: mpijob array x.sbatch"),
        ("-d afterok:17", ("create", "x.sbatch"), "use --after NAME"),
        (
            "--nodes=many",
            ("run", "x.sbatch"),
            "x.sbatch, line 2: --nodes many: not a number of nodes",
        ),
        ("-n 2", ("run", "x.sbatch", "one"), "the script's arguments go after --: x.sbatch -- one"),
        ("-n 2", ("run", "y.sbatch"), "y.sbatch: No such file or directory"),
    ],
)
def test_what_one_job_cannot_do_is_refused_with_what_to_do(
    folder: Path, head: str, words: tuple[str, ...], message: str
) -> None:
    (folder / "x.sbatch").write_text(f"#!/bin/bash\n#SBATCH {head}\nsrun ./a\n")
    result = Cli()(*words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_script_runs_to_its_end_and_an_array_has_the_headers_values(folder: Path) -> None:
    (folder / "x.sbatch").write_text(SLURM)
    (folder / "y.sbatch").write_text("#!/bin/bash\n#SBATCH -J study --array=1,4 --mem=1G -n 2\nsrun ./a\n")
    cli = Cli()
    assert cli("run", "x.sbatch").exit_code == 0
    cli.ok("array", "y.sbatch")
    client = cli.connect()
    specs = [client.get(name).spec for name in ("study-0", "study-1")]
    assert [one.env["SLURM_ARRAY_TASK_ID"] for one in specs] == ["1", "4"]
    (folder / "z.sbatch").write_text(SLURM.replace("-t 10", "-d afterok:17"))
    cli.ok("create", "z.sbatch", "--after", "study-0", "--set-field", "name=later")
    assert client.get("later").spec.after == ("study-0",)
