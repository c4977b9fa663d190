"""What a script does when a launch line has ended: its status, work after a failure, scripts before and behind it."""

from __future__ import annotations

import subprocess

import pytest
from tests.unit.formats.convert.test_faithful import own_script
from tests.unit.formats.convert.test_ready import entry, slurm

from mpijob.client.convert.convert_jobs import FieldOutcome, Stage

pytestmark = pytest.mark.req("C-hpc", "D-migrate")


@pytest.mark.parametrize(
    "behind",
    [
        " || { echo failed; exit 1; }",
        " || { echo failed >&2\n  exit 1\n}",
        " || ( echo failed; exit 1 )",
        " || echo failed",
        " || true",
        "\nif [ $? -ne 0 ]; then echo failed; exit 1; fi",
        "\n[ $? -eq 0 ] || exit 1",
        "\nRC=$?\necho done with $RC\nif [[ $RC != 0 ]]; then\n  echo failed\nfi\nexit $RC",
        " && { echo well; }",
    ],
)
def test_what_only_tells_how_a_launch_line_ended_is_left_out_and_told(behind: str) -> None:
    one = slurm(f"srun ./a{behind}")
    assert [job.command for job in one.jobs] == [("./a",)]
    assert one.stage is Stage.READY
    assert [
        each for each in one.entries if each.line >= 3 and each.fate is FieldOutcome.DROPPED and each.note
    ]


@pytest.mark.parametrize(
    "behind",
    [" || { ./clean; exit 1; }", " || ./other", "\nif [ $? -ne 0 ]; then ./clean; fi", " || srun ./b"],
)
def test_work_after_a_failure_blocks(behind: str) -> None:
    one = slurm(f"srun ./a{behind}")
    assert one.stage is Stage.BLOCKED
    assert "no job here begins when another has failed" in one.blockers[0]


@pytest.mark.parametrize(
    ("behind", "does"),
    [
        (
            '\nif [ $? -ne 0 ]; then\n  echo "reduce failed" | mail -s oops me\n  exit 1\nfi',
            '( echo "reduce failed" | mail -s oops me; exit 1 )',
        ),
        (" || { ./clean; exit 1; }", "( ./clean; exit 1 )"),
        (" || {\n  ./clean > log 2>&1 && ./tell\n  exit 1\n}", "( ./clean > log 2>&1 && ./tell; exit 1 )"),
        (" || ./other", "( ./other )"),
        ("\nRC=$?\nif [ $RC -ne 0 ]; then ./clean; else ./post; fi", ""),
        ("\nif [ $? -ne 0 ]; then\n for f in a b; do ./clean $f; done\nfi", ""),
        (" || srun ./b", "mpijob run -f OTHER"),
    ],
)
def test_what_to_call_after_a_failure_is_a_line_that_a_shell_takes_and_that_leaves_it_open(
    behind: str, does: str
) -> None:
    todo = slurm(f"srun ./a{behind}").entries
    (line,) = [each.todo.partition(": ")[2] for each in todo if each.blocks]
    assert line == f"mpijob run -f FILE || {does}".removesuffix(" || ")
    subprocess.run(["bash", "-n", "-c", line], check=True)


@pytest.mark.parametrize(
    "line", ["sbatch --dependency=afterok:$SLURM_JOB_ID next.sbatch", "NEXT=$(sbatch --parsable next.sbatch)"]
)
def test_a_script_that_a_script_submits_is_told_as_a_job_that_waits(line: str) -> None:
    one = next(each for each in slurm(f"srun ./a\n{line}").entries if each.blocks)
    assert "another script" in one.note
    assert "mpijob convert next.sbatch" in one.todo
    assert "mpijob run -f NEXT.yaml --after flow," in one.todo


