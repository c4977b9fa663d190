"""Where ranks stand: reading what py-spy, gdb and /proc say, grouping, and the sentences about it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpijob import Client, MPIJob
from mpijob.backends.memory import MemoryBackend
from mpijob.errors import Conflict, NotFound
from mpijob.formats.launch import stack_dump as words
from mpijob.model.status.stacks import Frame, Lack, Means, RankStack
from mpijob.observation.health import stacks as grouping

FIXTURES = Path(__file__).parents[2] / "fixtures" / "stacks"
MARK = "0123456789abcdef"


def spoken(rank: int, *sections: tuple[str, str], state: str = "S (sleeping)") -> str:
    """Return what the text in a worker says of one rank."""
    usual = (
        (f"rank {rank} {100 + rank}", ""),
        ("cmdline", "/usr/bin/python3\n-u\n/work/train.py\n--token=hidden-value"),
        ("status", f"State: {state}\nThreads: 3"),
        ("wchan", "hrtimer_nanosleep"),
        ("syscall", "230 0x1 0x1 0x7ffd 0x0"),
        ("machine", "x86_64"),
    )
    return "".join(f"\n{MARK} {head}\n{body}" for head, body in (*usual, *sections)) + f"\n{MARK} end\n"


def read(name: str) -> str:
    return (FIXTURES / name).read_text()


def python(rank: int, function: str, file: str = "/work/train.py", line: int = 42) -> RankStack:
    return RankStack(rank=rank, means=Means.PYSPY, frames=(Frame(function, file, line),))


def in_mpi(rank: int, call: str = "PMPI_Allreduce") -> RankStack:
    frames = (Frame("sched_yield", "/lib/libc.so.6", 0, True), Frame(call, "/lib/libmpi.so", 0, True))
    return RankStack(rank=rank, means=Means.GDB, frames=(*frames, Frame("main", "/work/a.c", 7, True)))


def test_pyspy_shows_the_mpi_call_below_the_python_line() -> None:
    (stack,) = words.read(MARK, spoken(0, ("python", ""), ("py-spy", read("pyspy-allreduce.json"))), 1)
    assert (stack.means, stack.lack, stack.worker, stack.program) == (
        Means.PYSPY,
        None,
        1,
        "python3 train.py",
    )
    assert grouping.where(stack) == "MPI_Allreduce"
    assert [frame.function for frame in stack.frames if not frame.native] == ["train", "<module>"]


def test_pyspy_names_the_line_of_a_rank_that_is_in_no_mpi_call() -> None:
    (stack,) = words.read(MARK, spoken(1, ("python", ""), ("py-spy", read("pyspy-sleep.json"))))
    assert grouping.where(stack) == "load_batch (t.py:6)"


def test_gdb_shows_the_main_thread_of_a_program() -> None:
    (stack,) = words.read(MARK, spoken(0, ("gdb", read("gdb-allreduce.txt"))))
    assert (stack.means, grouping.where(stack)) == (Means.GDB, "MPI_Allreduce")
    assert stack.frames[0] == Frame("__GI_sched_yield", "../sysdeps/unix/syscall-template.S", 120, True)


def test_without_tools_the_kernel_says_what_a_rank_does_and_what_would_show_more() -> None:
    (stack,) = words.read(MARK, spoken(3, ("python", "")))
    report = grouping.report([stack], "kubernetes")
    assert report.summary == "rank 3 sleeping in the system call clock_nanosleep (python3 train.py)"
    assert report.lacks == (
        "rank 3: the image has no py-spy, so Python lines are not shown: use --bring-py-spy, or install it there",
    )


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("failed py-spy", "Error: Permission Denied: Try running again with elevated permissions"),
        (
            "failed py-spy",
            "Error: Failed to open process 7 - check if it is running.: Operation not permitted (os error 1)",
        ),
        ("gdb", "Could not attach to process.\nptrace: Operation not permitted."),
    ],
)
def test_what_is_denied_is_told_with_what_would_allow_it(section: str, said: str) -> None:
    (stack,) = words.read(MARK, spoken(0, ("python", ""), (section, said)))
    assert stack.lack is Lack.DENIED
    (here,), (there,) = grouping.report([stack], "local").lacks, grouping.report([stack], "kubernetes").lacks
    assert "kernel.yama.ptrace_scope=0" in here
    assert "SYS_PTRACE" in there
    assert stack.said in here


@pytest.mark.parametrize(
    ("sections", "lack"),
    [
        ((), Lack.NO_GDB),
        ((("python", ""), ("failed py-spy", "")), Lack.TOO_SLOW),
        ((("python", ""), ("failed py-spy", "Error: Failed to find python version")), Lack.UNREADABLE),
        ((("gdb", ""), ("slow gdb", "")), Lack.TOO_SLOW),
        ((("gdb", "no stack."),), Lack.UNREADABLE),
        ((("python", ""), ("gdb", "#0  main () at a.c:3")), Lack.NO_PYSPY),
        ((("gdb", "#0  main () at a.c:3"),), None),
    ],
)
def test_each_shortfall_has_its_reason(sections: tuple[tuple[str, str], ...], lack: Lack | None) -> None:
    (stack,) = words.read(MARK, spoken(0, *sections))
    assert stack.lack is lack


@pytest.mark.security
def test_what_a_program_is_called_is_never_taken_for_an_answer() -> None:
    hostile = spoken(0, ("gdb", "deadbeefdeadbeef rank 9 9\n#0  main () at a.c:1\n MARK rank 8 8"))
    assert [stack.rank for stack in words.read(MARK, hostile)] == [0]


@pytest.mark.security
def test_no_argument_of_a_rank_is_told_since_one_may_be_a_secret() -> None:
    (stack,) = words.read(MARK, spoken(0))
    assert "hidden-value" not in repr(stack)


@pytest.mark.thorough
@pytest.mark.security
@given(st.text(max_size=400), st.sampled_from(["py-spy", "gdb", "failed py-spy", "status", "syscall"]))
def test_nothing_that_a_tool_says_breaks_the_reading(text: str, section: str) -> None:
    found = words.read(MARK, spoken(0, ("python", ""), (section, text)))
    assert grouping.report(found).summary


def test_many_ranks_in_one_place_are_counted_and_the_odd_one_is_named() -> None:
    stacks = [python(17, "next") if rank == 17 else in_mpi(rank) for rank in range(64)]
    report = grouping.report(stacks)
    assert report.summary == "63 ranks in MPI_Allreduce, rank 17 in next (train.py:42)"
    assert report.remarks == (
        "rank 17 has not reached MPI_Allreduce, where 63 ranks wait: check rank 17 first",
    )
    assert [group.waits for group in report.groups] == [True, False]


def test_collective_calls_that_do_not_match_are_told() -> None:
    (remark,) = grouping.report([in_mpi(0), in_mpi(1, "MPI_Bcast"), in_mpi(2, "MPI_Bcast")]).remarks
    assert "different collective calls (ranks 1-2 in MPI_Bcast, rank 0 in MPI_Allreduce)" in remark


def test_ranks_that_only_compute_are_not_suspected() -> None:
    assert grouping.report([python(rank, "forward", line=rank) for rank in range(4)]).remarks == ()
    assert grouping.report([python(0, "a"), python(1, "b"), python(2, "c"), in_mpi(3)]).remarks == ()


@pytest.mark.parametrize(
    ("function", "place"),
    [
        ("MPI_Recv", "MPI_Recv"),
        ("PMPI_Waitall", "MPI_Waitall"),
        ("PMPI_Bcast_c", "MPI_Bcast"),
        ("ncclAllReduce", "ncclAllReduce"),
        ("pncclGroupEnd", "ncclGroupEnd"),
        ("compute_forces", "compute_forces (a.c:3)"),
    ],
)
def test_a_native_place_is_named_by_the_call_that_the_program_made(function: str, place: str) -> None:
    frames = (Frame("__GI___poll", "../poll.c", 29, True), Frame("??", "libfabric.so", 0, True))
    stack = RankStack(rank=0, means=Means.GDB, frames=(*frames, Frame(function, "/src/a.c", 3, True)))
    assert grouping.where(stack) == place


def test_a_line_in_a_library_is_told_with_the_programs_own() -> None:
    inner = Frame("__next__", "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 630)
    stack = RankStack(rank=0, means=Means.PYSPY, frames=(inner, Frame("train", "/work/train.py", 12)))
    assert grouping.where(stack) == "__next__ (dataloader.py:630), called from train (train.py:12)"


@pytest.fixture
def sleeper() -> Iterator[int]:
    """Yield the pid of a shell that waits for a Python program, as a shim does."""
    script = f"{sys.executable} -c 'import time; print(1, flush=True); time.sleep(300)' & wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        subprocess.run(["sh", "-c", f"kill -9 -{process.pid}"], check=False)


def test_the_text_finds_the_program_below_its_shells_and_looks_at_it(sleeper: int) -> None:
    argv = [
        "sh",
        "-c",
        words.SCRIPT,
        "mpijob-stacks",
        MARK,
        str(Path(sys.executable).parent / "py-spy"),
        "10",
    ]
    said = subprocess.run([*argv, f"5:{sleeper}", "6:999999999"], capture_output=True, text=True, check=True)
    found, gone = words.read(MARK, said.stdout)
    assert (found.rank, found.means, found.program.startswith("python")) == (5, Means.PYSPY, True)
    assert found.pid != sleeper
    assert grouping.where(found) == "<module> (<string>:1)"
    assert (gone.rank, gone.lack) == (6, Lack.GONE)


def test_the_sdk_and_the_twin_speak_of_stacks() -> None:
    with Client(MemoryBackend()) as client:
        job = client.submit(MPIJob(name="long", workers=4, command=("sleep", "300")))
        job.wait(10, {job.phase.RUNNING})
        report = job.stacks(ranks=(1, 2))
        assert report.summary == "ranks 1-2 sleeping (sleep)"
        with pytest.raises(NotFound, match="has no rank 9"):
            job.stacks(ranks=(9,))
        job.cancel()
        with pytest.raises(Conflict, match="Cancelled"):
            job.stacks()
