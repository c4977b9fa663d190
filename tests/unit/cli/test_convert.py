"""`mpijob convert`: jobs on stdout, what changed on stderr, a report for people and for programs, whole directories."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest
import yaml
from tests.unit.cli_support import Cli
from tests.unit.formats.convert.test_golden import SOURCES

from mpijob.client.convert import cluster_migration, convert_jobs
from mpijob.client.convert.convert_jobs import Stage
from mpijob.errors import InvalidJob, NotFound, Unsupported
from mpijob.formats.jobfile import jobfile_reader
from mpijob.settings import Settings

pytestmark = pytest.mark.req("D-migrate", "C-hpc")


def source(name: str) -> str:
    return str(SOURCES / name)


def test_a_script_becomes_a_job_file_on_stdout_and_a_report_on_stderr() -> None:
    result = Cli()("convert", source("molecules.sbatch"))
    assert result.exit_code == 0, result.stderr
    assert jobfile_reader.read(result.stdout).name == "water"
    assert "4 exact, 4 changed, 0 dropped; ready" in result.stderr
    assert "changed: line 6: --time 02:00:00 → deadline_seconds: 7200" in result.stderr


@pytest.mark.thorough
def test_a_converted_job_file_can_be_run_right_away() -> None:
    cli = Cli()
    script = "#!/bin/bash\n#SBATCH -J hello -N 2\nsrun echo hello from Slurm\n"
    job = cli("convert", "-", stdin=script).stdout
    assert jobfile_reader.read(job).code.files == {"script.sh": script}
    assert cli("run", "-f", "-", stdin=job).exit_code == 0
    assert "Succeeded" in cli.ok("get", "hello")


@pytest.mark.thorough
@pytest.mark.parametrize("head", ["#SBATCH --array=0-3", "#SBATCH --dependency=afterok:12", "#SBATCH -N 2"])
def test_a_script_that_is_blocked_is_not_told_to_be_run(head: str) -> None:
    script = f"#!/bin/bash\n{head}\nsrun ./a\n"
    assert "run it:" in Cli()("convert", "-", stdin=script).stderr
    blocked = Cli()("convert", "-", stdin=script.replace("\nsrun", "\n#SBATCH --node=2\nsrun"))
    assert "BLOCKS" in blocked.stderr
    assert "run it:" not in blocked.stderr


@pytest.mark.parametrize(
    ("words", "written", "path"),
    [
        (("solve.sbatch", "--out", "moved/here"), "moved/here/solve.yaml", "../.."),
        (("--dir", ".", "--out", "moved"), "moved/solve.yaml", ".."),
        (("./solve.sbatch",), "", "."),
    ],
)
def test_what_goes_along_is_found_from_where_the_job_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], written: str, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("solve.sbatch").write_text("#!/bin/bash\n#SBATCH -N 2\nsrun python solve.py $SLURM_PROCID\n")
    result = Cli()("convert", *words)
    assert result.exit_code == 0, result.stderr
    assert jobfile_reader.read(Path(written).read_text() if written else result.stdout).code.path == path


def test_several_files_become_several_documents() -> None:
    result = Cli()("convert", source("molecules.sbatch"), source("climate.sbatch"))
    assert [job.name for job in jobfile_reader.read_all(result.stdout)] == ["water", "coupled"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("to", "kinds"), [("trainjob", ["TrainingRuntime", "TrainJob"]), ("mpijob", ["MPIJob"])]
)
def test_manifests_are_written(to: str, kinds: list[str]) -> None:
    result = Cli()("convert", source("horovod-v2beta1.yaml"), "--to", to)
    assert [one["kind"] for one in yaml.safe_load_all(result.stdout)] == kinds
    result = Cli()("convert", source("horovod-v2beta1.yaml"), "--to", to, "-o", "json")
    found = json.loads(result.stdout)
    assert [one["kind"] for one in found.get("items", [found])] == kinds


def test_a_job_becomes_a_batch_script() -> None:
    script = Cli().ok("convert", source("horovod-v2beta1.yaml"), "--to", "sbatch")
    assert script.startswith("#!/bin/bash\n#SBATCH --job-name=tensorflow-benchmarks\n#SBATCH --nodes=2\n")
    assert "srun --mpi=pmix --distribution=block --cpu-bind=none --cpus-per-task=4 python bench.py" in script


@pytest.mark.thorough
def test_an_array_goes_back_without_the_number_that_slurm_gives_each_task(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    array = "#!/bin/bash\n#SBATCH -N 2 --array=1-3\nexport X=1\nsrun ./a $SLURM_ARRAY_TASK_ID\n"
    job.write_text(Cli()("convert", "-", stdin=array).stdout)
    result = Cli()("convert", str(job), "--to", "sbatch")
    assert result.stdout.endswith("\nexport X=1\nsrun ./a $SLURM_ARRAY_TASK_ID\n")
    assert "SLURM_ARRAY_TASK_ID=" not in result.stdout
    assert "sbatch --array=1-10 FILE" in result.stderr


def test_the_report_for_people_has_every_field_with_its_fate() -> None:
    told = Cli().ok("convert", source("training.sbatch"), "--report", "text")
    assert "LINE  FIELD" in told
    assert "exact" in told
    assert f"mpijob array {source('training.sbatch')} --values" in told


def test_the_report_for_programs_says_the_same() -> None:
    (one,) = json.loads(Cli().ok("convert", source("horovod-v2beta1.yaml"), "--report", "json"))
    assert (one["source"], one["stage"]) == ("MPIJob v2beta1", "check")
    assert one["automatic"] >= 0.6
    fates = {entry["field"]: entry["fate"] for entry in one["entries"]}
    assert fates["spec.runPolicy.backoffLimit"] == "changed"
    assert fates["spec.slotsPerWorker"] == "exact"
    assert one["jobs"][0]["command"] == ["python", "bench.py", "--batch_size=64"]


@pytest.mark.parametrize(
    ("name", "flags", "status"),
    [
        ("molecules.sbatch", (), 0),
        ("molecules.sbatch", ("--strict",), 0),
        ("training.sbatch", (), 0),
        ("training.sbatch", ("--strict",), 1),
        ("loop.sbatch", (), 0),
    ],
)
def test_the_status_tells_what_is_blocked_and_strictly_what_is_dropped(
    name: str, flags: tuple[str, ...], status: int
) -> None:
    assert Cli()("convert", source(name), *flags).exit_code == status


@pytest.mark.thorough
def test_the_status_tells_that_a_header_blocks() -> None:
    script = "#!/bin/bash\n#SBATCH --nodes=many\nsrun ./a\n"
    assert Cli()("convert", "-", stdin=script).exit_code == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give files, --dir or --cluster"),
        (("--dir", ".", "x.yaml"), "give files, --dir or --cluster"),
        (("/",), "/ is a directory: --dir /"),
        (("no-such-file.yaml",), "no-such-file.yaml: No such file or directory"),
        (("x", "--to", "oar"), "'oar' is not one of"),
    ],
)
def test_a_command_line_that_cannot_be_meant_is_refused(words: tuple[str, ...], message: str) -> None:
    result = Cli()("convert", *words)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    "text",
    [
        "",
        "just words",
        "kind: Pod\napiVersion: v1\n",
        "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\n",
        "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: x}\nspec: {}\n",
        "apiVersion: kubeflow.org/v9\nkind: MPIJob\nmetadata: {name: x}\nspec: {mpiReplicaSpecs: {}}\n",
        "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: x}\nspec: {mpiReplicaSpecs: [1]}\n",
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: x}\nspec: 3\n",
        "arena submit mpi\n",
        "name: x\nworkers: many\n",
    ],
)
def test_what_is_no_job_is_told_with_a_hint_and_no_traceback(text: str) -> None:
    result = Cli()("convert", "-", stdin=text)
    assert result.exit_code in (1, 2), result.stderr
    assert "Traceback" not in result.stderr
    assert "bug" not in result.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "jobs"
    shutil.copytree(SOURCES, place / "team")
    (place / "README.md").write_text("srun is a command")
    (place / "notes.yaml").write_text("a: 1\n")
    (place / "broken.yaml").write_text("kind: MPIJob\napiVersion: [\n")
    (place / ".hidden.sbatch").write_text("#SBATCH -N 2\nsrun a\n")
    return place


def test_a_directory_is_converted_with_a_summary_of_what_blocks(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = Cli()("convert", "--dir", str(folder), "--out", str(out))
    assert result.exit_code == 1, "some are blocked"
    lines = result.stdout.splitlines()
    count = len(list(SOURCES.iterdir())) + 1
    assert lines[0].split()[:3] == ["FROM", "KIND", "STAGE"]
    assert lines[-1].startswith(f"{count} to move: ")
    assert [line.split()[0] for line in lines[1:3]] == ["broken.yaml", "team/arena.sh"]
    assert jobfile_reader.read((out / "team" / "water.yaml").read_text()).workers == 2
    assert not list(out.glob("**/*hidden*"))


def test_the_progress_of_a_fleet_is_there_for_programs(folder: Path) -> None:
    result = Cli()("convert", "--dir", str(folder), "--report", "json")
    found = json.loads(result.stdout)
    assert found["ready"] + found["check"] + found["blocked"] == len(found["rows"])
    assert found["automatic"] > 0.6


def test_jobs_of_one_name_do_not_overwrite_each_other(tmp_path: Path) -> None:
    for name in ("a.sbatch", "b.sbatch"):
        (tmp_path / name).write_text("#!/bin/bash\n#SBATCH -J same -N 2\nsrun ./a\n")
    Cli().ok("convert", "--dir", str(tmp_path), "--out", str(tmp_path / "out"))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["same-2.yaml", "same.yaml"]


@pytest.mark.security
def test_no_file_is_written_outside_of_the_directory(tmp_path: Path) -> None:
    script = tmp_path / "x.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH -J ../../evil -N 2\nsrun ./a\n")
    Cli().ok("convert", str(script), "--out", str(tmp_path / "out" / "deep"))
    assert [path.name for path in (tmp_path / "out" / "deep").iterdir()] == ["evil.yaml"]


@pytest.mark.thorough
@pytest.mark.security
def test_no_control_character_of_a_file_reaches_the_terminal() -> None:
    result = Cli()("convert", "-", stdin="#!/bin/bash\n#SBATCH -N 2 --qos=\x1b[2J\nsrun ./a \x1b[31m\n")
    assert "\x1b" not in result.stdout + result.stderr


def test_a_cluster_is_needed_for_its_jobs() -> None:
    with pytest.raises(Unsupported, match="requires a cluster"):
        cluster_migration.of_cluster(Settings(engine="local"))


def test_the_sdk_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(InvalidJob, match="unknown format 'oar'"):
        convert_jobs.convert("name: x", to="oar")
    with pytest.raises(NotFound, match="no directory"):
        list(convert_jobs.directory(tmp_path / "none"))


def test_one_broken_object_does_not_stop_the_others() -> None:
    good = {
        "kind": "MPIJob",
        "apiVersion": "kubeflow.org/v2beta1",
        "metadata": {"name": "a", "namespace": "n"},
    }
    good["spec"] = {
        "mpiReplicaSpecs": {
            "Launcher": {"template": {"spec": {"containers": [{"image": "i", "command": ["mpirun", "x"]}]}}}
        }
    }
    done = convert_jobs.documents([good | {"spec": None}, good])
    assert [one.stage for one in done] == [Stage.BLOCKED, Stage.READY]
    assert done[0].error


def test_a_report_for_programs_has_a_stage_also_where_a_file_is_blocked(tmp_path: Path) -> None:
    for name, stage in (
        ("molecules.sbatch", "ready"),
        ("training.sbatch", "check"),
        ("blocked.sbatch", "blocked"),
    ):
        (tmp_path / "blocked.sbatch").write_text("#!/bin/bash\n#SBATCH --nodes=many\nsrun ./a\n")
        file = str(tmp_path / name) if name == "blocked.sbatch" else source(name)
        (one,) = json.loads(Cli()("convert", "--report", "json", file).stdout)
        assert one["stage"] == stage
    (tmp_path / "broken.yaml").write_text("kind: MPIJob\napiVersion: kubeflow.org/v2beta1\nspec: 3\n")
    (tmp_path / "blocked.sbatch").unlink()
    (unread,) = convert_jobs.directory(tmp_path)
    assert json.loads(msgspec.json.encode(unread))["stage"] == "blocked"


@pytest.mark.parametrize("ending", [".slrm", ".run", ".sb", ".q", ".bash", ".ompi", ".SLURM", ".txt"])
@pytest.mark.parametrize(
    "head", ["#!/bin/bash\n# by hand\n\n#SBATCH -N 2\nsrun ./a\n", "#PBS -l nodes=2\nmpirun ./a\n"]
)
def test_a_directory_gives_its_scripts_whatever_their_names_end_with(
    tmp_path: Path, ending: str, head: str
) -> None:
    (tmp_path / f"job{ending}").write_text(head)
    (tmp_path / "page.md").write_text(f"# How to\n\nWrite:\n\n{head}")
    (tmp_path / "job.log").write_text("started\n#SBATCH -N 2\n")
    assert [one.file for one in convert_jobs.directory(tmp_path)] == [f"job{ending}"]


ARENA = """#!/bin/bash
# submit
set -e
kubectl get nodes
arena submit mpi --name=first --workers=2 --image-pull-secrets=reg,mirror --selector pool=gpu \\
  --env='A=$B' --image=example/h:1 "mpirun python /t.py"
