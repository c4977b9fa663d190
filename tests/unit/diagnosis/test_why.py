"""`mpijob why`: the cause with its place, when things happened, what is known, and fixes that can be applied."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli_support import Cli
from tests.unit.failures import FOLDER, a_job, said

from mpijob import Client, MPIJob
from mpijob.backends.kubernetes.status import evidence
from mpijob.backends.memory import MemoryBackend
from mpijob.client.observe import diagnose
from mpijob.diagnosis import Evidence, Memory, explain, fixed, report
from mpijob.diagnosis.evidence import ActiveWarning
from mpijob.diagnosis.report import Diagnosis
from mpijob.errors import Finding, Fix, InvalidJob, NotFound, Place
from mpijob.model import Event, Exit, JobRef, JobState, LogLine, Phase, RankState, Sample, WorkerState

HANGS = {"memory.mpijob/outcome": "hangs"}
LOG = str(FOLDER / "openmpi" / "segfault.txt")
STARVED = Finding(
    "MEMORY_LIMIT",
    "Worker-1 exceeded memory limit (1GB).",
    worker=1,
    fixes=(Fix("more", {"resources": {"memory": "2Gi"}}), Fix("smaller batches")),
    evidence=("Rank-2 stderr: MemoryError",),
    place=Place("rank", 1, 2, "stderr", time=130.0),
)


def a_state(**fields: object) -> JobState:
    known: dict[str, object] = {
        "ref": JobRef("default", "job"),
        "phase": Phase.FAILED,
        "created": 100.0,
        "started": 110.0,
        "running": 120.0,
        "finished": 140.0,
        "workers_wanted": 2,
        "findings": (STARVED,),
        "message": STARVED.message,
        "workers": (WorkerState(0, "a", Phase.SUCCEEDED), WorkerState(1, "b", Phase.FAILED)),
    }
    return JobState(**(known | fields))  # type: ignore[arg-type]  # fields of a state


def of(state: JobState, events: tuple[Event, ...] = (), **known: object) -> Diagnosis:
    seen = Evidence(spec=a_job(), phase=state.phase, **known)  # type: ignore[arg-type]  # fields of evidence
    return report.of_job(state, seen, state.findings, events)


@pytest.mark.req("B-story4", "AC3")
def test_the_summary_counts_the_failed_workers_and_says_why() -> None:
    assert of(a_state()).summary == "Failed - 1/2 workers failed: Worker-1 exceeded memory limit (1GB)."


@pytest.mark.req("C-timeline")
def test_the_timeline_goes_from_the_queue_to_the_end_with_the_first_error_in_its_place() -> None:
    events = (Event(100.0, "Submitted", "by me"), Event(112.0, "WorkersReady", "2 workers"))
    steps = of(a_state(), events).timeline
    assert [(step.time, step.what) for step in steps] == [
        (100.0, "submitted"),
        (110.0, "resources given"),
        (112.0, "workers ready"),
        (120.0, "MPI up"),
        (130.0, "first error"),
        (140.0, "failed"),
    ]
    assert steps[4].place == STARVED.place


@pytest.mark.req("C-checklist")
def test_the_checklist_says_no_where_a_finding_says_so_and_unknown_where_nothing_does() -> None:
    marks = {check.question: check.mark.value for check in of(a_state()).checklist}
    assert marks["memory stayed below the limit"] == "no"
    assert marks["resources were allocated"] == "yes"
    assert marks["there was space on disk and in /dev/shm"] == "unknown"
    assert marks["the launcher exited with 0"] == "unknown"


def _marks(told: Diagnosis) -> dict[str, str]:
    return {check.question: check.mark.value for check in told.checklist}


@pytest.mark.req("C-checklist", "C-timeline")
@pytest.mark.parametrize(
    ("code", "came_up", "step"),
    [("MISSING_EXECUTABLE", "yes", "MPI up"), ("MPI_MISMATCH", "no", "ranks started")],
)
def test_timeline_and_checklist_agree_on_whether_mpi_came_up(code: str, came_up: str, step: str) -> None:
    told = of(a_state(findings=(Finding(code, "so it is"),)), (Event(120.0, "Running", "MPI completed"),))
    assert _marks(told)["MPI started with 4 ranks"] == came_up
    assert _marks(told).get("the program was found") == ("no" if code == "MISSING_EXECUTABLE" else None)
    assert [one.what for one in told.timeline if one.time == 120.0] == [step]
    assert ("MPI completed" in [one.text for one in told.timeline]) is (came_up == "yes")


@pytest.mark.req("C-checklist")
@pytest.mark.parametrize(("attempt", "mark"), [(1, "yes"), (2, "unknown")])
def test_workers_that_the_timeline_calls_ready_have_started(attempt: int, mark: str) -> None:
    state = a_state(phase=Phase.CANCELLED, running=None, findings=(), attempt=attempt)
    told = of(state, (Event(112.0, "WorkersReady", "Launcher discovered 2 workers"),))
    assert _marks(told)["all 2 workers started"] == mark
    assert _marks(told)["MPI started with 4 ranks"] == "unknown"


def test_measured_memory_answers_the_checklist() -> None:
    state = a_state(findings=())
    told = of(state, memory=(Memory(0, 1 << 29, 1 << 30),)).checklist
    detail = next(check.detail for check in told if "memory" in check.question)
    assert detail == "worker 0 used 512 MiB of 1 GiB at most"


def test_a_job_that_never_started_leaves_the_rest_unknown() -> None:
    state = a_state(phase=Phase.QUEUED, started=None, running=None, finished=None, findings=())
    assert {check.mark.value for check in of(state).checklist} == {"unknown"}


def test_fixes_are_counted_over_all_findings() -> None:
    other = Finding("HANG", "silent", fixes=(Fix("wait"),))
    numbered = report.numbered((STARVED, other))
    assert [(fix.number, fix.code) for fix in numbered] == [
        (1, "MEMORY_LIMIT"),
        (2, "MEMORY_LIMIT"),
        (3, "HANG"),
    ]


@pytest.mark.req("FR-UI-007", "B-11")
def test_a_fix_becomes_the_fields_that_it_changes() -> None:
    told = of(a_state())
    assert diagnose.fixed_fields(a_job(), told, 1) == {"resources": {"memory": "2Gi"}}
    with pytest.raises(InvalidJob, match="fix 2 changes nothing in the job's spec: smaller batches"):
        diagnose.fixed_fields(a_job(), told, 2)
    with pytest.raises(NotFound, match="its fixes are 1 to 2"):
        diagnose.fixed_fields(a_job(), told, 3)


def test_silence_is_told_with_how_busy_the_workers_are() -> None:
    idle = (Sample(1.0, 0, 0.01, 1), Sample(1.0, 1, 0.0, 1))
    (hang,) = explain(Evidence(spec=a_job(), phase=Phase.RUNNING, silent_seconds=90.0, samples=idle))
    assert "90 s" in hang.message
    assert "0.01 cores" in hang.message


@pytest.mark.parametrize(
    ("worry", "told"),
    [
        (ActiveWarning("RANK_IDLE", "idle.", 220.0, 1, 3), "rank 3 on worker 1"),
        (ActiveWarning("RANK_IDLE", "idle.", 220.0, 1), "worker 1 was idle"),
        (
            ActiveWarning("RANK_SILENT", "mute.", 220.0, 1, 2),
            "rank 2 on worker 1",
        ),
        (ActiveWarning("ALL_IDLE", "idle.", 220.0), "all 4 ranks were idle"),
        (ActiveWarning("JOB_SILENT", "mute.", 220.0), "all 4 ranks wrote"),
    ],
)
def test_a_hang_that_was_told_before_the_deadline_is_the_first_cause(worry: ActiveWarning, told: str) -> None:
    late = Evidence(
        spec=a_job(deadline_seconds=300.0), reason="DeadlineExceeded", started=100.0, active_warnings=(worry,)
    )
    hang, deadline = explain(late)
    assert (hang.code, deadline.code) == ("HANG", "DEADLINE_EXCEEDED")
    assert told in hang.message
    assert hang.evidence == (f"warned 2 min after the start: {worry.message} [{worry.code}]",)


def test_ranks_that_left_with_0_when_the_deadline_ended_them_are_told() -> None:
    ranks = tuple(Exit(0, index=rank, by_us=True) for rank in range(4))
    spec = a_job(deadline_seconds=300.0)
    (late,) = explain(Evidence(spec=spec, reason="DeadlineExceeded", launcher=Exit(0), ranks=ranks))
    assert "4 ranks exited with 0 only after the termination signal" in late.message
    (killed,) = explain(Evidence(spec=spec, reason="DeadlineExceeded", launcher=Exit(0), ranks=ranks[1:]))
    assert killed.message == "The job ran past its deadline of 300 s."


@pytest.mark.parametrize(
    ("silent", "fields", "quiet"),
    [
        (24.0, {}, "24 s"),
        (12.0, {}, ""),  # half of the time is not reached
        (24.0, {"spec": a_job(workers=1, slots=1, deadline_seconds=25.0)}, ""),  # for whom should it wait?
        (24.0, {"launcher": Exit(0), "ranks": tuple(Exit(0, index=rank) for rank in range(4))}, ""),
    ],
)
def test_a_deadline_that_met_silent_ranks_is_not_certain_to_have_been_too_short(
    silent: float, fields: dict[str, Any], quiet: str
) -> None:
    known = {"spec": a_job(deadline_seconds=25.0), "census": (RankState(0, 0),), **fields}
    seen = Evidence(reason="DeadlineExceeded", elapsed_seconds=25.0, silent_seconds=silent, **known)
    (late,) = explain(seen)
    assert late.confidence == (0.5 if quiet else 1.0)
    assert (f"no rank had written output in the last {quiet}: " in late.message) is bool(quiet)
    assert ("mpijob stacks" in late.fixes[0].text) is bool(quiet)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            (said("bad cell", rank=1, time=99.0), said("leaving", rank=1, time=99.5, stream="stdout")),
            "bad cell",
        ),
        (
            (said("old", rank=1, time=1.0), said("bad cell", rank=1, time=95.0, stream="stdout")),
            "(stdout): bad cell",
        ),
        ((said("bad cell", rank=1, time=1.0),), "(stderr): bad cell"),
        (
            (said("bad cell\nmpijob: this rank exits with 3, so all\n \n", rank=1, time=99.0),),
            "bad cell",
        ),
        ((said("step 1", rank=1, time=1.0, stream="stdout"), said("mine", rank=0, time=99.0)), None),
    ],
)
def test_a_failed_rank_is_quoted_with_its_last_words(
    lines: tuple[tuple[LogLine, ...], ...], told: str | None
) -> None:
    ranks = (Exit(3, index=1, worker=0, time=100.0),)
    (cause,) = explain(
        Evidence(spec=a_job(), ranks=ranks, logs=tuple(line for some in lines for line in some))
    )
    quoted = [line for line in cause.evidence if "last line of" in line]
    own = f"Its last line on stderr: {told}"
    if told == "bad cell":  # on stderr in the moments before the end: the rank's own report
        assert (cause.code, own in cause.message) == ("PROGRAM_ERROR", True)
    else:
        assert (cause.code, quoted) == ("RANK_EXIT", [f"last line of Rank-1 {told}"] if told else [])


@pytest.mark.security
def test_a_rank_that_may_have_said_a_secret_is_not_quoted() -> None:
    ranks, logs = (Exit(3, index=1, worker=0, time=100.0),), said("the key is 12345678", rank=1, time=99.0)
    (cause,) = explain(Evidence(spec=a_job(), ranks=ranks, logs=tuple(logs), veiled=True))
    assert not [line for line in cause.evidence if "12345678" in line]


@pytest.mark.security
@pytest.mark.parametrize(
    ("container", "borrows"),
    [
        ({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}, True),
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, True),
        ({"env": [{"name": "A", "value": "1"}], "envFrom": [{"configMapRef": {"name": "c"}}]}, False),
        ({}, False),
    ],
)
def test_a_pod_with_variables_from_a_secret_may_say_it(container: dict[str, Any], borrows: bool) -> None:
    assert evidence._has_secret_variables({"spec": {"containers": [{"name": "node"}, container]}}) is borrows


def test_the_runner_of_mpi4py_is_offered_only_where_nobody_watches_the_ranks() -> None:
    log = said('Traceback (most recent call last):\n  File "a.py", line 1\nValueError: x', rank=1)
    unwatched = Evidence(spec=a_job(), launcher=Exit(1), logs=log)
    watched = Evidence(
        spec=a_job(), launcher=Exit(1), logs=log, ranks=(Exit(1, index=1, worker=0, time=2.0),)
    )
    offered = [any("-m mpi4py" in fix.text for fix in explain(one)[0].fixes) for one in (unwatched, watched)]
    assert [explain(one)[0].code for one in (unwatched, watched)] == ["PYTHON_EXCEPTION"] * 2
    assert offered == [True, False]
    runner = explain(unwatched)[0].fixes[1]
    assert fixed(a_job(), runner).command == ("python", "-m", "mpi4py", "train.py")
    hangs = Evidence(spec=a_job(), phase=Phase.RUNNING, silent_seconds=90.0, census=(RankState(0, 0),))
    assert not any("mpi4py" in fix.text for fix in explain(hangs)[0].fixes)


def test_a_warning_that_is_no_hang_leaves_the_deadline_first() -> None:
    near = ActiveWarning("MEMORY_NEAR_LIMIT", "memory will run out", 200.0, 1)
    (late,) = explain(Evidence(spec=a_job(), reason="DeadlineExceeded", active_warnings=(near,)))
    assert late.code == "DEADLINE_EXCEEDED"


def test_what_a_failure_followed_from_is_told_with_time_ranks_and_node() -> None:
    seen = Evidence(
        spec=a_job(),
        launcher=Exit(code=137),
        started=100.0,
        memory=(Memory(1, 9 << 30, 8 << 30, exceeded=True, time=2800.0),),
    )
    assert explain(seen)[0].evidence == ("memory: peak 9 GiB of 8 GiB", "45 min after the start; ranks 2-3")


def test_a_job_without_a_known_fix_says_so() -> None:
    cli = Cli()
    cli.ok("create", "bert", "--workers", "2", "--label", "memory.mpijob/outcome=fails-3-on-1", "--", "true")
    with Client(cli.backend) as client:
        client.get("bert").wait()
    assert cli.json("why", "bert")["findings"][0]["code"] == "WORKER_FAILED"
    refused = cli("retry", "bert", "--with-fix", "1")
    assert (refused.exit_code, "no fix 1: no fix is known" in refused.stderr) == (3, True)


def test_a_suspended_job_says_how_it_goes_on() -> None:
    with Client(MemoryBackend()) as client:
        job = client.submit(MPIJob(name="a", workers=2, command=("true",), labels=HANGS))
        job.wait(for_phases={Phase.RUNNING})
        job.suspend()
        told = job.diagnose()
    assert told.first is not None
    assert (told.phase, told.first.code) == ("Suspended", "SUSPENDED")
    assert [fix.command for fix in told.fixes] == ["mpijob resume a"]


def test_a_job_that_waits_for_room_says_for_what() -> None:
    state = a_state(phase=Phase.QUEUED, findings=(), message="", waiting_for="4 GPUs", queue_position=2,
                    wait_estimate_seconds=1500.0)  # fmt: skip
    seen = diagnose._evidence(state, a_job(workers=4), (), (), (), now=200.0)
    (waits,) = diagnose._findings(state, seen, ())
    assert waits.message == "The job waits: 4 GPUs, position 2, about 25 min."
    assert {"workers": 2} in [fix.patch for fix in waits.fixes]


def test_why_prints_summary_causes_timeline_checklist_and_fixes() -> None:
    text = Cli().ok("why", "--log", LOG, "--exit-code", "139")
    assert (
        text.splitlines()[0] == "Rank 1 on worker 0 crashed with a segmentation fault (signal 11, SIGSEGV)."
    )
    assert "first cause, likely: Rank 1 on worker 0 crashed" in text
    assert f"read it in context: {LOG}:" in text
    assert "1. print the Python line of the crash" in text
    assert 'in the spec: {"env":{"PYTHONFAULTHANDLER":"1"}}' in text
    assert "details: mpijob explain SEGFAULT" in text


def test_why_reads_a_log_from_stdin_and_answers_in_json() -> None:
    result = Cli()("why", "--log", "-", "--exit-code", "139", "-o", "json", stdin=Path(LOG).read_bytes())
    told = json.loads(result.stdout)
    assert told["findings"][0]["code"] == "SEGFAULT"
    assert told["findings"][0]["place"]["file"] == "stdin"
    assert told["fixes"][0]["number"] == 1


@pytest.mark.parametrize("words", [(), ("bert", "--log", LOG)])
def test_why_wants_a_job_or_a_log(words: tuple[str, ...]) -> None:
    result = Cli()("why", *words)
    assert result.exit_code == 2
    assert "--log FILE" in result.stderr


def test_a_log_that_is_not_there_is_said() -> None:
    result = Cli()("why", "--log", "/nowhere.log")
    assert (result.exit_code, "there is no file /nowhere.log" in result.stderr) == (3, True)


def test_a_place_in_a_jobs_log_is_a_command_that_opens_it() -> None:
    from mpijob.cli.render import diagnosis_text as told

    lines = list(told.lines(of(a_state()), "mpijob {verb} job", "mpijob"))
    assert any(
        "mpijob logs job --rank 2 --since 1970-01-01T00:02:05.000Z --until 1970-01-01T00:02:15.000Z" in line
        for line in lines
    )
    assert any("mpijob retry job --with-fix 1" in line for line in lines)


@pytest.mark.security
def test_what_a_rank_said_reaches_no_terminal_as_control_bytes() -> None:
    hostile = said(
        b"Traceback (most recent call last):\n  File\nValueError: \x1b]0;owned\x07", rank=0, worker=0
    )
    for finding in explain(Evidence(spec=a_job(), logs=hostile, launcher=Exit(code=1))):
        assert "\x1b" not in finding.message + "".join(finding.evidence)


@pytest.mark.thorough
def test_a_log_that_takes_long_to_read_says_so(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mpijob", "why", "--log", "-"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environ = {**os.environ, "MPIJOB_HOME": str(tmp_path)}
    with subprocess.Popen(words, **pipes, env=environ, text=True) as slow:  # type: ignore[call-overload]  # all pipes
        assert slow.stderr.readline() == "reading stdin …\n"
        out, _ = slow.communicate("bash: orted: command not found\n", timeout=60)
    assert "MPI_NOT_ON_WORKER" in out
