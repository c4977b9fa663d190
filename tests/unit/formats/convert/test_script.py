"""A script is one job that runs it: its header gives the fields, its body goes along byte for byte."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli_support import Cli

from mpijob.backends import code_upload
from mpijob.client.convert import script_advice
from mpijob.client.convert.convert_jobs import (
    UNASKED,
    Conversion,
    FieldEntry,
    FieldOutcome,
    Stage,
    convert,
)
from mpijob.errors import InvalidJob
from mpijob.formats.convert.header import lines
from mpijob.formats.jobfile import jobfile_reader
from mpijob.formats.launch import batch_environment
from mpijob.model import Code, Retry, Signal

pytestmark = pytest.mark.req("C-hpc", "D-migrate")
SCRIPTS = Path(__file__).resolve().parents[3] / "fixtures" / "scripts"
HEADERS: dict[str, dict[str, Any]] = {
    "arguments.sbatch": {"name": "sweep", "workers": 1, "slots": 2, "memory": "256Mi"},
    "array.sbatch": {"name": "ensemble", "workers": 1, "slots": 2, "memory": "256Mi"},
    "background.sbatch": {"name": "background", "workers": 2, "slots": 2, "memory": "256Mi"},
    "document.sbatch": {"name": "document", "workers": 2, "slots": 8, "gpu": 2, "memory": "16Gi"},
    "handover.sbatch": {"name": "handover", "workers": 1, "slots": 2, "memory": "256Mi"},
    "hybrid.sbatch": {
        "name": "hybrid-run", "workers": 2, "slots": 2, "cores_per_rank": 2, "memory": "256Mi", "cpu": "4",
        "deadline_seconds": 600.0, "env": {"SLURM_JOB_NAME": "Hybrid_Run"},
    },
    "mpmd.sbatch": {"name": "coupled", "workers": 1, "slots": 4, "gpu": 0, "memory": "256Mi"},
    "options.sbatch": {
        "name": "options", "workers": 1, "slots": 3, "memory": "256Mi", "cost": {"account": "proj"},
        "signal": Signal(name="USR1", seconds_before=60.0), "retry": Retry(limit=1),
    },
    "pals.pbs": {
        "name": "stream-test-v2", "workers": 2, "slots": 2, "cpu": "4", "memory": "512Mi", "queue": "debug",
        "deadline_seconds": 600.0, "env": {"PBS_JOBNAME": "Stream_Test.v2"}, "cost": {"account": "project_a"},
    },
    "pipe.sbatch": {"name": "answers", "workers": 1, "slots": 2, "memory": "256Mi"},
    "sizes.sbatch": {"name": "sizes", "workers": 1, "slots": 4, "memory": "512Mi", "queue": "debug"},
    "turbo.csh": {"name": "turbo", "workers": 1, "slots": 4, "memory": "2Gi"},
}  # fmt: skip
SCRIPT = "#!/bin/bash\n#SBATCH -J flow -N 2 -n 4 --mem=1G\n"


def slurm(body: str, head: str = SCRIPT, **where: Any) -> Conversion:
    (one,) = convert(f"{head}{body}\n", file="x.sbatch", **where)
    return one


def advice(one: Conversion, words: str) -> FieldEntry:
    (found,) = [entry for entry in one.entries if words in entry.note]
    assert not found.blocks
    return found


def test_every_script_of_the_fixtures_has_its_header_here() -> None:
    assert sorted(path.name for path in SCRIPTS.iterdir() if path.suffix != ".py") == sorted(HEADERS)


@pytest.mark.parametrize("name", HEADERS)
def test_the_header_gives_the_fields_and_the_body_goes_along_byte_for_byte(name: str) -> None:
    text = (SCRIPTS / name).read_text()
    (one,) = convert(text, file=str(SCRIPTS / name), moved=str(SCRIPTS), folder=str(SCRIPTS))
    (job,) = one.jobs
    found = {field: getattr(job, field, None) for field in HEADERS[name]}
    found |= {field: getattr(job.resources, field) for field in ("cpu", "memory", "gpu") if field in found}
    assert found == HEADERS[name]
    assert (job.script, job.code, job.command, job.programs) == (name, Code(path=str(SCRIPTS)), (), ())
    assert one.stage is not Stage.BLOCKED
    (alone,) = convert(text, file=name, moved=None)
    assert alone.jobs[0].code.files == {name: text}


@pytest.mark.thorough
@pytest.mark.parametrize("to", ["sbatch", "pbs"])
@pytest.mark.parametrize("name", HEADERS)
def test_the_body_comes_out_again_byte_for_byte_below_directives_of_the_same_fields(
    name: str, to: str, tmp_path: Path
) -> None:
    text = (SCRIPTS / name).read_text()
    (there,) = convert(text, file=name, moved=str(SCRIPTS), folder=str(SCRIPTS))
    (back,) = convert(there.texts[0], to=to, folder=str(tmp_path))
    assert back.texts[0].endswith(lines.body(text))
    assert back.texts[0].split("\n", 1)[0] == text.split("\n", 1)[0]
    (again,) = convert(back.texts[0], file=name)
    exact = {entry.field for entry in back.written if entry.fate is FieldOutcome.EXACT}
    assert to == "pbs" or there.jobs[0].ranks is None or "ranks" in exact
    for field in ("workers", "slots", "deadline_seconds", *({"ranks"} & exact)):
        assert getattr(again.jobs[0], field) == getattr(there.jobs[0], field), field
    for field in ("cores", "memory_bytes", "gpu"):
        assert getattr(again.jobs[0].resources, field) == getattr(there.jobs[0].resources, field), field
    variable = {"sbatch": "SLURM_JOB_NAME", "pbs": "PBS_JOBNAME"}[to]
    if variable in there.jobs[0].env:
        assert again.jobs[0].env[variable] == there.jobs[0].env[variable]


def test_a_job_whose_script_cannot_be_read_blocks_the_way_back() -> None:
    (one,) = convert("name: x\nscript: run.sh\ncode: {path: /nowhere}\n", to="sbatch")
    assert (one.stage, one.blockers) == (Stage.BLOCKED, ("script: the script file was not found",))


def test_arguments_inline_files_and_variables_of_a_job_are_in_its_batch_script() -> None:
    text = "name: x\nscript: run.csh\nargs: [a, b c]\nenv: {LR: '0.1', SLURM_JOB_NAME: X}\ncode:\n  files:\n"
    text += "    run.csh: |\n      #!/bin/csh -f\n      #PBS -N old\n      cat in.txt\n    in.txt: |\n      data\n"
    (one,) = convert(text, to="sbatch")
    assert one.texts[0].startswith("#!/bin/csh -f\n#SBATCH --job-name=X\n")
    assert one.texts[0].endswith("<<'MPIJOB_END'\ndata\nMPIJOB_END\nsetenv LR 0.1\ncat in.txt\n")
    assert "sbatch FILE a 'b c'" in [entry.todo for entry in one.written]


# -- what was not asked for ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("head", "unasked"),
    [
        ("-N 2 -n 4 --mem=1G", []),
        ("-n 4 --mem-per-cpu=1G", []),
        ("-N 2 -n 4", ["memory"]),
        ("-N 2", ["memory", "cpu"]),
        ("-N 2 --mem=1G", ["cpu"]),
        ("-c 4", ["memory"]),
    ],
)
def test_what_was_not_asked_for_begins_the_report(head: str, unasked: list[str]) -> None:
    one = slurm("srun ./a", f"#!/bin/bash\n#SBATCH {head}\n")
    assert [entry.field for entry in one.entries if entry.value == UNASKED] == unasked
    assert [entry.field for entry in one.entries[: len(unasked)]] == unasked
    assert one.stage is (Stage.CHECK if unasked else Stage.READY)


@pytest.mark.thorough
def test_the_first_line_says_what_the_job_gets_unasked() -> None:
    first = Cli()("convert", "-", stdin="#!/bin/bash\n#SBATCH -N 2 -n 4\nsrun ./a\n").stderr.split("\n")[0]
    assert first.endswith("; memory is not requested: no request and no limit are set; set resources.memory")


def test_a_shell_script_without_a_header_has_the_size_of_any_job_and_is_told() -> None:
    (one,) = convert("#!/bin/sh\nmpirun -n 2 ./a\n", file="run.sh")
    assert (one.source, one.jobs[0].workers, one.jobs[0].slots) == ("shell script", 4, 1)
    assert [entry.field for entry in one.entries if entry.value == UNASKED] == ["memory", "size"]


def test_what_is_to_do_comes_first() -> None:
    matters = [entry.matters for entry in slurm("module load x", f"{SCRIPT}#SBATCH -t 5 -p x -C y\n").entries]
    assert matters == sorted(matters, reverse=True)
    assert matters.count(True) == 2


# -- advice --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("module load gcc/12 openmpi", "environment modules are not available"),
        ("test -f x && ml intel", "environment modules are not available"),
        ("sbatch --dependency=afterok:$SLURM_JOB_ID next.sbatch", "a job cannot submit another"),
        ("id=$(qsub next.pbs)", "a job cannot submit another"),
        ("export LM_LICENSE_FILE=27000@server", "it needs a license"),
        ("cp in.dat $SLURM_TMPDIR", "a directory of one node"),
        ("cp in.dat /scratch/me/x", "a directory of one node"),
        ("srun ./a $1", "the script takes arguments"),
        ('exec srun ./a "${@}"', "the script takes arguments"),
        ("srun ./a\r", "Windows line endings"),
    ],
)
def test_a_plain_look_gives_advice_and_never_blocks(line: str, words: str) -> None:
    one = slurm(line)
    assert one.stage is not Stage.BLOCKED
    assert advice(one, words).line in (1, 3)


@pytest.mark.parametrize(
    "line",
    [
        'echo "Usage: sbatch run.sh"', "# module load gcc", "awk '{ print $1 }' table", "echo $10", "srun ./a",
        ":<<END\nEND", "submodule load", "echo module load",
    ],
)  # fmt: skip
def test_words_that_only_look_alike_give_no_advice(line: str, tmp_path: Path) -> None:
    line = line.replace("echo $10", "echo ${x}10")
    assert slurm(line, folder=str(tmp_path)).stage is Stage.READY


def test_paths_programs_and_interpreters_of_this_machine_are_looked_at_where_the_folder_is_known(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine").write_text("")
    body = (
        "/opt/nowhere/bin/solver in\nmine x\nnowhere-cmd x\ncat <<END\nnowhere-word x\nEND\nls /usr/bin/env"
    )
    one = slurm(body, "#!/bin/nosuchsh\n#SBATCH -n 2 --mem=1G\n", folder=str(tmp_path))
    assert advice(one, "no such path").value == "/opt/nowhere/bin/solver"
    assert advice(one, "no such program").value == "nowhere-cmd"
    assert advice(one, "interpreter is not").value == "/bin/nosuchsh"
    nobody = slurm(body, "#!/bin/nosuchsh\n#SBATCH -n 2 --mem=1G\n", moved=None)
    assert not [entry for entry in nobody.entries if entry.field in ("path", "program", "#!")]


def test_programs_that_every_script_is_given_are_known() -> None:
    lists = re.findall(
        r"for one in (mpirun .*?|apptainer .*?); do",
        batch_environment.text(batch_environment.STEP),
        re.DOTALL,
    )
    assert set(" ".join(lists).replace("\\\n", " ").split()) == script_advice.PROGRAMS


# -- the folder, and the command that runs it ----------------------------------------------------------
def test_the_folder_of_the_script_goes_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.sbatch").write_text(f"{SCRIPT}srun ./a\n")
    result = Cli()("convert", "x.sbatch", "--out", "moved")
    job = jobfile_reader.read(Path("moved/flow.yaml").read_text())
    assert (job.code.path, job.script) == ("..", "x.sbatch")
    assert "folder → code.path: ..: the script runs in an uploaded copy" in result.stderr
    assert result.stderr.splitlines()[-1] == "  run it: mpijob run -f moved/flow.yaml"
    assert Cli()("convert", "x.sbatch").stderr.splitlines()[-1] == "  run it: mpijob run x.sbatch"


@pytest.mark.parametrize("home", [True, False])
def test_a_folder_that_is_too_large_or_the_home_is_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: bool
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path) if home else "/nowhere")
    if not home:
        monkeypatch.setattr(code_upload, "MAX_FILES", 1)
        for name in ("a", "b"):
            (tmp_path / name).write_text("x")
    one = slurm("srun ./a", folder=str(tmp_path))
    told = [each.note for each in one.entries if "code.include" in each.todo]
    assert ("in your home" if home else "too large to upload") in told[0]
    assert one.stage is Stage.CHECK


def test_a_text_alone_goes_along_itself_and_its_folder_does_not() -> None:
    one = slurm("srun ./a", moved=None)
    assert one.jobs[0].code == Code(files={"x.sbatch": f"{SCRIPT}srun ./a\n"})
    assert "no directory is uploaded" in advice(one, "the script is not a file").note


@pytest.mark.parametrize(
    ("directive", "command"),
    [
        ("--array=0-3", "mpijob array -f moved/x.yaml --values env.SLURM_ARRAY_TASK_ID=0,1,2,3"),
        ("-d afterok:17", "mpijob run -f moved/x.yaml --after FIRST"),
        (
            "--array=0-1 -d afterok:17",
            "mpijob array -f moved/x.yaml --after FIRST --values env.SLURM_ARRAY_TASK_ID=0,1",
        ),
    ],
)
def test_one_command_runs_an_array_or_a_job_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directive: str, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.sbatch").write_text(f"#!/bin/bash\n#SBATCH -J x -N 2 {directive}\nsrun hostname\n")
    told = Cli()("convert", "x.sbatch", "--out", "moved").stderr
    assert told.splitlines()[-1] == f"  run it: {command}"
    cli = Cli()
    cli.ok("create", "first", "--workers", "2", "--", "true")
    words = command.replace("FIRST", "first").split()[1:]
    assert cli(*words).exit_code == 0, "the command that is told works"


def test_ready_and_check_are_the_same_words_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = f"{SCRIPT}srun ./a $1\n"
    assert "; check: ready after the listed steps" in Cli()("convert", "-", stdin=script).stderr
    (one,) = json.loads(Cli()("convert", "-", "--report", "json", stdin=script).stdout)
    assert one["stage"] == "check"
    assert "; ready\n" in Cli()("convert", "-", stdin=script.replace(" $1", "")).stderr


def test_several_batch_scripts_do_not_go_into_one_stream(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text(
        "name: a\nworkers: 2\ncommand: [hostname]\n---\nname: b\nworkers: 2\ncommand: [hostname]\n"
    )
    result = Cli()("convert", str(jobs), "--to", "sbatch")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "a batch script holds one job, not 2: use --out DIR" in result.stderr
    Cli().ok("convert", str(jobs), "--to", "sbatch", "--out", str(tmp_path))
    assert (tmp_path / "a.sbatch").read_text().count("#!/bin/bash") == 1


def test_a_file_that_says_otherwise_is_not_written_over(tmp_path: Path) -> None:
    script = tmp_path / "x.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH -J x -N 2\nsrun ./a\n")
    words = ("convert", str(script), "--out", str(tmp_path))
    Cli().ok(*words)
    Cli().ok(*words)
    mine = (tmp_path / "x.yaml").read_text() + "env: {DATA_DIR: /data}\n"
    (tmp_path / "x.yaml").write_text(mine)
    refused = Cli()(*words)
    assert refused.exit_code == 2
    assert "x.yaml exists and differs: use --overwrite" in refused.stderr
    assert (tmp_path / "x.yaml").read_text() == mine
    Cli().ok(*words, "--overwrite")
    assert "DATA_DIR" not in (tmp_path / "x.yaml").read_text()


@pytest.mark.parametrize("text", ["hello world\n", "", "lorem ipsum\n{]}}: nonsense $$(\n"])
def test_a_text_of_no_known_form_is_refused_with_those_that_are_known(text: str) -> None:
    with pytest.raises(InvalidJob, match="has an unknown format") as refused:
        convert(text, file="x.sbatch")
    assert "#SBATCH" in refused.value.hint
