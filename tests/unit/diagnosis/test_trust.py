"""Trust is earned: only an engine's fact is certain, warnings cause nothing, signals have numbers, rules yield."""

from __future__ import annotations

import itertools
import json

import pytest
from tests.unit.cli_support import Cli
from tests.unit.failures import a_job, said

import mpijob
from mpijob.diagnosis import Evidence, Memory, explain
from mpijob.diagnosis.matcher import SAID_AT_MOST, Hit
from mpijob.diagnosis.ranking import _deduplicated
from mpijob.diagnosis.rule import Rule, Trust
from mpijob.diagnosis.rules import RULES
from mpijob.errors import Place
from mpijob.model import Event, Exit

BY_ID = {rule.id: rule for rule in RULES}
CERTAIN = 0.9
STACK = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    step()\n'
DEEPSPEED = (
    "[WARNING] [runner.py:215:fetch_hostfile] Unable to find hostfile, will proceed with training with local"
)


def codes(text: str, **known: object) -> list[str]:
    return [finding.code for finding in mpijob.diagnose(text, **known).findings]  # type: ignore[arg-type]  # an exit code


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.signs], ids=lambda rule: rule.id)
def test_a_line_alone_is_never_certain(rule: Rule) -> None:
    line = Hit(rule, 0, 1.0, where=Place(file="log", line=3))
    assert line.sure <= SAID_AT_MOST < CERTAIN
    assert line.trust >= Trust.CAUSE


def test_an_engines_fact_is_certain_and_so_is_its_event() -> None:
    killed = Memory(worker=0, peak_bytes=8, limit_bytes=8, oom_kills=1)
    (fact, *_) = explain(Evidence(spec=a_job(), memory=(killed,), launcher=Exit(code=137)))
    assert (fact.code, fact.confidence >= CERTAIN) == ("OOM_KILLED", True)
    events = (Event(1.0, "Failed", 'secret "tracking" not found'),)
    (event, *_) = explain(Evidence(spec=a_job(), events=events, launcher=Exit(code=1)))
    assert (event.code, event.confidence >= CERTAIN) == ("SETTINGS_MISSING", True)
    (line, *_) = explain(
        Evidence(spec=a_job(), logs=said('secret "tracking" not found'), launcher=Exit(code=1))
    )
    assert (line.code, line.confidence >= CERTAIN) == ("SETTINGS_MISSING", False)


@pytest.mark.parametrize(
    ("exit_code", "expected"), [(1, ["PYTHON_EXCEPTION"]), (None, ["PYTHON_EXCEPTION"]), (0, [])]
)
def test_deepspeed_on_one_machine_is_no_cause_of_an_exception(
    exit_code: int | None, expected: list[str]
) -> None:
    assert (
        codes(f"{DEEPSPEED} resources only.\n{STACK}ValueError: no batch\n", exit_code=exit_code) == expected
    )


def test_deepspeed_without_a_hostfile_is_told_of_a_job_with_several_workers() -> None:
    logs, launcher = said(DEEPSPEED), Exit(code=0)
    assert explain(Evidence(spec=a_job(), logs=logs, launcher=launcher))[0].code == "DEEPSPEED_ONE_MACHINE"
    assert explain(Evidence(spec=a_job(workers=1), logs=logs, launcher=launcher)) == ()


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("OSError: [Errno 28] No space left on device: '/scratch/ckpt-9.pt'", "DISK_FULL"),
        ("n7:91 [0] include/shm.h:31 NCCL WARN Call to posix_fallocate failed : No space left on device", "SHM_FULL"),
        ("n7:91 [3] NCCL WARN Error while creating shared memory segment /dev/shm/nccl-9vN (size 9637)", "SHM_FULL"),
        ("mm_sysv.c:59 UCX ERROR shmget(size=2097152) failed: No space left on device", "SHM_FULL"),
        ("cannot write /dev/shm/cache-1: No space left on device", "SHM_FULL"),
    ],
)  # fmt: skip
def test_a_full_dev_shm_is_not_a_full_disk(line: str, code: str) -> None:
    assert codes(line, exit_code=1) == [code]


