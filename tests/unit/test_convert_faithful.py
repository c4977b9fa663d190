"""A converted script does what it did; where it cannot, the report says so: nothing differs in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.test_convert_ready import entry, slurm

from mpijob.client.converting import Conversion, Fate, Stage, convert

pytestmark = pytest.mark.req("C-hpc", "D-migrate")


def pbs(body: str, head: str = "-N flow -l nodes=2:ppn=4", **options: Any) -> Conversion:
    (one,) = convert(f"#!/bin/bash\n#PBS {head}\n{body}\n", file="flow.pbs", **options)
    return one


def own_script(one: Conversion, at: int = -1) -> str:
    """Return the text of the script that is ours in a job."""
    return one.jobs[at].code.files[one.jobs[at].command[-1]]


def test_a_script_of_the_users_own_keeps_its_name(tmp_path: Path) -> None:
    named = slurm("srun bash rank.sh $D")
    (tmp_path / "rank.sh").write_text("echo mine\n")
    for one in (named, slurm("srun ./all $D", folder=str(tmp_path))):
        (job,) = one.jobs
        assert "rank.sh" not in job.code.files
        assert job.command == ("bash", "mpijob-1-rank.sh")
    assert "exec bash rank.sh $D" in own_script(named)
    (back,) = convert(named.texts[0], to="sbatch")
    assert "cat > rank.sh" not in back.texts[0]
