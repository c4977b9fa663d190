"""MPI calls counted by the shim: exact bytes and messages with every MPI family, and what was counted stays.

The program in `sources/profiled.c` makes calls whose bytes are known; here they are added up.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.integration.support import FAMILIES, PATIENCE, a_job, ended, eventually, running, said, succeeded

from mpijob import Client, MPIJob, Phase
from mpijob.model import Code, Family
from mpijob.model.status.mpi_profile import CallKind, MpiProfile, RankProfile

pytestmark = [pytest.mark.engine, pytest.mark.req("PMV-012", "C-metrics", "R9")]
SOURCE = Path(__file__).parent / "sources" / "profiled.c"
WORLD = 3
ABI = "the ABI of MPI 5"
MPI = "from mpi4py import MPI; world = MPI.COMM_WORLD\n"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory, mpi_directories: dict[str, str]) -> dict[str, Path]:
    """The program for each family; Intel MPI runs what MPICH's compiler makes."""
    place = tmp_path_factory.mktemp("profiled")
    compilers = {
        "mpich": Path(sys.executable).parent / "mpicc",
        "openmpi": Path(mpi_directories["openmpi"]) / "bin" / "mpicc",
    }
    for family, mpicc in compilers.items():
        subprocess.run([mpicc, "-O1", SOURCE, "-o", place / family], check=True, capture_output=True)
    _compile_for_mpi_5(place)
    return {"intel": place / "mpich", ABI: place / ABI} | {family: place / family for family in compilers}


def _compile_for_mpi_5(place: Path) -> None:
    """With the header and the library of the ABI that MPI 5 has defined; MPICH's wheel brings both."""
    (place / "include").mkdir()
    (place / "include" / "mpi.h").symlink_to(Path(sys.prefix) / "include" / "mpi_abi.h")
    libraries = Path(sys.prefix) / "lib"
    argv: list[str | Path] = [
        "cc",
        "-O1",
        f"-I{place}/include",
        SOURCE,
        f"-L{libraries}",
        "-lmpi_abi",
        f"-Wl,-rpath,{libraries}",
    ]
    subprocess.run([*argv, "-o", place / ABI], check=True, capture_output=True)


def a_profiled(name: str, text: str, **fields: Any) -> MPIJob:
    files = Code(files={"program.py": MPI + text})
    return a_job(name, command=("python", "program.py"), code=files, profile_mpi=True, **fields)


def profiled(client: Client, job: MPIJob) -> MpiProfile:
    return succeeded(client, job.replace(profile_mpi=True)).profile()


def calls_of(rank: RankProfile) -> dict[str, int]:
    return {call.name.removesuffix("_c"): call.calls for call in rank.calls}