@pytest.mark.parametrize(
    ("number", "name", "code"),
    [
        (4, "Illegal instruction", "ILLEGAL_INSTRUCTION"),
        (6, "Aborted", "ABORTED"),
        (7, "Bus error", "BUS_ERROR"),
        (8, "Floating point exception", "FLOATING_POINT"),
        (9, "Killed", "OOM_KILLED"),
        (11, "Segmentation fault", "SEGFAULT"),
        (15, "Terminated", "TERMINATED"),
    ],
)
def test_every_launcher_names_a_signal_in_its_own_way_and_its_number_decides(
    number: int, name: str, code: str
) -> None:
    frame = "= BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n= PID 71 RUNNING AT n2\n= EXIT CODE: "
    torch = (
        "Root Cause (first observed failure):\n[0]:\n  host: n2\n  rank : 3 (local_rank: 3)\n  exitcode : "
    )
    reports = (
        f"prterun noticed that process rank 3 with PID 71 on node n2 exited on\nsignal {number} ({name}).",
        f"{frame}{number}\n{'=' * 30}\nYOUR APPLICATION TERMINATED WITH THE EXIT STRING: {name} (signal {number})",
        f"{frame}{128 + number}\n{'=' * 30}",
        f"{torch}-{number} (pid: 71)",
        f"E api.py:882] failed (exitcode: -{number}) local_rank: 3 (pid: 71) of binary: python",
        f"[ERROR] [launch.py:325:sigkill_handler] ['python', 'train.py'] exits with return code = -{number}",
        f"srun: error: n2: task 3: {name}",
        f"command terminated with exit code {128 + number}",
    )
    found = {report: codes(report, exit_code=1)[:1] for report in reports}
    assert found == {report: [code] for report in reports}


def test_hydra_joins_the_statuses_of_all_ranks_so_its_exit_string_alone_proves_nothing() -> None:
    frame = (
        "= BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n= PID 71 RUNNING AT n2\n= EXIT CODE: {}\n"
    )
    text = f"{'=' * 40}\nYOUR APPLICATION TERMINATED WITH THE EXIT STRING: {{}}"
    assert codes((frame + text).format(8, "Killed (signal 9)"), exit_code=9) == ["FLOATING_POINT"]
    assert codes((frame + text).format(9, "Segmentation fault (signal 11)"), exit_code=11) == ["SEGFAULT"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("port 29500 failed: Address already in use\nOSError: [Errno 24] Too many open files", "TOO_MANY_FILES"),
        ("*** An error occurred in MPI_Comm_dup\n*** MPI_ERR_INTERN\nToo many open files", "TOO_MANY_FILES"),
        ("multiprocessing.errors.ChildFailedError:\nSignal 7 (SIGBUS) received by PID 81", "BUS_ERROR"),
        ("Fatal error in internal_Init: Other MPI error, error stack:\nOFI fi_getinfo() failed (-61)", "FABRIC_FAILED"),
    ],
)  # fmt: skip
def test_what_follows_yields_to_what_came_first(text: str, code: str) -> None:
    assert codes(text, exit_code=1)[0] == code


def test_a_fabric_that_fails_is_mended_in_the_words_of_the_mpi_in_use() -> None:
    text = (
        "Abort(15): Fatal error in internal_Init: Other MPI error\nOFI addrinfo() failed (No data available)"
    )
    patches = {
        family: mpijob.diagnose(text, exit_code=15, family=family).fixes[0].patch
        for family in ("intel", "openmpi")
    }
    assert patches == {
        "intel": {"env": {"FI_PROVIDER": "tcp"}},
        "openmpi": {"launch": {"settings": {"btl": "tcp,self", "pml": "ob1"}}},
    }


PAIRS = [
    (rule, BY_ID[other])
    for rule in RULES
    for other in rule.yields_to
    if other != "*" and not (BY_ID[other].trust is Trust.GENERIC and rule.trust < Trust.GENERIC)
]


