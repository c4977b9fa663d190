"""The first cause is told first, in the user's words, with what would mend it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.failures import CASES, a_job, evidence, said
from tests.unit.properties import examples

from mpijob.diagnosis import Evidence, Memory, World, explain, fixed, summary
from mpijob.diagnosis.rules import IDS, RULES
from mpijob.errors import Finding, Severity
from mpijob.model import Exit, LogLine
from mpijob.observation.state.phase import Reason

GIB = 1 << 30
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    f()\n'


def told(*logs: LogLine, **known: Any) -> tuple[Finding, ...]:
    facts: dict[str, Any] = {"spec": a_job(), "launcher": Exit(code=1, time=99.0), "logs": logs}
    return explain(Evidence(**(facts | known)))


@pytest.mark.req("C-translate", "AC3")
def test_a_rank_killed_by_the_system_reads_as_the_requirement_has_it() -> None:
    line = "mpirun noticed that process rank 3 with PID 0 on node n exited on\nsignal 9 (Killed)."
    first = told(*said(line), spec=a_job(workers=8, slots=1))[0]
    assert first.message == (
        "Worker-3 was terminated by the system, likely due to running out of memory (OOM). "
        "The process was forcibly killed to protect the node."
    )


@pytest.mark.req("UC1-AF2", "B-story4")
def test_a_worker_over_its_memory_limit_reads_as_the_requirement_has_it() -> None:
    spec = a_job(workers=8, resources={"memory": "32Gi"})
    memory = Memory(worker=7, peak_bytes=33 * GIB, limit_bytes=32 * GIB, exceeded=True)
    first = told(spec=spec, memory=(memory,), ranks=(Exit(signal=9, index=7, worker=7),))[0]
    assert first.code == "MEMORY_LIMIT"
    assert first.message == (
        "Worker-7 exceeded memory limit (32GB). "
        "Consider increasing memory request or reducing data batch size."
    )
    assert fixed(spec, first.fixes[0]).resources.memory == "66Gi"
    assert "66Gi" in first.fixes[0].text


@pytest.mark.req("B-story1-fail")
def test_a_gpu_out_of_memory_reads_as_the_requirement_has_it() -> None:
    error = TRACEBACK + "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    assert told(*said(error, rank=5, worker=2))[0].message == "Worker 2 failed: CUDA out of memory"


@pytest.mark.req("B-story4")
def test_the_failed_workers_are_counted() -> None:
    assert summary(1, 8) == "Failed - 1/8 workers failed"


@pytest.mark.req("A-edge-net", "UC1-AF3")
def test_ranks_that_cannot_reach_each_other_point_to_the_network() -> None:
    first = told(*said("At least one pair of MPI processes are unable to reach each other for\nMPI"))[0]
    assert first.message == "MPI communication failure - check NetworkPolicies"
    assert any("MPI_FLAGS=--mca btl tcp,self" in fix.text for fix in first.fixes)


def test_the_kernels_own_count_of_kills_makes_the_cause_certain() -> None:
    memory = Memory(worker=0, peak_bytes=GIB, limit_bytes=GIB, oom_kills=1)
    first = told(memory=(memory,), ranks=(Exit(signal=9, index=1, worker=0, time=1.0),))[0]
    assert (first.code, first.confidence) == ("OOM_KILLED", 0.95)


def test_a_kill_far_below_the_memory_limit_is_somebody_elses() -> None:
    memory = Memory(worker=0, peak_bytes=GIB // 8, limit_bytes=GIB)
    findings = told(memory=(memory,), ranks=(Exit(signal=9, index=1, worker=0, time=1.0),))
    assert [finding.code for finding in findings] == ["RANK_KILLED"]
    assert "128 MiB of 1 GiB" in findings[0].message


def test_the_rank_whose_own_exit_came_first_is_the_culprit() -> None:
    later = said(TRACEBACK + "ConnectionResetError: peer", rank=0, worker=0, time=6.0)
    ranks = (Exit(code=1, index=0, worker=0, time=6.5), Exit(signal=11, index=3, worker=1, time=5.0))
    findings = told(*later, ranks=ranks)
    assert [(finding.code, finding.rank) for finding in findings] == [
        ("SEGFAULT", 3),
        ("PYTHON_EXCEPTION", 0),
    ]


def test_what_we_ended_ourselves_is_no_cause() -> None:
    ranks = (Exit(signal=9, index=0, time=1.0, by_us=True), Exit(code=3, index=2, worker=1, time=2.0))
    first = told(ranks=ranks)[0]
    assert first.message == "Rank 2 on worker 1 exited with code 3."


def test_an_exception_says_more_than_the_exit_code_of_its_rank() -> None:
    findings = told(
        *said(TRACEBACK + "ValueError: bad shape", rank=2, worker=1, time=5.1),
        ranks=(Exit(code=1, index=2, worker=1, time=5.0),),
    )
    assert [finding.message for finding in findings] == [
        "Rank 2 on worker 1 failed with an exception: ValueError: bad shape"
    ]


def test_an_exception_that_a_rank_survived_is_not_the_cause() -> None:
    handled = TRACEBACK + "ValueError: retried\n" + "\n".join(f"step {n}" for n in range(20))
    assert told(*said(handled, rank=0, worker=0))[0].code == "UNKNOWN"


def test_a_deadline_explains_itself_only_when_nothing_failed_before() -> None:
    spec = a_job(deadline_seconds=60.0)
    alone = told(spec=spec, reason="DeadlineExceeded")[0]
    assert alone.message == "The job ran past its deadline of 60 s."
    assert fixed(spec, alone.fixes[0]).deadline_seconds == 120.0
    error = said(TRACEBACK + "KeyError: 'x'", rank=1, worker=0)
    both = told(*error, spec=spec, reason="DeadlineExceeded")
    assert [finding.code for finding in both] == ["PYTHON_EXCEPTION", "DEADLINE_EXCEEDED"]


def test_what_is_not_recognised_is_said_with_the_first_lines_that_look_wrong() -> None:
    first = told(*said("all well\nstrange failure in frobnicator\nbye"), launcher=Exit(code=77))[0]
    assert (first.code, first.confidence) == ("UNKNOWN", 0.0)
    assert "exit code 77" in first.message
    assert "Launcher stderr: strange failure in frobnicator" in first.evidence


@pytest.mark.parametrize(
    "text", ["all well", "WARNING: retry after error", TRACEBACK + "ValueError: handled", "Killed"]
)
def test_nothing_is_said_of_a_job_that_succeeded(text: str) -> None:
    ranks = tuple(Exit(code=0, index=n) for n in range(4))
    logs = said(text, rank=0, worker=0)
    assert told(*logs, launcher=Exit(code=0), ranks=ranks, world=World(planned=4, proved=4)) == ()


def test_ranks_that_each_believe_to_be_alone_are_a_warning_even_after_success() -> None:
    logs = [line for rank in range(4) for line in said("rank 0 of 1", rank=rank, worker=0)]
    (only,) = told(*logs, launcher=Exit(code=0), world=World(planned=4, proved=4))
    assert (only.code, only.severity) == ("MPI_MISMATCH", Severity.WARNING)
    assert told(*logs[:1], spec=a_job(workers=1, slots=1), launcher=Exit(code=0)) == ()


def test_a_world_of_the_wrong_size_is_told_with_both_numbers() -> None:
    first = told(reason="WorldDiffers", world=World(planned=4, proved=2))[0]
    assert first.message == "The job planned 4 ranks, but 2 started."


@pytest.mark.parametrize(
    ("text", "code", "part"),
    [
        ("[proxy:0@w] f: execvp error on file ./run.sh (Permission denied)", "NOT_EXECUTABLE", "./run.sh"),
        (
            "bash: ./run.sh: /usr/bin/pyton: bad interpreter: No such file or directory",
            "MISSING_INTERPRETER",
            "/usr/bin/pyton",
        ),
        ("/usr/bin/env: 'python9': No such file or directory", "MISSING_INTERPRETER", "python9"),
        (
            "python: can't open file '/job/trian.py': [Errno 2] No such file or directory",
            "MISSING_EXECUTABLE",
            "trian.py",
        ),
        (
            "ImportError: libcudart.so.12: cannot open shared object file: No such file",
            "MISSING_LIBRARY",
            "libcudart",
        ),
        ("OSError: [Errno 28] No space left on device", "DISK_FULL", "disk is full"),
        ("ssh: connect to host j-worker-3 port 22: Connection timed out", "NETWORK_BLOCKED", "j-worker-3"),
        (
            "*** An error occurred in MPI_Bcast\n*** MPI_ERR_COUNT: invalid count",
            "MPI_CALL_ERROR",
            "MPI_ERR_COUNT",
        ),
        ("mpirun has detected an attempt to run as root.", "ROOT_REFUSED", "root"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "MEMORY_ERROR", "bad_alloc"),
    ],
)
def test_single_signs_are_recognised(text: str, code: str, part: str) -> None:
    first = told(*said(text))[0]
    assert (first.code, part in first.message) == (code, True)


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("Cancelled", "CANCELLED"),
        ("SupervisorLost", "SUPERVISOR_LOST"),
        ("StartRefused", "START_REFUSED"),
        ("WorkerLost", "WORKER_LOST"),
        ("DaemonLost", "DAEMON_LOST"),
        ("DiskFull", "DISK_FULL"),
        ("MemoryLimitExceeded", "MEMORY_LIMIT"),
        ("StartTimeout", "START_TIMEOUT"),
        ("Silent", "HANG"),
    ],
)
def test_what_the_engine_knows_is_believed(reason: str, code: str) -> None:
    assert told(reason=reason, message="fork: Resource temporarily unavailable")[0].code == code


def test_every_reason_that_ends_a_job_by_itself_has_its_rule() -> None:
    facts = {fact for rule in RULES for fact in rule.facts}
    of_the_engine = (
        Reason.CANCELLED,
        Reason.START_REFUSED,
        Reason.START_TIMEOUT,
        Reason.SUPERVISOR_LOST,
        Reason.DEADLINE_EXCEEDED,
        Reason.MEMORY_EXCEEDED,
        Reason.DISK_FULL,
        Reason.WORKER_LOST,
    )
    assert {f"reason:{reason}" for reason in of_the_engine} <= facts


def test_a_launcher_killed_from_outside_is_told() -> None:
    (killed,) = told(launcher=Exit(signal=9))
    assert (killed.code, "SIGKILL" in killed.message) == ("LAUNCHER_KILLED", True)


def test_every_rule_has_an_id_of_its_own_and_only_yields_to_rules_that_exist() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert {other for rule in RULES for other in rule.yields_to} <= IDS | {"*"}
    told_by_ranking = {"LAUNCHER_ERROR"}
    assert all(rule.signs or rule.facts for rule in RULES if rule.id not in told_by_ranking)


@pytest.mark.thorough
@pytest.mark.req("FR-UI-007")
@pytest.mark.parametrize("case", CASES)
def test_every_patch_that_is_offered_gives_a_valid_job(case: str) -> None:
    seen = evidence(case, spec=a_job(deadline_seconds=60.0))
    for finding in explain(seen):
        for fix in finding.fixes:
            job = fixed(seen.spec, fix)
            assert (job != seen.spec) == bool(fix.patch)
            assert msgspec.json.decode(msgspec.json.encode(job), type=type(job)) == job


@pytest.mark.security
def test_what_a_program_said_is_quoted_without_what_a_terminal_would_obey() -> None:
    first = told(
        *said(TRACEBACK.encode() + b"ValueError: \x1b]0;owned\x07 \xe2\x80\xae\xff", rank=0, worker=0)
    )[0]
    assert all(part.isprintable() for part in (first.message, *first.evidence))


@pytest.mark.security
def test_a_rank_cannot_blame_another_one() -> None:
    forged = "MPI_ABORT was invoked on rank 7 in communicator MPI_COMM_WORLD\n Errorcode: 3"
    assert told(*said(forged, rank=2, worker=1))[0].rank == 2


@pytest.mark.thorough
@pytest.mark.security
@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_no_text_makes_it_fail(data: st.DataObject) -> None:
    words = [sign.literal.encode() for rule in RULES for sign in rule.signs]
    words += [
        b"rank " + b"9" * 400,
        b"RANK 1 PID 2 RUNNING AT x-worker-" + b"1" * 50,
        b"\x00",
        b"\n",
        b"\xff",
    ]
    text = b" ".join(data.draw(st.lists(st.sampled_from(words) | st.binary(max_size=20), max_size=40)))
    rank = data.draw(st.none() | st.integers(0, 3))
    assert told(*said(text, rank=rank, worker=rank))


@pytest.mark.thorough
@pytest.mark.security
def test_a_megabyte_of_noise_takes_no_time_to_speak_of() -> None:
    noise = [
        b"Traceback (most recent call last):" + b" " * 3000,
        b"BAD TERMINATION = PID 1 " * 100,
        b"No space left",
    ]
    logs = [line for n in range(400) for line in said(noise[n % 3], time=float(n))]
    assert told(*logs)


def test_a_long_traceback_is_quoted_at_the_users_own_line() -> None:
    frames = "".join(f'  File "<frozen runpy>", line {n}, in _run_code\n    exec(code)\n' for n in range(4))
    own = '  File "/work/boom.py", line 4, in <module>\n    x = 1 / 0\n        ~~^~~\n'
    lines = said(
        TRACEBACK.splitlines()[0] + "\n" + frames + own + "ZeroDivisionError: division by zero",
        rank=1,
        worker=0,
    )
    evidence = " ".join(told(*lines)[0].evidence)
    assert 'File "/work/boom.py", line 4' in evidence
    assert "x = 1 / 0" in evidence
    assert "ZeroDivisionError: division by zero" in evidence


def test_a_launcher_that_was_killed_is_no_ranks_failure_although_a_rank_seems_to_end_first() -> None:
    """Its ranks end with it, and one may be seen a moment before it."""
    launcher = Exit(None, signal=9, time=10.0)
    rank = Exit(None, signal=9, time=9.99, index=1, worker=1)
    (finding, *_) = told(launcher=launcher, ranks=(rank,), memory=(Memory(1, enough=True),))
    assert (finding.code, finding.worker, finding.rank) == ("LAUNCHER_KILLED", None, None)


def test_a_connection_to_a_rank_that_aborted_is_not_taken_for_a_network_that_is_closed() -> None:
    """As Open MPI 4 says it in pods."""
    abort = "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\nwith errorcode 42."
    lost = "WARNING: Open MPI failed to TCP connect to a peer MPI process."
    ranks = (Exit(code=42, index=1, worker=1, time=1.1), Exit(code=143, index=0, worker=0, time=2.0))
    seen = Evidence(spec=a_job(), logs=said(abort, time=1.0) + said(lost, rank=0, time=1.9), ranks=ranks)
    first = explain(seen)[0]
    assert (first.code, first.rank) == ("MPI_ABORT", 1)
    assert "code 42" in first.message
    alone = Evidence(spec=a_job(), logs=said(lost, rank=0, time=1.9), ranks=ranks[1:])
    assert explain(alone)[0].code == "MPI_UNREACHABLE"
