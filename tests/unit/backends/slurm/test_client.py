"""What the failures of Slurm's commands mean: no answer, no such job, not allowed, too much, or a wrong word."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.slurm_support import FakeHost, sacct, squeue

from mpijob.backends.slurm.client import SlurmClient, refusal
from mpijob.backends.slurm.host import Answer
from mpijob.errors import BackendError, InvalidJob, MpiJobError, NotAllowed, NotFound, QuotaExceeded

SILENT = "squeue: error: Unable to contact slurm controller (connect failure)\n"


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (SILENT, BackendError),
        ("slurm_load_jobs error: Socket timed out on send/recv operation", BackendError),
        ("sbatch: error: Batch job submission failed: Protocol authentication error", BackendError),
        ("sbatch: error: Munge encode failed: Failed to access \"/run/munge/munge.socket.2\"", BackendError),
        ("sacct: error: Problem talking to the database: Connection refused", BackendError),
        ("sbatch: error: Slurm temporarily unable to accept job: Resource temporarily unavailable", BackendError),
        ("slurm_load_jobs error: Invalid job id specified", NotFound),
        ("scancel: error: Kill job error on job id 67: Job/step already completing or completed", NotFound),
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
         NotAllowed),
        ("sbatch: error: Batch job submission failed: Invalid qos specification", NotAllowed),
        ("scancel: error: Kill job error on job id 67: Access/permission denied", NotAllowed),
        ("sbatch: error: QOSMaxCpuPerJobLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS"
         " policy (job submit limit, user's size and/or time limits)", QuotaExceeded),
        ("allocation failure: Requested node configuration is not available", QuotaExceeded),
        ("sbatch: error: Batch job submission failed: More processors requested than permitted", QuotaExceeded),
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", InvalidJob),
        ("sbatch: error: Batch job submission failed: Invalid feature specification", InvalidJob),
        ("sbatch: error: Invalid generic resource (gres) specification", InvalidJob),
        ("", InvalidJob),
    ],
)  # fmt: skip
def test_a_command_that_failed_is_an_error_of_its_own_kind(said: str, kind: type[MpiJobError]) -> None:
    error = refusal("sbatch", Answer(1, "", said))
    assert type(error) is kind
    assert isinstance(error, BackendError) is (kind is BackendError)
    assert error.passing is (kind is BackendError) if isinstance(error, BackendError) else True


def test_a_refusal_has_slurms_words_without_what_is_before_them_and_each_once() -> None:
    line = "sbatch: error: Batch job submission failed: Invalid partition name specified\n"
    error = refusal(
        "sbatch", Answer(1, "", f"sbatch: error: invalid partition specified: nope\n{line}{line}")
    )
    assert "invalid partition specified: nope; Invalid partition name specified" in error.message
    assert "sbatch" not in error.message
    assert "ended with 9" in refusal("sbatch", Answer(9, "", "")).message


def test_a_job_that_slurm_does_not_know_is_none(host: FakeHost) -> None:
    client = SlurmClient(host)
    host.replies["squeue"] = Answer(1, "", "slurm_load_jobs error: Invalid job id specified\n")
    host.replies["scontrol"] = host.replies["scancel"] = host.replies["squeue"]
    assert (client.job("67"), client.show_job("67"), client.script("67")) == (None, {}, "")
    client.cancel("67")
    host.replies["squeue"] = squeue({})
    found = client.job("67")
    assert found is not None
    assert found.number == "67"


def test_a_silent_controller_is_no_answer_to_whether_a_job_is_there(host: FakeHost) -> None:
    host.replies["squeue"] = host.replies["scontrol"] = host.replies["sacct"] = Answer(1, "", SILENT)
    client = SlurmClient(host)
    for ask in (client.job, client.show_job, lambda number: client.accounting([number])):
        with pytest.raises(BackendError, match="Unable to contact"):
            ask("67")
    assert client.script("67") == ""


def test_a_cluster_without_accounting_knows_no_jobs_there(host: FakeHost) -> None:
    host.replies["sacct"] = Answer(1, "", "Slurm accounting storage is disabled\n")
    assert SlurmClient(host).accounting(["67"]) == []
    host.replies["sacct"] = sacct({})
    assert [row.number for row in SlurmClient(host).accounting(["67"])] == ["67"]


def test_the_fields_of_a_job_are_those_of_its_first_line(host: FakeHost) -> None:
    host.replies["scontrol"] = (
        "JobId=67 JobName=solve StdOut=/home/al ice/out ExitCode=7:0\nJobId=68 StdOut=/x\n"
    )
    fields = SlurmClient(host).show_job("67")
    assert (fields["JobId"], fields["StdOut"], fields["ExitCode"]) == ("67", "/home/al ice/out", "7:0")
    host.replies["scontrol"] = ""
    assert SlurmClient(host).show_job("67") == {}
