"""Every real failure gets its first cause; where its log does not prove one, it is said for which and why."""

from typing import Any

import msgspec
import pytest
from tests.unit.failures import CASES, a_job, evidence, said

import mpijob
from mpijob import checks
from mpijob.diagnosis import Memory, World, explain
from mpijob.model import Exit

# What was done to provoke each, by the fixture's name: this is what must be told, and told first.
CAUSE = {
    "cancel_sigterm": "CANCELLED",
    "daemon_sigkill": "DAEMON_LOST",
    "deadlock_hang": "HANG",
    "err_invalid_rank": "INVALID_RANK",
    "err_truncate": "TRUNCATED_MESSAGE",
    "exit_1": "RANK_EXIT",
    "import_error_m_mpi4py": "IMPORT_ERROR",
    "import_error_plain": "IMPORT_ERROR",
    "missing_executable": "MISSING_EXECUTABLE",
    "missing_library": "MISSING_LIBRARY",
    "mpi_abort_42": "MPI_ABORT",
    "not_enough_slots": "NOT_ENOUGH_SLOTS",
    "oom_memoryerror_rlimit": "MEMORY_ERROR",
    "python_m_not_found": "IMPORT_ERROR",
    "python_m_top_not_found": "IMPORT_ERROR",
    "oom_sigkill": "OOM_KILLED",
    "rank_sigkill": "RANK_KILLED",
    "segfault": "SEGFAULT",
    "sh_command_not_found": "MISSING_EXECUTABLE",
    "shell_command_not_found": "MISSING_EXECUTABLE",
    "ssh_hostkey": "HOST_KEY",
    "ssh_permission_denied": "PERMISSION_DENIED",
    "ssh_refused": "CONNECTION_REFUSED",
    "unknown_host_agent": "UNKNOWN_HOST",
    "unknown_host_ssh": "UNKNOWN_HOST",
    "worker_sigkill": "WORKER_LOST",
    "wrong_mpi_in_worker": "MPI_MISMATCH",
}

SIGTERM = "the launcher was told to end, and does not know by whom or why"
SILENT_END = "Open MPI ends on SIGTERM with code 1 and no word of its own"
INTEL_ENDS_THE_REST = (
    "Intel MPI reports the ranks that it ended itself in the words of a killed rank, not the first"
)
INTEL_KEEPS_SSH = "Intel MPI keeps ssh's words to itself and tells its exit code only"
OVERSUBSCRIBED = "Hydra runs the ranks all the same: the log is that of a run that succeeded"

# fixture → (what its log alone does prove, why not more)
NOT_PROVED_BY_THE_LOG: dict[str, tuple[str | None, str]] = {
    "intel/daemon_sigkill": (
        "LAUNCHER_KILLED",
        "it had to be killed; that a daemon was missing nobody wrote",
    ),
    "intel/deadlock_hang": ("TERMINATED", SIGTERM),
    "intel/exit_1": ("RANK_ENDED_EARLY", INTEL_ENDS_THE_REST),
    "intel/not_enough_slots": (None, OVERSUBSCRIBED),
    "intel/oom_sigkill": ("RANK_ENDED_EARLY", INTEL_ENDS_THE_REST),
    "intel/rank_sigkill": ("RANK_ENDED_EARLY", INTEL_ENDS_THE_REST),
    "intel/ssh_hostkey": ("SSH_FAILED", INTEL_KEEPS_SSH),
    "intel/ssh_refused": ("SSH_FAILED", INTEL_KEEPS_SSH),
    "mpich/cancel_sigterm": ("TERMINATED", SIGTERM),
    "mpich/daemon_sigkill": ("TERMINATED", SIGTERM),
    "mpich/not_enough_slots": (None, OVERSUBSCRIBED),
    "openmpi/cancel_sigterm": ("UNKNOWN", SILENT_END),
    "openmpi/deadlock_hang": ("UNKNOWN", SILENT_END),
    "openmpi/rank_sigkill": ("PEER_LOST", "only a neighbour spoke: its peer was gone, not how"),
}
FROM_THE_LOG_ALONE = {
    case: NOT_PROVED_BY_THE_LOG[case][0] if case in NOT_PROVED_BY_THE_LOG else CAUSE[case.split("/")[1]]
    for case in CASES
}

CANCELLED: dict[str, Any] = {"reason": "Cancelled"}
SILENT: dict[str, Any] = {"reason": "DeadlineExceeded", "elapsed_seconds": 600.0, "silent_seconds": 590.0}
DAEMON: dict[str, Any] = {"reason": "DaemonLost", "worker": 1}
PLENTY = (Memory(0, 1 << 30, 8 << 30), Memory(1, 1 << 30, 8 << 30))
KILLED: dict[str, Any] = {
    "ranks": (Exit(signal=9, index=1, worker=0, time=1.5), Exit(signal=9, index=0, time=2.5))
}
ENDED_1: dict[str, Any] = {
    "ranks": (Exit(signal=9, index=0, time=2.5), Exit(code=1, index=1, worker=0, time=1.5))
}
HOST_KEY_LINE = "No ED25519 host key is known for job-worker-0 and you have requested strict checking.\n"
SSH_SAID = {  # what ssh says to whoever asks it, as the first remedy does; our launcher's script passes it on
    "intel/ssh_hostkey": HOST_KEY_LINE + "Host key verification failed.",
    "intel/ssh_refused": "ssh: connect to host job-worker-0 port 22: Connection refused",
}

