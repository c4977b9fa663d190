"""Every real failure gets its first cause, or an honest answer that it is not proved."""

from typing import Any

import pytest
from tests.unit.failures import CASES, evidence

from mpijob.diagnosis import explain
from mpijob.model import Exit

FROM_THE_LOG_ALONE = {
    "intel/daemon_sigkill": "LAUNCHER_KILLED",
    "intel/deadlock_hang": "TERMINATED",
    "intel/err_invalid_rank": "INVALID_RANK",
    "intel/err_truncate": "TRUNCATED_MESSAGE",
    "intel/exit_1": "RANK_ENDED_EARLY",
    "intel/import_error_plain": "IMPORT_ERROR",
    "intel/missing_library": "MISSING_LIBRARY",
    "intel/not_enough_slots": None,
    "intel/oom_memoryerror_rlimit": "MEMORY_ERROR",
    "intel/oom_sigkill": "RANK_ENDED_EARLY",
    "intel/rank_sigkill": "RANK_ENDED_EARLY",
    "intel/segfault": "SEGFAULT",
    "intel/ssh_hostkey": "DAEMON_NOT_STARTED",
    "intel/ssh_refused": "DAEMON_NOT_STARTED",
    "intel/unknown_host_agent": "UNKNOWN_HOST",
    "intel/wrong_mpi_in_worker": "MPI_MISMATCH",
    "mpich/cancel_sigterm": "TERMINATED",
    "mpich/daemon_sigkill": "TERMINATED",
    "mpich/err_truncate": "TRUNCATED_MESSAGE",
    "mpich/import_error_m_mpi4py": "IMPORT_ERROR",
    "mpich/import_error_plain": "IMPORT_ERROR",
    "mpich/missing_executable": "MISSING_EXECUTABLE",
    "mpich/missing_library": "MISSING_LIBRARY",
    "mpich/mpi_abort_42": "MPI_ABORT",
    "mpich/not_enough_slots": None,
    "mpich/oom_sigkill": "OOM_KILLED",
    "mpich/ssh_hostkey": "HOST_KEY",
    "mpich/ssh_permission_denied": "PERMISSION_DENIED",
    "mpich/unknown_host_agent": "UNKNOWN_HOST",
    "mpich/unknown_host_ssh": "UNKNOWN_HOST",
    "mpich/worker_sigkill": "WORKER_LOST",
    "mpich/wrong_mpi_in_worker": "MPI_MISMATCH",
    "openmpi/cancel_sigterm": "UNKNOWN",
    "openmpi/daemon_sigkill": "DAEMON_LOST",
    "openmpi/deadlock_hang": "UNKNOWN",
    "openmpi/err_invalid_rank": "INVALID_RANK",
    "openmpi/exit_1": "RANK_EXIT",
    "openmpi/import_error_m_mpi4py": "IMPORT_ERROR",
    "openmpi/missing_executable": "MISSING_EXECUTABLE",
    "openmpi/mpi_abort_42": "MPI_ABORT",
    "openmpi/not_enough_slots": "NOT_ENOUGH_SLOTS",
    "openmpi/oom_memoryerror_rlimit": "MEMORY_ERROR",
    "openmpi/rank_sigkill": "PEER_LOST",
    "openmpi/segfault": "SEGFAULT",
    "openmpi/ssh_permission_denied": "PERMISSION_DENIED",
    "openmpi/ssh_refused": "CONNECTION_REFUSED",
    "openmpi/unknown_host_ssh": "UNKNOWN_HOST",
    "openmpi/worker_sigkill": "WORKER_LOST",
}

CANCELLED: dict[str, Any] = {"reason": "Cancelled"}
SILENT: dict[str, Any] = {"reason": "DeadlineExceeded", "elapsed_seconds": 600.0, "silent_seconds": 590.0}
DAEMON: dict[str, Any] = {"reason": "DaemonLost", "worker": 1}
KILLED: dict[str, Any] = {
    "ranks": (Exit(signal=9, index=1, worker=0, time=1.5), Exit(signal=9, index=0, time=2.5))
}
ENDED_1: dict[str, Any] = {
    "ranks": (Exit(signal=9, index=0, time=2.5), Exit(code=1, index=1, worker=0, time=1.5))
}

WITH_THE_ENGINES_FACTS = [
    ("intel/daemon_sigkill", DAEMON, "DAEMON_LOST"),
    ("intel/deadlock_hang", SILENT, "HANG"),
    ("intel/err_truncate", SILENT, "TRUNCATED_MESSAGE"),
    ("intel/exit_1", ENDED_1, "RANK_EXIT"),
    ("intel/oom_sigkill", KILLED, "OOM_KILLED"),
    ("intel/rank_sigkill", KILLED, "OOM_KILLED"),
    ("mpich/cancel_sigterm", CANCELLED, "CANCELLED"),
    ("mpich/daemon_sigkill", DAEMON, "DAEMON_LOST"),
    ("mpich/import_error_plain", SILENT, "IMPORT_ERROR"),
    ("openmpi/cancel_sigterm", CANCELLED, "CANCELLED"),
    ("openmpi/deadlock_hang", SILENT, "HANG"),
    ("openmpi/rank_sigkill", KILLED, "OOM_KILLED"),
]


@pytest.mark.req("AC3", "US1-3", "C-translate", "C-top10")
@pytest.mark.parametrize("case", CASES)
def test_a_bare_log_gives_its_cause_or_says_that_it_does_not_prove_one(case: str) -> None:
    findings = explain(evidence(case))
    assert (findings[0].code if findings else None) == FROM_THE_LOG_ALONE[case]


@pytest.mark.req("C-top10")
@pytest.mark.parametrize(("case", "known", "code"), WITH_THE_ENGINES_FACTS)
def test_with_what_the_engine_knows_the_cause_is_certain(case: str, known: dict[str, Any], code: str) -> None:
    assert explain(evidence(case, **known))[0].code == code


@pytest.mark.parametrize(
    "case", [case for case, code in FROM_THE_LOG_ALONE.items() if code == "RANK_ENDED_EARLY"]
)
def test_what_is_not_proved_is_said_with_little_confidence(case: str) -> None:
    assert explain(evidence(case))[0].confidence <= 0.5


@pytest.mark.parametrize(
    "case", [case for case, code in FROM_THE_LOG_ALONE.items() if code not in (None, "UNKNOWN")]
)
def test_every_finding_quotes_what_it_rests_on_and_offers_a_remedy(case: str) -> None:
    first = explain(evidence(case))[0]
    assert first.fixes
    assert first.evidence
    assert first.hint == first.fixes[0].text


def test_the_rank_that_crashed_is_named_although_another_is_reported_first() -> None:
    first = explain(evidence("intel/segfault"))[0]
    assert (first.rank, first.message) == (1, "Rank 1 on worker 0 crashed (segmentation fault).")


def test_an_exception_that_mpi4py_turned_into_an_abort_names_the_rank_that_aborted() -> None:
    findings = explain(evidence("openmpi/import_error_m_mpi4py"))
    assert [finding.code for finding in findings] == ["IMPORT_ERROR"]
    assert findings[0].rank == 1


@pytest.mark.req("B-edge-mpi")
def test_a_program_of_another_mpi_is_told_although_everything_ended_with_0() -> None:
    first = explain(evidence("intel/wrong_mpi_in_worker"))[0]
    assert first.message.startswith("MPI version mismatch detected. The program is built with Open MPI")
    assert any("image's MPI installation" in fix.text for fix in first.fixes)