@pytest.mark.parametrize(("rule", "better"), PAIRS, ids=lambda rule: rule.id)
def test_each_rule_yields_to_what_it_names(rule: Rule, better: Rule) -> None:
    hits = [Hit(rule, 0, 1.0, fact=True), Hit(better, 1, 1.0, fact=True)]
    for order in itertools.permutations(hits):
        assert [hit.rule.id for hit in _deduplicated(list(order))] == [better.id]


def test_no_two_rules_yield_to_each_other() -> None:
    def yields(rule: Rule, other: Rule) -> bool:
        everything = "*" in rule.yields_to and other.trust < Trust.GENERIC
        return other.id in rule.yields_to or everything

    always = [rule for rule in RULES if "*" not in rule.yields_to]
    assert [(a.id, b.id) for a in always for b in RULES if yields(a, b) and yields(b, a)] == []


def test_an_unknown_cause_is_not_called_a_first_cause_and_leads_with_the_likeliest_line() -> None:
    log = b"step 1\nframble, the flux went backwards, cannot continue\nstep 2\n"
    text = Cli()("why", "--log", "-", "--exit-code", "3", stdin=log).stdout
    assert "a guess" not in text
    assert "first cause" not in text
    assert "Most relevant line: framble, the flux went backwards, cannot continue" in text.splitlines()[0]


HEALTHY = "step 1 loss 0.3\nWARNING: retry 1 of 3 after error\nvalidation: 0 errors\n"


def test_a_log_that_does_not_show_how_the_run_ended_says_so() -> None:
    told = mpijob.diagnose(HEALTHY)
    assert (told.findings, "does not show how the run ended" in told.summary) == ((), True)
    unsure = mpijob.diagnose("solver: cannot open mesh.h5\n" + "step 2\n" * 40)
    assert unsure.first is not None
    assert "solver: cannot open mesh.h5" in unsure.first.message
    assert "does not show whether the run failed" in unsure.first.message


@pytest.mark.parametrize(
    "end", ["training finished: accuracy 0.93\n", "Total wall time: 0:00:10\n", "JOB DONE.\n"]
)
def test_a_log_whose_end_shows_success_has_no_cause(end: str) -> None:
    told = mpijob.diagnose(f"{HEALTHY}{STACK}OSError: no cache yet\n" + "step 2\n" * 20 + end)
    assert (told.findings, told.summary) == ((), "The run succeeded.")


@pytest.mark.parametrize(
    ("lines", "telling"),
    [
        (("reading mesh", "ERROR: element 71 is inside out", "MPI_ABORT was invoked on rank 2 in communicator W"), 1),
        (("WARNING: cannot pin memory", "assembling", "solver: matrix is singular at row 17", "aborting job"), 2),
        (("step 1 error norm 0.1", "step 2 error norm 0.2", "flux.c:81: divergence: NaN in cell 9 not allowed"), 2),
        (("0 errors", "cannot read table.dat", "cannot continue", "Exited with exit code 3"), 1),
    ],
)  # fmt: skip
def test_the_most_telling_line_is_found(lines: tuple[str, ...], telling: int) -> None:
    (first, *_) = explain(Evidence(spec=a_job(), logs=said("\n".join(lines)), launcher=Exit(code=3)))
    assert lines[telling] in first.message
    assert first.place is not None


def test_the_programs_own_words_are_the_cause_and_its_abort_the_consequence() -> None:
    words = "solver: the matrix is singular at row 17\n"
    abort = "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\nwith errorcode 4.\n"
    (first, *rest) = mpijob.diagnose(words + abort, exit_code=4).findings
    assert (first.code, first.rank, rest) == ("PROGRAM_ERROR", 2, [])
    assert "singular at row 17" in first.message
    assert first.confidence < CERTAIN
    assert codes(abort, exit_code=4) == ["MPI_ABORT"]