@pytest.mark.parametrize(
    ("line", "begins"),
    [
        ("sbatch --dependency=afternotok:$SLURM_JOB_ID rescue.sh", "mpijob wait flow || mpijob run -f NEXT.yaml"),
        ("sbatch -d afterany:${SLURM_JOB_ID} tidy.sh", "mpijob wait flow; mpijob run -f NEXT.yaml"),
        ("sbatch --dependency after:$SLURM_JOBID look.sh", "mpijob wait flow --for Running; mpijob run -f NEXT.yaml"),
        ("sbatch --dependency=singleton next.sh", "mpijob wait flow; mpijob run -f NEXT.yaml"),
        ("sbatch -d afternotok:$OTHER rescue.sh", "mpijob wait FIRST || mpijob run -f NEXT.yaml (FIRST is the name"),
    ],
)  # fmt: skip
def test_a_script_that_waits_for_another_end_than_success_is_not_told_with_after(
    line: str, begins: str
) -> None:
    one = next(each for each in slurm(f"srun ./a\n{line}").entries if each.blocks)
    assert "for success alone" in one.note
    assert (f"call it yourself: {begins}" in one.todo, "--after" in one.todo) == (True, False)


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("sbatch --export=ALL,CFG=conf.sh run2.slurm", "run2.slurm"),
        ("sbatch -n 4 --dependency afterok:$SLURM_JOB_ID next.job data.sh", "next.job"),
        ("sbatch \\\n  --parsable \\\n  next.sh", "next.sh"),
        ("sbatch 'my next.sh'", "'my next.sh'"),
        ("sbatch < next.sh", "next.sh"),
        ("ID=`sbatch next`", "next"),
        ('sbatch "$NEXT" conf.sh', "SCRIPT"),
        ("sbatch --wrap 'sh a.sh'", "SCRIPT"),
        ("qsub -V -v CFG=conf.sh -W depend=afterok:$PBS_JOBID next.pbs", "next.pbs"),
    ],
)
def test_the_script_that_is_submitted_is_the_first_word_that_is_no_option(line: str, script: str) -> None:
    one = next(each for each in slurm(f"srun ./a\n{line}").entries if each.blocks)
    assert f"(mpijob convert {script} > NEXT.yaml)" in one.todo
    assert "mpijob run -f NEXT.yaml --after flow," in one.todo


@pytest.mark.parametrize(
    ("kind", "begins"),
    [
        ("afternotok:17", "FIRST has failed: mpijob wait FIRST || mpijob run -f FILE ("),
        ("afterany:17:18", "FIRST has ended, in whatever way: mpijob wait FIRST; mpijob run -f FILE ("),
        ("after:17+5", "FIRST has started: mpijob wait FIRST --for Running; mpijob run -f FILE ("),
        ("singleton", "the job of its name before it has ended: mpijob wait x; mpijob run -f FILE"),
    ],
)
def test_a_head_that_waits_for_another_end_than_success_is_not_told_with_after(
    kind: str, begins: str
) -> None:
    one = slurm("python gather.py out/*.txt", f"-J x -n 1 -d {kind}")
    told = entry(one, "--dependency", FieldOutcome.DROPPED)
    assert told.todo.startswith(f"run it yourself when {begins}")
    assert (one.after, "--after" in told.todo, "for success alone" in told.note) == ("", False, True)
    assert any("files that FIRST" in each.note for each in one.entries) is (kind != "singleton")
    both = slurm("srun hostname", "-J x -N 2 -d afterok:1,afterany:2")
    assert (both.after, "mpijob wait FIRST; mpijob run" in str(both.entries)) == ("FIRST", True)


def test_a_group_behind_a_launch_line_that_succeeds_is_what_follows_it() -> None:
    one = slurm("srun ./a && { ./plot out; cp plot.png /archive; }")
    assert [job.world for job in one.jobs] == [4, 1]
    assert "./plot out\ncp plot.png /archive\n" in own_script(one)


def test_work_after_a_success_finds_the_status_of_one() -> None:
    one = slurm("srun ./a\nRC=$?\nif [ $RC -eq 0 ]; then\n  ./post\nfi\nexit $RC")
    assert [job.env for job in one.jobs] == [{}, {"RC": "0"}]


def test_a_script_that_waits_for_another_is_told_that_it_does_not_find_its_files() -> None:
    one = slurm("cat results/out_*.txt > table.txt\npython gather.py", "-J g -n 1 -d afterok:17")
    about = entry(one, "--dependency", FieldOutcome.CHANGED)
    assert "files that FIRST writes in its directory are not there" in about.note
    assert "volumes: [{mount: /shared, kind: claim, source: g}]" in about.todo
    assert 'cd /shared && cat results/out_*.txt > table.txt; python "$OLDPWD"/gather.py' in about.todo
    alone = slurm("srun hostname", "-N 2 -d afterok:17").entries
    assert [each.fate for each in alone if each.field == "--dependency"] == [FieldOutcome.DROPPED]