"""


def test_a_script_around_arena_is_read_as_arena_and_its_other_commands_are_told() -> None:
    (one,) = convert_jobs.convert(ARENA)
    (job,) = one.jobs
    assert (one.source, one.stage) == ("Arena command", Stage.CHECK)
    assert (job.pull_secrets, job.env, job.command) == (("reg", "mirror"), {"A": "$B"}, ("python", "/t.py"))
    assert (job.resources.memory, dict(job.placement.node_selector)) == ("none", {"pool": "gpu"})
    assert one.entries[0].ours == "none"
    assert [entry.value for entry in one.entries if entry.field == "script"] == ["set -e; kubectl get nodes"]


def test_every_arena_submit_of_a_script_is_a_job_and_what_a_shell_must_know_blocks() -> None:
    more = 'arena submit mpi --name=$NAME --workers=2 --cpu 2 --memory 4Gi --image=i "python $HOME/t.py"\n'
    first, second = convert_jobs.convert(ARENA + more)
    assert (first.stage, second.stage) == (Stage.CHECK, Stage.BLOCKED)
    assert [entry.field for entry in second.entries if entry.blocks] == ["--name", "command"]
    assert second.jobs[0].resources.memory == "4Gi"


def test_a_job_that_asks_for_no_memory_asks_slurm_for_all_of_a_node() -> None:
    (one,) = convert_jobs.convert(
        "name: free\nslots: 4\nresources: {cpu: none, memory: none}\ncommand: [./a]\n", to="sbatch"
    )
    assert "#SBATCH --mem=0M" in one.texts[0]
    assert "#SBATCH --cpus-per-task=1\n" in one.texts[0]
