"""A script that works in a scratch directory: its results are never lost, whatever becomes of its lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.formats.convert.test_ready import slurm

from mpijob.client.convert.convert_jobs import Conversion, FieldOutcome, Stage

pytestmark = pytest.mark.req("C-hpc", "D-migrate")
IN = "cp $SLURM_SUBMIT_DIR/stats.py $SLURM_SUBMIT_DIR/data.txt ."
RUN = "srun python stats.py --output result.json"
BACK = "cp result.json $SLURM_SUBMIT_DIR"


def script(made: str = "D=/scratch/$SLURM_JOB_ID", into: str = IN, run: str = RUN, back: str = BACK) -> str:
    return f"{made}\nmkdir -p $D\ncd $D\n{into}\n{run}\n{back}\ncd $SLURM_SUBMIT_DIR\nrm -rf $D"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    for name in ("stats.py", "data.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / "input").mkdir()
    return str(tmp_path)


def texts(one: Conversion) -> str:
    return "\n".join(one.texts)


@pytest.mark.parametrize(
    "body",
    [
        script(),
        script(into="cp $SLURM_SUBMIT_DIR/{stats.py,data.txt} ."),
        script(into="cp -r ${SLURM_SUBMIT_DIR}/* ."),
        script(into="rsync -a $SLURM_SUBMIT_DIR/ $D/"),
        script("BASE=/scratch/$USER\nD=$BASE/$SLURM_JOB_ID"),
        script('D="$(mktemp -d)"'),
        script("ORIGIN=$(pwd)\nD=/scratch/run", "cp $ORIGIN/stats.py .", back="cp result.json $ORIGIN"),
        script().replace("cd $D", "cd $D || exit 1").replace("rm -rf $D", "[ -d $D ] && rm -rf $D"),
        "W=/tmp/$USER/$SLURM_JOB_ID\nmkdir -p $W && cp stats.py data.txt $W/\ncd $W\n" + RUN
        + "\ncp result.json $SLURM_SUBMIT_DIR/\nrm -rf $W",
        "cd $TMPDIR\n" + IN + "\n" + RUN + "\n" + BACK,
        "D=/scratch/$SLURM_JOB_ID\ntrap 'rm -rf $D' EXIT\nmkdir -p $D\ncd $D\n" + IN + "\n" + RUN + "\n" + BACK,
    ],
)  # fmt: skip
def test_work_in_a_scratch_directory_is_done_in_the_jobs_own_which_is_kept(folder: str, body: str) -> None:
    one = slurm(body, folder=folder)
    (job,) = one.jobs
    ran = job.code.files.get("rank.sh", "exec " + " ".join(job.command))
    assert ran.rstrip().endswith("exec python stats.py --output result.json")
    assert [word for word in ("cd ", "cp ", "rm ", "$D") if word in ran] == []
    assert one.stage is Stage.CHECK
    todo = [each.todo for each in one.entries if each.value.startswith("cp result.json $")]
    assert todo == ["when it has ended: mpijob artifacts fetch flow result.json, in the script's folder"]
    left_out = [each for each in one.entries if "rm -rf" in each.value or "mkdir" in each.value]
    assert all(
        each.fate is FieldOutcome.DROPPED and each.note and each.todo.startswith("nothing")
        for each in left_out
    )


def test_files_that_are_copied_under_another_name_are_still_copied(folder: str) -> None:
    one = slurm(script(into="cp $SLURM_SUBMIT_DIR/input/a.nml run.nml\ncp /data/mesh $D/"), folder=folder)
    (job,) = one.jobs
    assert (
        "  cp $SLURM_SUBMIT_DIR/input/a.nml run.nml || :\n  cp /data/mesh . || :\n"
        in job.code.files["rank.sh"]
    )


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (script(run="srun python stats.py --output $D/result.json"), "named in"),
        (script(into="cp $SLURM_SUBMIT_DIR/mesh.nc ."), "mesh.nc is copied there and is not in the script's folder"),
        (script(into="cp $SLURM_SUBMIT_DIR/*.nc ."), "*.nc is copied there"),
        (script("export D=/scratch/$SLURM_JOB_ID"), "the program may read it from D"),
        (script(into=f"{IN}\ncd deeper"), "goes to another directory"),
        (script(into="for f in a b; do cp /data/$f $D; done"), "more is done with it"),
    ],
)  # fmt: skip
def test_where_it_is_not_sure_the_report_blocks_and_nothing_is_removed(
    folder: str, body: str, why: str
) -> None:
    one = slurm(body, folder=folder)
    assert one.stage is Stage.BLOCKED
    (told,) = [each for each in one.entries if each.blocks]
    assert why in told.note
    assert "mpijob artifacts fetch" in told.todo
    assert "rm -rf" not in texts(one)
    assert any(each.value == "rm -rf $D" and each.fate is FieldOutcome.DROPPED for each in one.entries)


@pytest.mark.parametrize(
    "body",
    [
        "srun ./a --out $DATA/x\ncp $DATA/x /archive\nrm -rf $DATA/x",
        "cd /data/run && srun ./a && cp out /archive && rm -rf /data/run",
        "cd /data/run\nsrun ./a\ncp out $SLURM_SUBMIT_DIR\nrm -rf /data/run",
    ],
)
def test_a_copy_from_elsewhere_is_not_left_out_while_its_source_is_removed(body: str) -> None:
    one = slurm(body)
    last = texts(one)
    assert last.index("cp ") < last.index("rm -rf")
    assert not any(each.value.startswith("cp ") and each.fate is FieldOutcome.DROPPED for each in one.entries)


def test_a_way_back_to_the_scripts_folder_is_gone() -> None:
    (job,) = slurm("cd src\nmake\ncd $SLURM_SUBMIT_DIR\nsrun ./a").jobs
    assert job.code.files["rank.sh"].endswith("cd $SLURM_SUBMIT_DIR\nexec ./a\n")


@pytest.mark.parametrize(
    "body",
    [
        "D=/scratch/$SLURM_JOB_ID\nmkdir $D\npushd $D\nsrun ./a\ncp out $SLURM_SUBMIT_DIR\npopd\nrm -r $D",
        "D=/scratch/$SLURM_JOB_ID\nmkdir -p $D\ncd $D\nsrun ./a && cp out $SLURM_SUBMIT_DIR && rm -rf $D",
        "D=/tmp/$SLURM_JOB_ID\nmkdir $D\ncd $D\nsrun ./a\ncp out $SLURM_SUBMIT_DIR || exit\ncd ..\nrm -r $SLURM_JOB_ID",
    ],
)
def test_results_that_are_brought_back_in_another_way_are_told_as_a_fetch(body: str) -> None:
    one = slurm(body)
    assert [job.command for job in one.jobs] == [("./a",)]
    (about,) = [each for each in one.entries if each.value.startswith("cp out")]
    assert "mpijob artifacts fetch flow out, in the script's folder" in about.todo


def test_folders_of_a_scratch_directory_are_made_in_the_jobs_own() -> None:
    body = "D=/tmp/$SLURM_JOB_ID\nmkdir -p $D/out\ncd $D\nsrun ./a > log\nmv out/* $SLURM_SUBMIT_DIR/all/\nrm -rf $D"
    (job,) = slurm(body).jobs
    assert job.code.files["rank.sh"] == "#!/bin/bash\nmkdir -p out\nexec ./a\n"


def test_work_behind_the_ranks_brings_back_what_is_its_own() -> None:
    body = "D=/scratch/$SLURM_JOB_ID\nmkdir -p $D\ncd $D\nsrun ./a\n./post\ncp post.png $SLURM_SUBMIT_DIR\nrm -rf $D"
    one = slurm(body)
    assert [job.command for job in one.jobs] == [("./a",), ("./post",)]
    (about,) = [each for each in one.entries if each.value.startswith("cp post.png")]
    assert "mpijob artifacts fetch flow-2 post.png" in about.todo
