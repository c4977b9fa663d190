"""Whether a cluster is ready: what answers, what is missing and what to do about it, one finding each."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.unit.slurm_support import FakeHost, a_reader

from mpijob.backends.slurm import doctor
from mpijob.backends.slurm.host import Answer
from mpijob.errors import BackendError, Finding, Severity

CONFIG = "ClusterName             = bed\nSLURM_VERSION           = 22.05.8\n"
PARTITIONS = (
    "PartitionName=main Default=YES MaxTime=1-00:00:00 State=UP TotalCPUs=16 TotalNodes=4\n"
    "PartitionName=short Default=NO MaxTime=UNLIMITED State=DOWN TotalCPUs=4 TotalNodes=1\n"
)
ACCOUNTS = "science||normal,tiny|normal|||cpu=8||\n"
QOS = "normal|0|||||\ntiny|1|node=1|00:05:00|||\nother|1|node=9||||\n"
SILENT = Answer(1, "", "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)\n")


def scontrol(argv: Sequence[str]) -> str:
    return CONFIG if "config" in argv else PARTITIONS


def sacctmgr(argv: Sequence[str]) -> str:
    return ACCOUNTS if "assoc" in argv else QOS


def run(argv: Sequence[str]) -> Answer:
    """Run a shell for real: what becomes of a path is its business."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return Answer(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(
        tmp_path / "root",
        scontrol=scontrol,
        sacctmgr=sacctmgr,
        srun=Answer(0, "", "MPI plugin types are...\n\tnone\n\tpmi2\n"),
        sh=run,
    )


def report(host: FakeHost) -> tuple[Finding, ...]:
    reader = a_reader(host, host.root.parent)
    return doctor.report(reader.client, reader, "alice")


def worst(found: tuple[Finding, ...]) -> list[Finding]:
    return [one for one in found if one.severity is not Severity.NOTICE]


def test_a_cluster_that_is_ready_is_described_without_a_complaint(host: FakeHost) -> None:
    found = report(host)
    assert worst(found) == []
    assert {one.code for one in found} == {"DOCTOR_OK"}
    text = "\n".join(one.message for one in found)
    for said in ("22.05.8", "cluster bed", "main (default): 4 nodes, 16 CPUs, at most 1440 minutes, UP"):
        assert said in text
    assert "partition short: 1 nodes, 4 CPUs, no time limit, DOWN" in text
    assert "pmi2" in text
    assert "account science" in text
    assert "QOS tiny" in text
    assert "QOS other" not in text, "it is not one of this user's"
    assert str(host.root) in text
    assert host.root.is_dir()


@pytest.mark.parametrize(
    "answer", [SILENT, BackendError("there is no program 'scontrol' here", hint="name a login node")]
)
def test_a_controller_that_does_not_answer_is_all_that_is_told(
    host: FakeHost, answer: Answer | BackendError
) -> None:
    host.replies["scontrol"] = answer
    (found,) = report(host)
    assert (found.code, found.severity) == ("DOCTOR_SLURM", Severity.ERROR)
    assert found.hint


@pytest.mark.parametrize(
    "answer", [Answer(0, "", "none\ncray_shasta\n"), Answer(1, "", "srun: error: no plugin\n")]
)
def test_a_slurm_that_starts_no_mpi_itself_is_a_warning(host: FakeHost, answer: Answer) -> None:
    host.replies["srun"] = answer
    (found,) = worst(report(host))
    assert found.severity is Severity.WARNING
    assert "pmi2" in found.message


def test_a_user_without_an_account_is_warned(host: FakeHost) -> None:
    host.replies["sacctmgr"] = lambda argv: "" if "assoc" in argv else QOS
    (found,) = worst(report(host))
    assert found.severity is Severity.WARNING
    assert "alice" in found.message


def test_an_accounting_that_does_not_answer_hides_nothing_else(host: FakeHost) -> None:
    host.replies["sacctmgr"] = Answer(
        1, "", "sacctmgr: error: Problem talking to the database: Connection refused\n"
    )
    found = report(host)
    (warning,) = worst(found)
    assert warning.severity is Severity.WARNING
    assert "accounting" in warning.message
    assert str(host.root) in found[-1].message


@pytest.mark.parametrize("plain", [b"PartitionName=\n", b"", b"\xff\x1f\x1e"])
def test_answers_that_are_cut_off_are_no_partitions(host: FakeHost, plain: bytes) -> None:
    host.replies["scontrol"] = lambda argv: CONFIG if "config" in argv else plain.decode(errors="replace")
    assert [one for one in report(host) if one.message.startswith("partition main")] == []


def test_a_directory_that_cannot_be_made_is_an_error_with_what_to_set(host: FakeHost, tmp_path: Path) -> None:
    (tmp_path / "root").write_text("a file")
    found = report(host)[-1]
    assert (found.code, found.severity) == ("DOCTOR_SLURM", Severity.ERROR)
    assert "MPIJOB_SLURM_DIRECTORY" in found.hint


@pytest.mark.security
@pytest.mark.parametrize("name", ["$(touch made)", "`touch made`", 'a"; touch made; "', "a b", "-p", "it's"])
def test_the_name_of_the_directory_is_never_taken_for_a_command(
    host: FakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    host.root = tmp_path / name
    assert worst(report(host)) == []
    assert not (tmp_path / "made").exists()
    assert (tmp_path / name).is_dir()