def expected() -> tuple[Counter[tuple[int, int]], Counter[tuple[int, int]]]:
    """Return the bytes and the messages that each rank sends to each other."""
    size: Counter[tuple[int, int]] = Counter()
    messages: Counter[tuple[int, int]] = Counter()

    def sent(sender: int, receiver: int, bytes_of_each: int, count: int = 1) -> None:
        if sender != receiver:
            size[sender, receiver] += bytes_of_each * count
            messages[sender, receiver] += count

    for rank in range(WORLD):
        nearest, before = (rank + 1) % WORLD, (rank - 1) % WORLD
        sent(rank, nearest, 700, 4)
        sent(rank, nearest, 80)
        sent(rank, nearest, 20, 3)
        sent(rank, nearest, 32)  # MPI_Put
        sent(before, rank, 48)  # MPI_Get: the data comes from there
        for other in range(WORLD):
            sent(rank, other, 2 * 8000 // WORLD, 6)  # MPI_Allreduce
            sent(rank, other, 44)  # MPI_Allgather
            sent(rank, other, rank + other + 1)  # MPI_Alltoallv
        sent(1, rank, 4000)  # MPI_Bcast
        sent(rank, 2, 240)  # MPI_Reduce
    sent(0, 1, 1 << 20)
    sent(2, 0, 77)  # MPI_Bcast among ranks 2 and 0
    sent(2, 0, 13)
    return size, messages


@pytest.mark.parametrize("kind", [*FAMILIES, ABI])
def test_bytes_and_messages_of_every_pair_are_exactly_what_the_program_sent(
    client: Client, kind: str, compiled: dict[str, Path]
) -> None:
    family = Family.MPICH if kind == ABI else Family(kind)
    job = a_job("exact", command=(str(compiled[kind]),), workers=WORLD, mpi=family)
    found = profiled(client, job)
    size, messages = expected()
    assert {(one.sender, one.receiver): one.size for one in found.pairs if one.messages} == size
    assert {(one.sender, one.receiver): one.messages for one in found.pairs if one.messages} == messages
    assert [one.rank for one in found.ranks] == list(range(WORLD))
    assert [one.worker for one in found.ranks] == list(range(WORLD))
    assert found.lacks == ()
    for one in found.ranks:
        calls = calls_of(one)
        assert (calls["MPI_Allreduce"], calls["MPI_Irecv"], calls["MPI_Startall"], calls["MPI_Barrier"]) == (
            6,
            4,
            3,
            1,
        )
        assert one.ended
        assert 0 < one.mpi_seconds <= one.seconds
        assert one.unattributed_size == 0


def test_who_is_late_and_the_bandwidth_of_large_messages_are_told(
    client: Client, compiled: dict[str, Path]
) -> None:
    found = profiled(
        client, a_job("late", command=(str(compiled["mpich"]),), workers=WORLD, mpi=Family.MPICH)
    )
    (pair,) = (one for one in found.pairs if (one.sender, one.receiver) == (0, 1))
    assert pair.waited_seconds >= 0.25, "rank 1 slept before it took the large message"
    assert pair.bandwidth is not None
    assert pair.bandwidth < (1 << 20) / 0.25
    assert found.slowest is not None


def test_what_pcontrol_leaves_out_is_no_part_of_the_time(client: Client, compiled: dict[str, Path]) -> None:
    job = succeeded(
        client,
        a_job("paused", command=(str(compiled["mpich"]),), workers=WORLD, mpi=Family.MPICH, profile_mpi=True),
    )
    (run,) = (rank for rank in job.profile().ranks if rank.rank == 0)
    state = job.state()
    assert state.finished is not None
    assert state.running is not None
    assert run.seconds < state.finished - state.running - 0.2


def test_python_is_counted_too_whose_mpi_nobody_else_in_the_process_can_see(
    client: Client, family: str
) -> None:
    text = "import numpy; data = numpy.zeros(100)\nfor _ in range(5): world.Allreduce(MPI.IN_PLACE, data)\n"
    found = profiled(client, a_profiled("python", text, mpi=Family(family)))
    for one in found.ranks:
        assert calls_of(one)["MPI_Allreduce"] == 5
        assert {call.kind for call in one.calls if call.name.startswith("MPI_Allreduce")} == {
            CallKind.COLLECTIVE
        }


# MPICH's MPI_Abort may return before its rank is ended.
@pytest.mark.parametrize(
    "how", ["world.Abort(3); time.sleep(600)", "os.kill(os.getpid(), signal.SIGKILL)", "os._exit(5)"]
)
def test_what_was_counted_until_the_end_is_kept_however_it_comes(client: Client, how: str) -> None:
    text = (
        "import os, signal, time\nfor _ in range(7): world.barrier()\nif world.rank == 1: "
        + how
        + "\nworld.barrier()"
    )
    job = client.submit(a_profiled("killed", text))
    assert job.wait(PATIENCE, {Phase.FAILED}).phase is Phase.FAILED
    found = job.profile()
    assert [calls_of(one)["MPI_Barrier"] for one in found.ranks] in ([7, 7], [8, 7])
    assert not any(one.ended for one in found.ranks)


def test_a_cancelled_job_keeps_what_it_counted(client: Client) -> None:
    job = running(client, a_profiled("cancelled", "world.barrier()\nimport time; time.sleep(600)"))
    eventually(lambda: len(job.profile().ranks) == 2, "both ranks have begun")
    eventually(lambda: all(calls_of(one).get("MPI_Barrier") for one in job.profile().ranks), "they have met")
    job.cancel(1.0)
    assert [calls_of(one)["MPI_Barrier"] for one in job.profile().ranks] == [1, 1]


def test_while_it_runs_one_sees_who_waits_in_which_call_and_for_whom(client: Client) -> None:
    job = running(
        client, a_profiled("waits", "import time\ntime.sleep(600) if world.rank else world.recv(source=1)")
    )

    def waiting() -> RankProfile | None:
        ranks = {one.rank: one for one in job.profile().ranks}
        first = ranks.get(0)
        return first if first is not None and first.calling and first.calling_seconds > 0.5 else None

    first = eventually(waiting, "rank 0 waits")
    assert first is not None
    assert first.calling.removesuffix("_c") in ("MPI_Mprobe", "MPI_Recv", "MPI_Probe")
    assert first.calling_peer == 1
    job.cancel(0.0)


def test_forked_children_count_nothing_into_their_parents_file(client: Client) -> None:
    text = """
import os
world.barrier()
child = os.fork()
if not child:
    try:
        MPI.Get_processor_name(), MPI.COMM_SELF.Iprobe()
    finally:
        os._exit(0)
os.waitpid(child, 0)
world.barrier()
"""
    found = profiled(client, a_profiled("forks", text))
    for one in found.ranks:
        assert calls_of(one)["MPI_Barrier"] == 2
        assert "MPI_Iprobe" not in calls_of(one)


def test_calls_of_several_threads_are_all_counted(client: Client) -> None:
    text = """
import threading
def talk(tag):
    for _ in range(200):
        world.send(None, 1 - world.rank, tag)
        world.recv(source=1 - world.rank, tag=tag)
threads = [threading.Thread(target=talk, args=(tag,)) for tag in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
    found = profiled(client, a_profiled("threads", text, workers=2))
    assert {(one.sender, one.receiver): one.messages for one in found.pairs} == {(0, 1): 800, (1, 0): 800}


def test_spawned_ranks_are_told_apart(client: Client) -> None:
    text = """
import sys
if MPI.Comm.Get_parent() == MPI.COMM_NULL:
    child = MPI.COMM_SELF.Spawn(sys.executable, ["program.py"], 1)
    child.send(b"x" * 1000, 0)
    child.Disconnect()
else:
    MPI.Comm.Get_parent().recv(source=0)
    MPI.Comm.Get_parent().Disconnect()
"""
    found = profiled(client, a_profiled("spawns", text, workers=1, mpi=Family.MPICH))
    assert [one.rank for one in found.ranks] == [0]
    assert found.ranks[0].unattributed_size > 1000
    assert any(lack.startswith("1 spawned ranks are separate MPI worlds") for lack in found.lacks)


def test_a_rank_without_mpi_is_named_as_one_that_could_not_be_counted(client: Client) -> None:
    found = profiled(client, a_job("none", "true", workers=2))
    assert found.ranks == ()
    assert any(lack.startswith("ranks 0-1 have no profile") for lack in found.lacks)


def test_a_script_is_counted_step_by_step(client: Client) -> None:
    script = "#!/bin/bash\nmpirun -n 2 python program.py\nmpirun -n 1 python program.py\n"
    files = Code(files={"run.sh": script, "program.py": MPI + "world.barrier()"})
    job = succeeded(client, MPIJob(name="steps", workers=2, script="run.sh", code=files, profile_mpi=True,
                                   resources=a_job().resources))  # fmt: skip
    last = job.profile()
    assert len(last.steps) == 2
    assert len(last.ranks) == 1
    assert len(job.profile(step=last.steps[0]).ranks) == 2


def test_a_command_with_its_own_mpirun_is_counted(client: Client, family: str) -> None:
    own = a_profiled("own", "world.barrier()", mpi=Family(family))
    found = profiled(client, own.replace(command=("mpirun", "-n", "2", "python", "program.py")))
    assert [calls_of(one)["MPI_Barrier"] for one in found.ranks] == [1, 1]


def test_other_preloaded_libraries_and_tools_keep_working(client: Client, tmp_path: Path) -> None:
    tool = tmp_path / "tool.c"
    tool.write_text(
        "#include <stdio.h>\nint PMPI_Barrier(void *);\n"
        'int MPI_Barrier(void *comm) { puts("the tool saw it"); fflush(stdout); return PMPI_Barrier(comm); }\n'
    )
    argv = ["cc", "-shared", "-fPIC", "-o", str(tmp_path / "tool.so"), str(tool)]
    subprocess.run(argv, check=True, capture_output=True)
    job = a_profiled(
        "tools", "world.barrier()", env={"LD_PRELOAD": str(tmp_path / "tool.so")}, mpi=Family.OPENMPI
    )
    done = succeeded(client, job)
    assert said(done) == {0: ["the tool saw it"], 1: ["the tool saw it"]}
    assert [calls_of(one)["MPI_Barrier"] for one in done.profile().ranks] == [1, 1]


def test_the_profile_of_a_deleted_job_is_remembered(client: Client) -> None:
    job = succeeded(client, a_profiled("gone", "world.barrier()"))
    before = job.profile()
    client.delete("gone")
    after = client.profile("gone")
    assert [calls_of(one) for one in after.ranks] == [calls_of(one) for one in before.ranks]


def test_nothing_is_preloaded_unless_it_is_asked_for(client: Client) -> None:
    done = succeeded(client, a_job("off", "echo preload=${LD_PRELOAD:-none}"))
    assert set(said(done)[0]) == {"preload=none"}
    failed = ended(client, a_profiled("off2", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"))
    assert failed.phase is Phase.FAILED
