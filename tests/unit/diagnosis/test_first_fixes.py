"""The first fix of a failure is about that failure: a quota is no full disk, a broken Python is no missing module."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.failures import a_job, said

import mpijob
from mpijob.diagnosis import Evidence, explain, fixed
from mpijob.model import Exit, Launch, LogLine, Role

NOT_FOUND = "not found (required by ./solver)"
TOLD = {
    "a quota": (
        "OSError: [Errno 122] Disk quota exceeded: 'ckpt.bin'",
        ("DISK_FULL", "could not write ckpt.bin: the user's disk quota", "free space in the quota"),
    ),
    "a full disk": (
        "OSError: [Errno 28] No space left on device: 'ckpt.bin'",
        ("DISK_FULL", "could not write ckpt.bin: the disk is full", "free disk space"),
    ),
    "a stale file": (
        "OSError: [Errno 116] Stale file handle: '/scratch/mesh.h5'",
        ("FILE_SYSTEM_ERROR", "could not read or write /scratch/mesh.h5: Stale", "do not replace or delete"),
    ),
    "a disk that fails": (
        "reading mesh.bin: Input/output error",
        ("FILE_SYSTEM_ERROR", "could not read or write a file: Input/output error", "check the file system"),
    ),
    "Python without its library": (
        "ModuleNotFoundError: No module named 'encodings'",
        ("IMPORT_ERROR", "could not start Python", "unset PYTHONHOME"),
    ),
    "a version of a library": (
        f"./solver: /opt/lib/libgrid.so: version `GRID_2.0' {NOT_FOUND}",
        ("MISSING_LIBRARY", "./solver needs version GRID_2.0 of /opt/lib/libgrid.so", "use the library"),
    ),
    "a library for the linker": (
        "/usr/bin/ld: cannot find -lfftw3_mpi: No such file or directory\ncollect2: error: ld returned 1",
        ("COMPILE_ERROR", "does not find the library fftw3_mpi.", "install the library fftw3_mpi"),
    ),
    "a Go source": (
        "# command-line-arguments\n./main.go:4:10: undefined: gridSize",
        ("COMPILE_ERROR", "Compiling ./main.go failed at line 4: undefined: gridSize", "fix the line"),
    ),
    "a program that is written": (
        "job.sh: line 3: ./solver: Text file busy",
        ("NOT_EXECUTABLE", "./solver cannot be started while it is open for writing", "build or copy it once"),
    ),
    "too many words": (
        "job.sh: line 3: /bin/echo: Argument list too long",
        ("SHELL_ERROR", "/bin/echo: Argument list too long", "pass fewer arguments"),
    ),
    "an option of node": (
        "node: bad option: --train-steps=5",
        ("BAD_ARGUMENTS", "node rejects its arguments: bad option: --train-steps=5", "correct the command"),
    ),
    "a limit on CPU time": (
        "job.sh: line 2:    12 CPU time limit exceeded python3 relax.py",
        ("RANK_SIGNAL", "had started: CPU time limit exceeded", "raise the limit on CPU time"),
    ),
    "a killed child": (
        "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    run(tool)\n"
        "subprocess.CalledProcessError: Command '['tool']' died with <Signals.SIGKILL: 9>.",
        ("OOM_KILLED", "A process that a rank had started was killed (SIGKILL)", "use smaller batches"),
    ),
    "a buffered send": (
        "*** An error occurred in MPI_Bsend\n*** reported by process [1,1]\n*** on communicator MPI_COMM_WORLD\n"
        "*** MPI_ERR_BUFFER: invalid buffer pointer",
        ("MPI_CALL_ERROR", "MPI_Bsend failed with MPI_ERR_BUFFER", "attach a buffer"),
    ),
    "no grid": (
        "*** An error occurred in MPI_Cart_shift\n*** on communicator MPI_COMM_WORLD\n"
        "*** MPI_ERR_TOPOLOGY: invalid communicator topology",
        ("MPI_CALL_ERROR", "MPI_Cart_shift failed with MPI_ERR_TOPOLOGY", "MPI_Cart_create"),
    ),
    "another MPI call": (
        "*** An error occurred in MPI_Bcast\n*** on communicator MPI_COMM_WORLD\n*** MPI_ERR_ROOT: invalid root",
        ("MPI_CALL_ERROR", "MPI_Bcast failed with MPI_ERR_ROOT", "compare the arguments"),
    ),
    "a panic of a new Rust": (
        "thread 'main' (18) panicked at rows.rs:4:28:\nindex out of bounds: the len is 3 but the index is 7",
        ("UNCAUGHT_ERROR", "index out of bounds", "fix what the error names"),
    ),
    "a port of a program": (
        "monitor: bind: Address already in use",
        ("PORT_IN_USE", "cannot listen on its port", "use a separate port for each"),
    ),
    "a port of torch": (
        "[c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
        ("PORT_IN_USE", "cannot listen on port 29500", "use another port"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "told"), TOLD.values(), ids=TOLD.keys())
def test_the_first_fix_is_about_the_cause(text: str, told: tuple[str, str, str]) -> None:
    (first, *_) = mpijob.diagnose(text, exit_code=1).findings
    code, message, fix = told
    assert first.code == code
    assert message in first.message
    assert fix in first.fixes[0].text


@pytest.mark.parametrize(
    ("option", "larger"),
    [("-Xmx512m", "-Xmx1024m"), ("--max-old-space-size=24", "--max-old-space-size=48")],
)
def test_a_heap_of_its_own_is_made_larger_and_not_the_worker(option: str, larger: str) -> None:
    text = "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory"
    job = a_job(command=("node", option, "graph.js"))
    (first, *_) = explain(Evidence(spec=job, logs=said(text), launcher=Exit(code=134)))
    assert (first.code, first.fixes[0].patch) == ("MEMORY_ERROR", {"command": ["node", larger, "graph.js"]})
    (without, *_) = explain(
        Evidence(spec=a_job(command=("node", "graph.js")), logs=said(text), launcher=Exit(code=134))
    )
    assert "command" not in without.fixes[0].patch


def _of_launcher(text: str) -> tuple[LogLine, ...]:
    return tuple(LogLine(9 * 10**9, line.encode(), Role.LAUNCHER) for line in text.splitlines())


FIRST = (
    "prterun detected that one or more processes exited with non-zero status,\nthus causing the job to be terminated. "
    "The first process to do so was:\n\n   Process name: [prterun-n1@1,{rank}]\n   Exit code:    {code}\n"
)


def test_a_rank_that_open_mpi_killed_for_another_is_no_cause() -> None:
    ranks = (
        Exit(signal=9, index=2, worker=1, time=5.0),
        Exit(code=3, index=1, worker=0, time=5.0, by_us=True),
        Exit(signal=15, index=0, worker=0, time=5.0, by_us=True),
    )
    for code, rank in ((137, 2), (3, 1)):  # mpirun exits with the code of the rank that failed first
        (alone, *_) = explain(Evidence(spec=a_job(), ranks=ranks, launcher=Exit(code=code, time=5.1)))
        assert alone.rank == rank
    told = _of_launcher(FIRST.format(rank=1, code=3))
    (first, *_) = explain(Evidence(spec=a_job(), ranks=ranks, launcher=Exit(code=3, time=5.1), logs=told))
    assert (first.code, first.rank) == ("RANK_EXIT", 1)


def test_a_rank_that_somebody_killed_stays_the_cause() -> None:
    ranks = (Exit(signal=9, index=2, worker=1, time=5.0), Exit(signal=15, index=0, time=5.0, by_us=True))
    told = _of_launcher(FIRST.format(rank=2, code=137))
    (first, *_) = explain(Evidence(spec=a_job(), ranks=ranks, launcher=Exit(code=137, time=5.1), logs=told))
    assert (first.code, first.rank) == ("OOM_KILLED", 2)


def test_what_a_deadline_ended_is_not_named_after_the_launchers_first_rank() -> None:
    ranks = tuple(Exit(signal=15, index=rank, time=5.0, by_us=True) for rank in range(2))
    told = _of_launcher(FIRST.format(rank=1, code=143))
    seen = Evidence(
        spec=a_job(), reason="DeadlineExceeded", ranks=ranks, logs=told, launcher=Exit(code=143, by_us=True)
    )
    assert explain(seen)[0].code == "DEADLINE_EXCEEDED"


def test_a_signal_is_told_although_the_launcher_knows_an_exit_code_only() -> None:
    ranks = (Exit(signal=13, index=1, worker=0, time=5.0),)
    told = _of_launcher(FIRST.format(rank=1, code=141))
    (first, *_) = explain(Evidence(spec=a_job(), ranks=ranks, launcher=Exit(code=141, time=5.1), logs=told))
    assert (first.code, first.message) == ("RANK_SIGNAL", "SIGPIPE ended rank 1 on worker 0.")
    assert "pipe or socket" in first.fixes[0].text


def test_complaints_about_a_variable_of_openmp_and_an_exit_status_of_0_are_no_failure() -> None:
    complaint = "\nlibgomp: Invalid value for environment variable OMP_NUM_THREADS\nenergy -76.02 after 9 iterations\n"
    assert mpijob.diagnose(complaint).findings == ()
    assert mpijob.diagnose("ERROR cache is locked\nfinished: 15 batches, exit status 0\n").findings == ()
    assert mpijob.diagnose("ERROR cache is locked\nfinished, exit status 3\n").findings != ()


HYDRA = (
    "===================================================================================\n"
    "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 12 RUNNING AT job-worker-0\n=   EXIT CODE: 9\n"
    "=   CLEANING UP REMAINING PROCESSES\n=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES\n"
    "===================================================================================\n"
    "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)"
)


def test_a_deadline_under_hydra_is_no_lack_of_memory() -> None:
    ranks = tuple(Exit(signal=9, index=rank, time=5.0, by_us=True) for rank in range(2))
    seen = Evidence(
        spec=a_job(deadline_seconds=5.0),
        reason="DeadlineExceeded",
        ranks=ranks,
        logs=_of_launcher(HYDRA),
        launcher=Exit(code=9, time=5.1, by_us=True),
    )
    assert [finding.code for finding in explain(seen)] == ["DEADLINE_EXCEEDED"]
    killed = msgspec.structs.replace(seen, reason="RankFailed", ranks=(Exit(signal=9, index=1, time=5.0),))
    assert explain(killed)[0].code == "OOM_KILLED"


def test_a_component_that_the_job_selects_itself_is_left_to_open_mpi() -> None:
    text = "A requested component was not found\n\n  Host: n1\n  Framework: coll\n  Component: tunned\n"
    job = a_job(launch=Launch(settings={"coll": "tunned", "btl": "tcp,self"}))
    (first, *_) = explain(Evidence(spec=job, logs=said(text), launcher=Exit(code=1)))
    assert first.code == "COMPONENT_MISSING"
    assert fixed(job, first.fixes[0]).launch.settings == {"coll": "", "btl": "tcp,self"}
    by_variable = a_job(env={"OMPI_MCA_coll": "tunned"})
    (first, *_) = explain(Evidence(spec=by_variable, logs=said(text), launcher=Exit(code=1)))
    assert first.fixes[0].patch == {"env": {"OMPI_MCA_coll": ""}}
    (first, *_) = explain(Evidence(spec=a_job(), logs=said(text), launcher=Exit(code=1)))
    assert first.fixes[0].patch == {}