# what the engine knows besides, for each that its log does not prove
FACTS: dict[str, dict[str, Any]] = {
    "intel/daemon_sigkill": DAEMON,
    "intel/deadlock_hang": SILENT,
    "intel/exit_1": ENDED_1,
    "intel/oom_sigkill": KILLED | {"memory": (Memory(0, 8 << 30, 8 << 30, oom_kills=1),)},
    "intel/rank_sigkill": KILLED | {"memory": PLENTY},
    "mpich/cancel_sigterm": CANCELLED,
    "mpich/daemon_sigkill": DAEMON,
    "openmpi/cancel_sigterm": CANCELLED,
    "openmpi/deadlock_hang": SILENT,
    "openmpi/rank_sigkill": KILLED | {"memory": PLENTY},
}


@pytest.mark.thorough
@pytest.mark.req("AC3", "US1-3", "C-translate", "C-top10")
@pytest.mark.parametrize("case", CASES)
def test_a_bare_log_gives_its_cause_or_says_that_it_does_not_prove_one(case: str) -> None:
    findings = explain(evidence(case))
    assert (findings[0].code if findings else None) == FROM_THE_LOG_ALONE[case]


@pytest.mark.parametrize("case", NOT_PROVED_BY_THE_LOG)
def test_a_cause_that_is_not_proved_is_never_another_one_said_with_confidence(case: str) -> None:
    proved, _ = NOT_PROVED_BY_THE_LOG[case]
    findings = explain(evidence(case))
    assert proved != CAUSE[case.split("/")[1]]
    assert all(finding.code in (proved, "UNKNOWN") for finding in findings)
    assert all(finding.confidence < 0.9 for finding in findings)


@pytest.mark.thorough
@pytest.mark.req("C-top10")
@pytest.mark.parametrize(
    "case", [case for case in CASES if case in FACTS or case not in NOT_PROVED_BY_THE_LOG]
)
def test_with_what_the_engine_knows_every_cause_is_right_and_first(case: str) -> None:
    first = explain(evidence(case, **FACTS.get(case, {})))[0]
    assert first.code == CAUSE[case.split("/")[1]]


@pytest.mark.parametrize("case", SSH_SAID)
def test_the_words_of_ssh_tell_what_intels_report_leaves_out(case: str) -> None:
    seen = evidence(case)
    seen = msgspec.structs.replace(seen, logs=seen.logs + said(SSH_SAID[case], time=1.0))
    assert [finding.code for finding in explain(seen)] == [CAUSE[case.split("/")[1]]]


@pytest.mark.parametrize("case", ["intel/not_enough_slots", "mpich/not_enough_slots"])
def test_more_ranks_than_slots_are_refused_before_and_told_where_they_came_up_all_the_same(case: str) -> None:
    """Hydra would run them: so the plan refuses the job, and the census one whose command says it itself."""
    refused = checks.run(a_job(ranks=8))
    assert [finding.code for finding in refused if finding.severity.value == "error"] == ["BAD_RANKS"]
    world = World(planned=4, proved=8)
    assert explain(evidence(case, world=world, reason="WorldDiffers"))[0].code == "WORLD_DIFFERS"


@pytest.mark.parametrize("case", ["intel/err_truncate", "mpich/import_error_plain"])
def test_a_time_limit_does_not_hide_what_a_rank_said_before_it(case: str) -> None:
    assert explain(evidence(case, **SILENT))[0].code == CAUSE[case.split("/")[1]]


@pytest.mark.parametrize("case", ["intel/exit_1", "intel/oom_sigkill", "intel/rank_sigkill"])
def test_what_is_not_proved_is_said_with_little_confidence_and_names_no_rank(case: str) -> None:
    first = explain(evidence(case))[0]
    assert first.confidence <= 0.5
    assert first.rank is None


@pytest.mark.thorough
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
    assert (first.rank, first.message) == (
        1,
        "Rank 1 on worker 0 crashed with a segmentation fault (signal 11, SIGSEGV).",
    )


def test_an_exception_that_mpi4py_turned_into_an_abort_names_the_rank_that_aborted() -> None:
    findings = explain(evidence("openmpi/import_error_m_mpi4py"))
    assert [finding.code for finding in findings] == ["IMPORT_ERROR"]
    assert findings[0].rank == 1


@pytest.mark.req("B-edge-mpi")
def test_a_program_of_another_mpi_is_told_although_everything_ended_with_0() -> None:
    first = explain(evidence("intel/wrong_mpi_in_worker"))[0]
    assert first.message.startswith("MPI version mismatch detected. The program is built with Open MPI")
    assert any("image's MPI installation" in fix.text for fix in first.fixes)


def test_the_launchers_family_is_not_guessed_from_the_words_of_the_programs_library() -> None:
    lines = b"\n".join(line.text for line in evidence("intel/wrong_mpi_in_worker").logs)
    told = mpijob.diagnose(lines, exit_code=0)
    assert "the launcher is" not in told.summary
