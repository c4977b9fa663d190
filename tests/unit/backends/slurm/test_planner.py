"""What Slurm cannot do is refused before anything is planned, with what can be done instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.slurm_support import FakeHost, a_cluster, a_job, a_plan

from mpijob.backends.slurm import planner
from mpijob.backends.slurm.client import SlurmClient
from mpijob.backends.slurm.host import Answer
from mpijob.errors import BackendError, InvalidJob, Unsupported
from mpijob.model import Amounts, Facts, Family, Launch, MPIJob, Plan
from mpijob.model.spec.job import Concurrency, CustomLaunch, Retry, Volume, VolumeKind
from mpijob.settings import Settings

OWN = Launch(custom=CustomLaunch(command=("./start",)))  # whatever MPI this machine has
STARTS = "sbatch: Job 62 to start at {} using 2 processors on nodes n[1-2] in partition main\n"


def plan(job: MPIJob, root: Path) -> Plan:
    facts = Facts(place="Slurm", capacity=Amounts(), free=Amounts(), slurm=a_cluster())
    return planner.plan(job, facts, Settings(home=str(root / "home")), FakeHost(root), root)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"retry": Retry(limit=2, on=("worker_lost",))}, ("retry.on", "requeue_on_lost_worker")),
        ({"concurrency": Concurrency(limit=2)}, ("'solve'", "QOS")),
        ({"volumes": (Volume(mount="/data", kind=VolumeKind.CLAIM, source="data"),)}, ("/data", "claim")),
        ({"volumes": (Volume(mount="/data", kind=VolumeKind.S3, source="store/data"),)}, ("/data", "s3")),
        ({"volumes": (Volume(mount="/dev/shm", kind=VolumeKind.SHM),)}, ("/dev/shm", "shm")),
        ({"volumes": (Volume(mount="/data", source="/home/alice/data"),)}, ("/data", "path")),
        (
            {
                "volumes": (
                    Volume(mount="/a", source="/a"),
                    Volume(mount="/b", kind=VolumeKind.NFS, source="x:/b"),
                )
            },
            ("/b",),
        ),
    ],
)
def test_what_slurm_cannot_keep_is_refused_by_its_name(
    tmp_path: Path, fields: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(Unsupported) as caught:
        plan(a_job(**fields), tmp_path)
    assert [word for word in words if word not in caught.value.message + caught.value.hint] == []
    assert caught.value.hint


@pytest.mark.parametrize(
    "fields",
    [
        {"retry": Retry(limit=2)},
        {"requeue_on_lost_worker": True},
        {"volumes": (Volume(mount="/data", source="/data"), Volume(mount="/scratch"))},
    ],
)
def test_a_script_with_what_slurm_can_keep_is_planned(tmp_path: Path, fields: dict[str, Any]) -> None:
    (tmp_path / "run.sh").write_text("#!/bin/sh\n#SBATCH --nodes=2\nsrun ./solve\n")
    job = a_job(
        command=(), script="run.sh", code={"path": str(tmp_path)}, mpi=Family.CUSTOM, launch=OWN, **fields
    )
    found = plan(job, tmp_path)
    assert (found.engine, found.launch[0], found.world) == ("slurm", "sbatch", 2)
    assert found.batch_script.startswith("#!/bin/sh\n#SBATCH --nodes=2")


def test_slurms_expected_start_bounds_the_estimate_of_a_plan(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, sbatch=lambda argv: STARTS.format("2020-01-01T00:00:00"))
    script = "#!/bin/sh\n#SBATCH --nodes=2\n#SBATCH --constraint='a|b'\n#SBATCH --output=/x/slurm.out\ntrue\n"
    wanted = a_plan(batch_script=script)
    found = planner.estimated(wanted, SlurmClient(host))
    assert host.asked == [("sbatch", "--test-only", "--nodes=2", "--constraint=a|b", "--wrap=true")]
    assert (found.wait_range_seconds, found.starts_now) == ((0.0, 0.0), True)
    assert planner.rehearsed(wanted, SlurmClient(host))[0].message.endswith("at once")


def test_a_refusal_of_a_rehearsal_is_told_with_the_plan_and_raised_by_a_dry_run(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, sbatch=Answer(1, "", "allocation failure: Invalid feature specification\n"))
    assert [one.code for one in planner.estimated(a_plan(), SlurmClient(host)).notices] == ["SLURM_REFUSED"]
    with pytest.raises(InvalidJob, match="Invalid feature"):
        planner.rehearsed(a_plan(), SlurmClient(host))
    host.replies["sbatch"] = Answer(1, "", "sbatch: error: Unable to contact slurm controller\n")
    with pytest.raises(BackendError, match="is not responding"):
        planner.rehearsed(a_plan(), SlurmClient(host))
