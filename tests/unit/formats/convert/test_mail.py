"""Scripts that ask their batch system for mail: `notify` of the job, and what is said where there is no address."""

from __future__ import annotations

import pytest

from mpijob.client.convert.convert_jobs import Conversion, FieldOutcome, convert
from mpijob.model.spec.job import Notify

pytestmark = pytest.mark.req("C-hpc", "D-migrate")


def converted(header: str, file: str = "x.sbatch") -> Conversion:
    (one,) = convert(f"#!/bin/bash\n{header}\nmpirun ./a\n", file=file)
    return one


@pytest.mark.parametrize(
    ("kinds", "moments"),
    [
        ("END,FAIL", ("ended",)),
        ("fail", ("failed",)),
        ("BEGIN,FAIL,REQUEUE", ("started", "retried", "failed")),
        ("ALL", ("started", "retried", "ended")),
    ],
)
def test_mail_of_slurm_is_notify_at_the_same_moments(kinds: str, moments: tuple[str, ...]) -> None:
    one = converted(f"#SBATCH --ntasks=2 --mail-user=ann@example.org --mail-type={kinds}")
    assert one.jobs[0].notify == (Notify(to="ann@example.org", on=moments),)


def test_mail_of_pbs_goes_to_each_address() -> None:
    one = converted(
        "#PBS -l select=1:mpiprocs=2\n#PBS -m ab\n#PBS -M ann@example.org,bob@example.org", "x.pbs"
    )
    assert one.jobs[0].notify == tuple(
        Notify(to=name, on=("started", "failed")) for name in ("ann@example.org", "bob@example.org")
    )


@pytest.mark.parametrize("asked", ["--mail-type=END", "--mail-type=END --mail-user=ann"])
def test_without_an_address_nobody_gets_mail_and_the_report_says_so(asked: str) -> None:
    one = converted(f"#SBATCH -n 2 {asked}")
    assert one.jobs[0].notify == ()
    entry = next(entry for entry in one.entries if entry.field == "--mail-type")
    assert (entry.fate, "notify" in entry.todo) == (FieldOutcome.DROPPED, True)


def test_mail_that_is_switched_off_stays_off() -> None:
    one = converted("#SBATCH -n 2 --mail-user=ann@example.org --mail-type=NONE")
    assert one.jobs[0].notify == ()
