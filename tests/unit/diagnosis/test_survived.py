"""Errors in a log that the run survived are no cause; without the outcome, the answer says that it is not shown."""

from __future__ import annotations

import pytest

from mpijob.diagnosis import explain
from mpijob.diagnosis.logs import standalone_log
from mpijob.errors import Finding

_CRASHED = "job.sh: line 4: 77 Segmentation fault      ./preview in.dat"
_TRACEBACK = """Traceback (most recent call last):
  File "run.py", line 7, in load
    table = tables['viscosity']
KeyError: 'viscosity'"""
_WORK = "\n".join(f"tile {n} rendered" for n in range(9))
_STEPS = "\n".join(f"  step {n:3} residual {0.5**n:10.3e}" for n in range(1, 20))
_PROBED = "\n".join(
    f"step {n} loss 0.3{n}\nprobe: CUDA out of memory. Tried to allocate 9 GiB" for n in range(4)
)
_RESTARTED = f"""[rank1]: {_TRACEBACK.replace(chr(10), chr(10) + "[rank1]: ")}
E1119 15:37:17.736000 2 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 1"""
_NO_GPU = "WARNING: no CUDA-capable device is detected, using the CPU backend"


def _findings(text: str, exit_code: int | None = None) -> tuple[Finding, ...]:
    return explain(standalone_log.read({"log": iter((text.encode(),))}, exit_code=exit_code))


@pytest.mark.parametrize(
    "text",
    [
        f"{_CRASHED}\n{_WORK}",
        f"{_TRACEBACK}\n{_WORK}",
        f"tile 8 of 8\n{_TRACEBACK}",
        f"{_NO_GPU}\niter 1",
        f"{_TRACEBACK}\nsum of forces: 1.2e-09",
        f"ERROR opening restart.bin\ncold start\n{_STEPS}",
        f"[W 2026-11-19 10:00:00] part 1 failed because of an error\n{_TRACEBACK}\npart 2",
        f"{_PROBED}\nstep 4 loss 0.37",
        f"{_RESTARTED}\nattempt 1 rank 0 trained 100 steps",
        "read 40 rows\nERROR: cannot open notes.txt\nmean 4.5 of 40 rows",
    ],
    ids=[
        "crashed tool",
        "caught exception",
        "last step",
        "warning",
        "result",
        "indented steps",
        "logged warning",
        "series",
        "restarted ranks",
        "another line",
    ],
)
def test_what_a_run_may_have_survived_is_no_cause_where_its_outcome_is_not_shown(text: str) -> None:
    assert [found.code for found in _findings(text)] in ([], ["UNKNOWN"])
    assert "not show" in " ".join(found.message for found in _findings(text)) or not _findings(text)


@pytest.mark.parametrize(
    ("text", "code"), [(f"{_WORK}\n{_CRASHED}", "SEGFAULT"), (f"{_WORK}\n{_TRACEBACK}", "PYTHON_EXCEPTION")]
)
def test_the_same_error_is_the_cause_where_the_log_ends_with_it(text: str, code: str) -> None:
    assert _findings(text)[0].code == code


@pytest.mark.parametrize(
    "end", ["all 6 tasks succeeded", "attempt 2: completed normally", "5 of 6 tasks succeeded"]
)
def test_a_report_of_success_at_the_end_leaves_no_cause(end: str) -> None:
    assert _findings(f"{_TRACEBACK}\n3 failed: ValueError('no sample')\n{end}") == ()


def test_what_another_rank_wrote_as_before_shows_no_survival() -> None:
    text = "[0] reading table\nFATAL: table 3 ends before row 100\n[1] reading table"
    assert _findings(text)[0].code == "PROGRAM_ERROR"


def test_the_same_error_is_the_cause_where_the_exit_code_shows_a_failure() -> None:
    assert _findings(f"{_TRACEBACK}\n{_WORK}", exit_code=1)[0].code == "PYTHON_EXCEPTION"


def test_of_two_errors_the_one_that_the_run_did_not_survive_is_the_cause() -> None:
    later = _TRACEBACK.replace("KeyError: 'viscosity'", "ValueError: mesh is empty")
    assert "mesh is empty" in _findings(f"{_TRACEBACK}\n{_WORK}\n{later}", exit_code=1)[0].message
    assert _findings(f"{_NO_GPU}\n{_WORK}\n{_TRACEBACK}", exit_code=1)[0].code == "PYTHON_EXCEPTION"


def test_a_launchers_report_counts_whatever_follows_it() -> None:
    ended = (
        "mpirun noticed that process rank 2 with PID 7 on node n1 exited on signal 11 (Segmentation fault)."
    )
    assert _findings(f"{ended}\n{_WORK}")[0].code == "SEGFAULT"


def test_a_warning_among_the_events_of_kubernetes_is_an_error() -> None:
    event = (
        "Warning  FailedScheduling  3s  scheduler  0/6 nodes are available: 6 Insufficient nvidia.com/gpu."
    )
    assert _findings(event)[0].code == "UNSCHEDULABLE"