def test_what_may_hold_a_secret_is_not_taken_for_own_words() -> None:
    ranks = (Exit(3, index=1, worker=0, time=100.0),)
    logs = said("error: the key abc123 is invalid", rank=1, time=99.0)
    told = explain(Evidence(spec=a_job(), ranks=ranks, logs=logs, veiled=True))
    assert "abc123" not in json.dumps([finding.message for finding in told])


SEGMENTATION = (
    "mpirun noticed that process rank 1 with PID 0 on node n1 exited on signal 11 (Segmentation fault)."
)
HYDRA_9 = (
    "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 86 RUNNING AT n1\n=   EXIT CODE: 9\n"
    "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n"
)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("reader: ERROR: mesh.bin holds no cells\n", ["PROGRAM_ERROR", "SEGFAULT"]),
        ("step 12 done\n", ["SEGFAULT"]),
        ("WARNING: mesh.bin holds few cells\n", ["SEGFAULT"]),
    ],
)
def test_an_error_that_was_reported_before_a_crash_is_its_cause(before: str, expected: list[str]) -> None:
    assert codes(f"start\n{before}{SEGMENTATION}\n") == expected


def test_an_error_before_a_known_cause_is_shown_with_it() -> None:
    first = mpijob.diagnose(
        f"open_input: fatal error opening run.in\n{STACK}ValueError: no input\n", exit_code=1
    ).findings[0]
    assert first.code == "PYTHON_EXCEPTION"
    assert "run.in" in first.evidence[0]


def test_what_the_engine_saw_of_a_signal_outweighs_the_launchers_report() -> None:
    ended = Exit(signal=8, index=3, worker=0, time=5.0)
    found = explain(Evidence(spec=a_job(), logs=said(HYDRA_9), ranks=(ended,), launcher=Exit(code=9)))
    assert [finding.code for finding in found] == ["FLOATING_POINT"]
    assert codes(HYDRA_9) == ["OOM_KILLED"]


def test_the_last_line_before_an_abort_is_shown_where_none_looks_wrong() -> None:
    abort = (
        "Abort(3) on node 0 (rank 0 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 3) - process 0"
    )
    first = mpijob.diagnose(f"the licence for CHEM ended yesterday\n{abort}\n").findings[0]
    assert (first.code, "licence for CHEM" in first.evidence[0]) == ("MPI_ABORT", True)


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("start\nh5tool: ERROR: unable to open file out.h5\n", ["PROGRAM_ERROR"]),  # its last words
        ("h5tool: ERROR: unable to open file out.h5\nreading the copy\nstep 1\n", ["UNKNOWN"]),  # it went on
        (
            "a: ERROR: no mesh in m.dat\nb\nc\nd\nz: ERROR: no input of z\n",
            ["UNKNOWN"],
        ),  # two, which is first?
    ],
)
def test_the_only_error_is_a_cause_where_the_log_ends_with_it(log: str, expected: list[str]) -> None:
    assert codes(log, exit_code=1) == expected


def test_a_run_that_reports_success_after_an_error_that_it_handled_has_no_cause() -> None:
    assert (
        codes(f"{STACK}ValueError: sample 7 is damaged\nskipped\ntraining finished after 30 samples\n") == []
    )


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-18 12:19:07 [critical ] scratch is not mounted  path=/scratch",  # levels of loggers
        "12:19:07.112 mesh CRITICAL wall 7 has no faces",
        'level=error msg="wall 7 has no faces"',
        '{"level": "FATAL", "message": "wall 7 has no faces"}',
        "E1118 09:40:11.529000 23423 mesh.cc:61] wall 7 has no faces",
        "org.acme.mesh.WallException: wall 7",  # exceptions of other languages
        "Caused by: WallFault: wall 7",
        "mesh.rb:7:in `walls': undefined local variable or method `wal' for main:Object (NameError)",
        "acme.lib.WallInvalid: wall 7 has no faces",
        "wall 7 has no faces at mesh.pl line 3.",  # the place in a source
        "mesh: walls.dat:71: wall 7 has no faces",
        "mesh: cannot open walls.dat",  # a program and what it could not do
        "Error in walls(7): no faces",
        "make: *** No rule to make target 'walls'.  Stop.",
    ],
)
def test_an_error_line_is_known_by_its_form_whatever_wrote_it(line: str) -> None:
    (first, *_) = mpijob.diagnose(f"reading 12 walls\n{line}\n", exit_code=1).findings
    assert (first.code, line in first.message) == ("PROGRAM_ERROR", True)


