"""What stands around a launch line: nothing of it is lost in silence, and nothing that is told of it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.formats.convert.test_faithful import own_script, pbs
from tests.unit.formats.convert.test_ready import slurm

from mpijob.client.convert.convert_jobs import Conversion, FieldEntry, FieldOutcome, Stage, convert
from mpijob.errors import InvalidJob
from mpijob.model import Signal

pytestmark = pytest.mark.req("C-hpc", "D-migrate")


def told(one: Conversion, value: str) -> FieldEntry:
    return next(each for each in one.entries if each.value.startswith(value))


@pytest.mark.parametrize(
    ("line", "head", "seconds"),
    [
        ("timeout 5 srun ./a", "-N 2", 5.0),
        ("timeout -k 10 1.5h mpirun ./a", "-N 2", 5400.0),
        ("time timeout --signal=INT 2m srun ./a", "-N 2", 120.0),
        ("timeout 1d srun ./a", "-N 2 -t 10", 600.0),
        ("timeout 30 srun ./a", "-N 2 -t 10", 30.0),
    ],
)
def test_the_time_that_a_launch_line_may_take_is_the_jobs_deadline(
    line: str, head: str, seconds: float
) -> None:
    one = slurm(line, head)
    (job,) = one.jobs
    assert (job.deadline_seconds, job.command) == (seconds, ("./a",))
    assert told(one, "timeout").fate is FieldOutcome.CHANGED


def test_the_signal_of_a_timeout_is_the_jobs() -> None:
    assert slurm("timeout -s USR1 5 srun ./a").jobs[0].signal == Signal(name="USR1")
    both = slurm("timeout -s USR1 5 srun ./a", "-N 2 --signal=USR2@60")
    assert both.jobs[0].signal == Signal(name="USR2", seconds_before=60.0)


@pytest.mark.parametrize(
    ("prefix", "stage"),
    [
        ("time", Stage.READY),
        ("/usr/bin/time -v", Stage.READY),
        ("nohup", Stage.READY),
        ("nice -n 10", Stage.READY),
        ("ionice -c 2", Stage.READY),
        ("stdbuf -oL", Stage.READY),
        ("numactl --interleave=all", Stage.CHECK),
        ("timeout $LIMIT", Stage.BLOCKED),
        ("strace -f -o trace", Stage.BLOCKED),
        ("singularity exec image.sif", Stage.BLOCKED),
        ("./wrapper --fast", Stage.BLOCKED),
        ("env -u HOME", Stage.BLOCKED),
    ],
)
def test_what_stands_before_the_launcher_is_told_or_blocks(prefix: str, stage: Stage) -> None:
    one = slurm(f"{prefix} mpirun ./a x")
    assert (one.stage, [job.command for job in one.jobs]) == (stage, [("./a", "x")])
    assert told(one, prefix).note


@pytest.mark.parametrize("line", ["A=1 srun ./a", "env A=1 srun ./a", "time env A=1 nice srun ./a"])
def test_variables_before_the_launcher_are_the_jobs(line: str) -> None:
    assert slurm(line).jobs[0].env == {"A": "1"}


@pytest.mark.parametrize(
    "line", ["command -v srun > /dev/null || exit 1", "grep -c mpirun log x", "which mpirun"]
)
def test_a_launcher_that_is_only_named_starts_nothing(line: str) -> None:
    assert slurm(f"srun ./a\n{line}").jobs[0].command == ("./a",)


@pytest.mark.parametrize(
    "line",
    ['RUN="mpirun -n 4"\n$RUN ./a', "bash -c 'srun ./a'", 'eval "srun ./a"', "M=$(which mpirun)\n$M ./a"],
)
def test_a_launch_line_that_is_hidden_from_the_reader_blocks(line: str) -> None:
    one = slurm(line)
    assert one.stage is Stage.BLOCKED
    assert "which is not read" in one.blockers[0]


def test_a_variable_that_only_the_batch_system_knows_never_names_the_job() -> None:
    one = slurm("srun ./a $SLURM_CLUSTER_NAME")
    assert [job.name for job in one.jobs] == ["flow"]
    assert [each.field for each in one.entries if each.blocks] == ["$SLURM_CLUSTER_NAME"]


def test_variables_that_repeat_the_head_have_its_values(tmp_path: Path) -> None:
    words = "COUNT MIN MAX STEP"
    line = " ".join(f"$SLURM_ARRAY_TASK_{word}" for word in words.split())
    body = f"srun ./a {line} $SLURM_JOB_PARTITION $SLURM_JOB_NUM_NODES $SLURM_JOB_NAME $SLURM_JOB_ACCOUNT"
    (job,) = slurm(body, "-J nn2 -N 2 -p fast -A me --array=0-6:2").jobs
    assert (job.name, job.command[1:]) == ("nn2", ("4", "0", "6", "2", "fast", "2", "nn2", "me"))
    (tmp_path / "t.py").write_text('import os\nprint(os.environ["SLURM_ARRAY_TASK_COUNT"])\n')
    one = slurm("srun python t.py", "-J nn2 -N 2 --array=0-3", folder=str(tmp_path))
    assert one.jobs[0].env["SLURM_ARRAY_TASK_COUNT"] == "4"


def test_serial_jobs_of_a_script_have_their_whole_lines_in_what_is_to_do(tmp_path: Path) -> None:
    for name in ("split.py", "work.py", "in.txt"):
        (tmp_path / name).write_text("")
    body = "set -e\nmkdir -p parts\npython split.py in.txt\necho $HOME > parts/home\nsrun python work.py"
    first = slurm(body, folder=str(tmp_path)).entries[0].todo
    lines = (
        'cd /shared && mkdir -p parts && python "$OLDPWD"/split.py "$OLDPWD"/in.txt; echo $HOME > parts/home'
    )
    assert f"as the last lines of rank.sh, in place of the script's: {lines}; into flow-2" in first
    assert 'cd /shared && mkdir -p parts && exec python "$OLDPWD"/work.py' in first


@pytest.mark.parametrize(
    ("behind", "reads", "todo"),
    [
        ("> log.$SLURM_JOB_ID 2>&1", "grep pi= log.$SLURM_JOB_ID", "mpijob logs flow --no-prefix | grep pi="),
        ("| tee log", "tail -n 3 log", "mpijob logs flow --no-prefix | tail -n 3"),
        ("| grep -v warn | tee log", "tail log", "mpijob logs flow --no-prefix | grep -v warn | tail"),
    ],
)  # fmt: skip
def test_what_shows_a_part_of_the_output_is_told_as_a_look_at_the_log(
    behind: str, reads: str, todo: str
) -> None:
    one = slurm(f"srun ./a {behind}\n{reads}")
    assert len(one.jobs) == 1
    assert told(one, reads).todo == f"nothing, or {todo}"


@pytest.mark.parametrize(
    ("body", "todo"),
    [
        ("srun -n 1 ./a > a.txt && mpirun ./b a.txt", "mpijob logs flow-1 --no-prefix --stream stdout > a.txt"),
        ("srun ./a > a.$SLURM_JOB_ID\npython plot.py a.$SLURM_JOB_ID",
         "mpijob logs flow-1 --no-prefix --stream stdout > a.flow"),
        ("srun ./a > a.txt\nE=$(grep x a.txt)\nsrun ./b $E", "mpijob logs flow-1 --no-prefix --stream stdout > a.txt"),
        ("srun ./a 2> err.txt\npython plot.py < err.txt", "mpijob logs flow-1 --no-prefix --stream stderr > err.txt"),
    ],
)  # fmt: skip
def test_output_that_a_later_job_reads_blocks_with_the_commands_that_make_the_file(
    body: str, todo: str
) -> None:
    one = slurm(body)
    (told_so,) = [each for each in one.entries if each.blocks]
    assert f"mpijob run -f flow-1.yaml; {todo}; mpijob run -f flow-2.yaml" in told_so.todo


@pytest.mark.parametrize("line", ["mkdir -p results", "export A=1", "PID=$!", "X=$(date)"])
def test_a_line_that_no_job_has_is_not_said_to_be_in_one(line: str) -> None:
    one = slurm(f"srun ./a\n{line}")
    (about,) = [each for each in one.entries if each.line == 4]
    assert (about.fate, about.ours, about.todo) == (FieldOutcome.DROPPED, "", "nothing")
    assert one.stage is Stage.READY


def test_a_variable_between_two_lines_of_work_reaches_the_second() -> None:
    one = slurm("./a\nX=1\n./b $X")
    assert one.jobs[-1].env == {"X": "1"}
    assert one.jobs[-1].command == ("./b", "1")


@pytest.mark.parametrize(
    ("line", "todo"),
    [
        ("cp pi.dat results/pi_$SLURM_JOB_ID.dat",
         "mpijob artifacts fetch flow pi.dat --to results; the script calls it pi_flow.dat there"),
        ("cp pi.dat out.log $HOME/r/$SLURM_JOB_ID/", "mpijob artifacts fetch flow pi.dat out.log --to $HOME/r/flow"),
        ("mv log results/", "mpijob logs flow --no-prefix > results/log"),
        ("mv slurm-$SLURM_JOB_ID.out results/", "mpijob logs flow > results/slurm-flow.out"),
        ("for f in *.dat; do cp $f /archive; done", "mpijob artifacts fetch flow --to /archive"),
        ("cp pi.dat $OUT/", "mpijob artifacts fetch flow pi.dat --to DIRECTORY (a folder of your choice)"),
    ],
)  # fmt: skip
def test_a_copy_is_told_as_a_fetch_of_that_file_into_that_folder(line: str, todo: str) -> None:
    assert told(slurm(f"srun ./a | tee log\n{line}"), line[:6]).todo == f"when it has ended: {todo}"


CHECKPOINTS = """requeue() {
    kill -USR1 $PID
    wait $PID
    scontrol requeue $SLURM_JOB_ID
}
trap requeue USR1
srun python ckpt.py &
PID=$!
wait $PID"""


@pytest.mark.parametrize(
    "body", [CHECKPOINTS, 'trap "scontrol requeue $SLURM_JOB_ID" USR1\nsrun python ckpt.py &\nwait']
)
def test_a_script_that_has_itself_run_again_is_told_status_retry_and_volume(body: str) -> None:
    one = slurm(body, "-N 1 -n 2 --signal=B:USR1@60 --requeue")
    (told_so,) = [each for each in one.entries if each.blocks]
    assert "for example 75, when it has written its checkpoint after USR1" in told_so.todo
    assert "retry: {limit: 1}" in told_so.todo
    assert "docs/checkpoints.md" in told_so.todo
    assert [job.command for job in one.jobs] == [("python", "ckpt.py")]
    without = slurm(body, "-N 1 --signal=B:USR1@60")
    assert "write retry: {limit: 10}" in without.blockers[0] or "retry: {limit: 10}" in str(without.entries)


@pytest.mark.parametrize("line", ["trap 'rm -f tmp' EXIT", "clean() { rm -f tmp; }\ntrap clean EXIT"])
def test_a_trap_that_tidies_up_is_left_out_and_a_function_is_no_job(line: str) -> None:
    one = slurm(f"{line}\nsrun ./a")
    assert ([job.command for job in one.jobs], one.stage) == ([("./a",)], Stage.READY)
    assert told(one, "trap").todo.startswith("nothing")


def test_a_function_that_a_line_calls_goes_along() -> None:
    one = slurm("say() { echo $1; }\nX=$(say 3)\nsrun ./a $X")
    assert "say() { echo $1; }\nX=$(say 3)\nexec ./a $X\n" in own_script(one)


@pytest.mark.parametrize(
    "line",
    ["cat $PBS_NODEFILE | sort | uniq -c", "cat $PBS_NODEFILE | uniq", "sort -u $PBS_NODEFILE",
     "wc -l < $PBS_NODEFILE", "cat $PBS_NODEFILE > nodes.txt"],
)  # fmt: skip
def test_a_line_that_only_shows_the_list_of_nodes_does_not_block(line: str) -> None:
    assert pbs(f"{line}\nmpirun ./a").stage is Stage.READY
    assert pbs("sort -u $PBS_NODEFILE > hosts\nmpirun ./a hosts").stage is Stage.BLOCKED


@pytest.mark.parametrize(
    ("body", "fates"),
    [
        ("mpirun -x MYX ./a", [FieldOutcome.DROPPED]),
        ("export MYX=1\nmpirun -x MYX ./a", [FieldOutcome.EXACT]),
        ("export MYX=$(date)\nmpirun -x MYX ./a", [FieldOutcome.EXACT]),
        ("mpiexec -genvlist MYX ./a", [FieldOutcome.DROPPED]),
    ],
)
def test_a_variable_that_is_handed_on_and_not_set_is_told(body: str, fates: list[FieldOutcome]) -> None:
    found = [each for each in slurm(body).entries if each.value == "MYX"]
    assert [each.fate for each in found] == fates
    assert all("--env MYX" in each.todo for each in found if each.fate is FieldOutcome.DROPPED)


def test_an_export_by_name_alone_is_told() -> None:
    assert "--env MYX" in told(slurm("export MYX\nsrun ./a"), "export MYX").todo
    assert slurm("MYX=1\nexport MYX\nsrun ./a").stage is Stage.READY


@pytest.mark.parametrize(
    ("line", "todo"), [("mpirun ./a < in.txt", ""), ("srun ./a < in.txt", "other ranks")]
)
def test_a_file_of_the_folder_that_is_read_is_the_jobs_input(tmp_path: Path, line: str, todo: str) -> None:
    (tmp_path / "in.txt").write_text("")
    one = slurm(line, folder=str(tmp_path))
    assert one.jobs[0].launch.stdin == "in.txt"
    assert todo in told(one, "< in").todo
    assert bool(todo) == bool(told(one, "< in").todo)
    assert slurm(line).jobs[0].launch.stdin == ""


def test_cores_of_a_steps_own_are_not_nodes_of_the_jobs_own() -> None:
    one = slurm("srun --exclusive -n 2 ./a &\nsrun --exclusive -n 2 ./b &\nwait")
    assert {each.fate for each in one.entries if "exclusive" in each.field} == {FieldOutcome.EXACT}


@pytest.mark.parametrize("text", ["hello world\n", "", "lorem ipsum\n{]}}: nonsense $$(\n"])
def test_a_text_of_no_known_form_is_refused_with_those_that_are_known(text: str) -> None:
    with pytest.raises(InvalidJob, match="none of the forms that are known") as refused:
        convert(text, file="x.sbatch")
    assert "#SBATCH" in refused.value.hint
