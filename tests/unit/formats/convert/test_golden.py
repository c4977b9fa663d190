"""Files as people have them, converted: jobs and reports are those that were reviewed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mpijob.client.convert.convert_jobs import Conversion, FieldOutcome, Stage, convert
from mpijob.formats.jobfile import jobfile_reader

SOURCES = Path(__file__).resolve().parents[3] / "fixtures" / "convert"
GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "convert"
NAMES = sorted(path.name for path in SOURCES.iterdir())
ANEW = "PYTHONPATH=. python -c 'from tests.unit.formats.convert.test_golden import write; write()'"


def write() -> None:
    """Write the golden files anew; they are to be reviewed by eye."""
    for name in NAMES:
        (GOLDEN / f"{name}.txt").write_text(shown(converted(name)))


def converted(name: str, **options: Any) -> tuple[Conversion, ...]:
    return convert((SOURCES / name).read_text(), file=name, **options)


def shown(done: tuple[Conversion, ...]) -> str:
    lines: list[str] = []
    for one in done:
        lines += [f"# {one.source}: {one.stage}, {one.automatic:.0%} automatic", *one.texts]
        for entry in one.every:
            parts = (entry.field, entry.value, entry.ours, entry.note, entry.todo)
            mark = "BLOCKS " if entry.blocks else ""
            lines.append(f"{mark}{entry.fate} {entry.line}: " + " | ".join(parts))
    return "\n".join(lines) + "\n"


@pytest.mark.req("D-migrate", "C-hpc")
@pytest.mark.parametrize("name", NAMES)
def test_the_jobs_and_the_report_are_those_that_were_reviewed(name: str) -> None:
    assert shown(converted(name)) == (GOLDEN / f"{name}.txt").read_text(), f"if this is meant: {ANEW}"


@pytest.mark.parametrize("name", NAMES)
def test_the_job_files_that_are_written_read_back_as_the_jobs(name: str) -> None:
    for one in converted(name):
        assert [jobfile_reader.read(text) for text in one.texts] == list(one.jobs)


@pytest.mark.thorough
@pytest.mark.req("D-migrate")
@pytest.mark.parametrize("name", [name for name in NAMES if "v2beta1" in name or "launcher-as" in name])
def test_most_fields_of_an_mpijob_come_along_by_themselves(name: str) -> None:
    for to in ("job", "trainjob", "mpijob"):
        (one,) = converted(name, to=to)
        assert one.automatic >= 0.6
        # the text of a launcher's script is a file, which no manifest takes along
        assert (one.stage is Stage.BLOCKED) <= (to == "trainjob" or bool(one.jobs[0].script and to != "job"))


@pytest.mark.req("D-migrate", "C-hpc")
@pytest.mark.parametrize("name", NAMES)
def test_what_is_changed_says_how_and_what_is_dropped_says_what_to_do(name: str) -> None:
    for to in ("job", "sbatch"):
        for one in converted(name, to=to):
            for entry in one.every:
                if entry.fate is FieldOutcome.CHANGED:
                    assert entry.note, entry
                if entry.fate is FieldOutcome.DROPPED:
                    assert entry.note, entry
                    assert entry.todo or entry.blocks, entry


@pytest.mark.req("C-hpc")
@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith((".sbatch", ".slurm", ".pbs"))])
def test_a_script_is_one_job_that_runs_it(name: str) -> None:
    (one,) = converted(name)
    assert [(job.script, job.command, job.programs) for job in one.jobs] == [(name, (), ())]
    assert one.stage is not Stage.BLOCKED


@pytest.mark.security
def test_no_value_that_looks_secret_stands_in_a_report() -> None:
    script = "#!/bin/bash\n#SBATCH -N 2 --export=API_TOKEN=hunter2\nsrun ./a\n"
    (one,) = convert(script, file="x.sbatch")
    assert one.jobs[0].env["API_TOKEN"] == "hunter2"
    assert not [entry for entry in one.every if "hunter2" in entry.value]