@pytest.mark.parametrize(
    "details",
    [
        "goroutine 1 [running]:\nmain.main()\n\t/job/m.go:5 +0x31\n",
        "stack traceback:\n\t[C]: in function 'error'\n",
        "Error termination. Backtrace:\n#0  0x7f6b in main\n",
        "See also the manual: https://acme.example/errors\n",
    ],
)
def test_stack_frames_and_hints_after_an_error_belong_to_it(details: str) -> None:
    for known in (None, 1):
        (first, *_) = mpijob.diagnose(
            f"start\nFATAL: wall 7 has no faces\n{details}", exit_code=known
        ).findings
        assert (first.code, "wall 7" in first.message) == ("PROGRAM_ERROR", True)


def test_an_error_that_was_survived_for_long_yields_to_the_one_at_the_end() -> None:
    steps = "".join(f"step {n} done\n" for n in range(30))
    log = f"ERROR: cannot load plugin fast, using slow\n{steps}ERROR: the mesh is inside out in cell 9\n"
    (first, *_) = mpijob.diagnose(log, exit_code=1).findings
    assert (first.code, "cell 9" in first.message) == ("PROGRAM_ERROR", True)


def test_what_is_drawn_in_a_box_is_said_as_one_sentence() -> None:
    box = "*****************\n* ERROR: the file  *\n* walls.dat is old *\n*****************\n"
    (first, *_) = mpijob.diagnose(box, exit_code=1).findings
    assert first.message.endswith("ERROR: the file walls.dat is old")


def test_a_step_that_is_cancelled_after_a_task_failed_was_cancelled_because_of_it() -> None:
    log = (
        "ERROR the grid is not periodic\nsrun: error: n1: task 1: Exited with exit code 17\n"
        "slurmstepd-n1: error: *** STEP 6.0 ON n1 CANCELLED AT 2026-11-18T12:21:05 ***\n"
    )
    first = mpijob.diagnose(log, exit_code=143).findings[0]
    assert (first.code, first.rank, "not periodic" in first.message) == ("PROGRAM_ERROR", 1, True)


def test_an_error_that_comes_after_a_report_of_success_shows_no_outcome() -> None:
    told = mpijob.diagnose("chunk 1 written\ntransfer complete\nERROR: lost connection to the data server\n")
    assert told.first is not None
    assert (told.first.code, told.first.confidence) == ("UNKNOWN", 0.0)
    assert codes("transfer complete\nERROR: lost connection to the data server\n", exit_code=1) == [
        "PROGRAM_ERROR"
    ]


def test_the_error_of_the_rank_that_ended_first_is_the_cause_not_an_earlier_complaint_of_another() -> None:
    logs = (
        *said("ERROR: cannot reach rank 1, error 104", rank=0, time=98.0),
        *said("table 3 is not sorted at read.pl line 7.", rank=1, time=99.0),
    )
    ranks = (Exit(3, index=1, worker=0, time=100.0), Exit(1, index=0, worker=0, time=101.0))
    first = explain(Evidence(spec=a_job(), ranks=ranks, logs=logs, launcher=Exit(code=3)))[0]
    assert (first.code, first.rank, "table 3" in first.message) == ("PROGRAM_ERROR", 1, True)


def test_what_a_launcher_prints_after_an_error_is_not_quoted_with_it() -> None:
    log = (
        "mesh: cannot open walls.dat\n----------\nPrimary job  terminated normally, but 1 process returned\n"
    )
    (first, *_) = mpijob.diagnose(log, exit_code=1).findings
    assert [line.partition(": ")[2] for line in first.evidence] == ["mesh: cannot open walls.dat"]
