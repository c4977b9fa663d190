"""What a rank got from its launcher is compared with what its program has, and a look comes when MPI is loaded."""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path

import pytest

from mpijob.backends.local.worker import process_tree
from mpijob.backends.local.worker.world_proof import WorldProof, differences
from mpijob.model import Family, MPIJob, Plan


def a_proof() -> WorldProof:
    job = MPIJob(name="proved", command=("true",), workers=2)
    return WorldProof(
        Plan(
            job=job, uid="1", engine="local", family=Family.MPICH, family_version="5", workers=(), world=2,
            hostfile="", launch=(), env={},
        )
    )  # fmt: skip


HYDRA = b"PATH=/bin\0PMI_RANK=0\0PMI_SIZE=2\0PMI_FD=7\0"
OPEN_MPI = (
    b"OMPI_COMM_WORLD_RANK=1\0PMIX_NAMESPACE=a@1\0PMIX_RANK=1\0PMIX_SERVER_URI41=a@0.0;tcp4://127.0.0.1:1\0"
)


@pytest.mark.parametrize(
    ("given", "environ", "lost", "changed"),
    [
        (HYDRA, HYDRA, (), ()),
        (HYDRA, HYDRA + b"A=1\0PMI_PORT=127.0.0.1:1\0", (), ()),
        (HYDRA, b"", ("PMI_FD", "PMI_RANK", "PMI_SIZE"), ()),
        (HYDRA, b"PMI_RANK=0\0PMI_SIZE=2\0NO_PMI_FD=7\0", ("PMI_FD",), ()),
        (HYDRA, b"PMI_RANK=0\0PMI_SIZE=1\0PMI_FD=9\0", (), ("PMI_FD", "PMI_SIZE")),
        (OPEN_MPI, OPEN_MPI, (), ()),
        (OPEN_MPI, b"OMPI_COMM_WORLD_RANK=1\0PMIX_NAMESPACE=a@1\0PMIX_RANK=1\0", ("PMIX_SERVER_URI41",), ()),
        (OPEN_MPI, OPEN_MPI.replace(b"a@", b"b@"), (), ("PMIX_NAMESPACE", "PMIX_SERVER_URI41")),
        (b"PATH=/bin\0", b"", (), ()),
        (HYDRA, None, (), ()),
        (None, b"", (), ()),
        (HYDRA, b"\0\0\0\0", (), ()),
        (HYDRA, b"train: epoch 3\0\0\0PATH=/bin\0", (), ()),
    ],
)
def test_a_program_has_what_its_rank_was_given(
    given: bytes | None, environ: bytes | None, lost: tuple[str, ...], changed: tuple[str, ...]
) -> None:
    assert differences(given, environ) == (lost, changed)


@pytest.mark.thorough
def test_after_a_minute_the_next_look_comes_when_an_mpi_library_is_opened(tmp_path: Path) -> None:
    library = tmp_path / "libmpi.so.12"
    library.touch()
    proof = a_proof()
    fd = proof.watch(
        {0: os.getpid(), 1: os.getpid()}, 0.0, {"LD_LIBRARY_PATH": str(tmp_path)}, "/nonexistent"
    )
    now = 0.0
    while (pause := proof.pause(now)) is not None:
        now += pause
        assert proof.check(now) == ""
    assert 60 < now < 62
    assert not select.select([fd], [], [], 0)[0]
    library.read_bytes()
    assert select.select([fd], [], [], 0)[0]
    assert proof.file_opened(fd, 100.0)
    assert proof.pause(100.0) == pytest.approx(0.001)
    os.close(fd)


@pytest.mark.thorough
def test_a_program_that_opens_files_all_the_time_is_looked_at_a_few_times_a_second(tmp_path: Path) -> None:
    proof = a_proof()
    fd = proof.watch({0: os.getpid()}, 0.0, {}, str(tmp_path))
    data = tmp_path / "data"
    data.touch()
    looks, now = 0, 100.0
    while now < 150.0:  # twenty openings a second
        data.read_bytes()
        assert proof.file_opened(fd, now)
        now += 0.05
        if (pause := proof.pause(now)) is not None and pause == 0.0:
            assert proof.check(now) == ""
            looks += 1
    assert 50 < looks <= 2 * (50 + 50 * 2)
    os.close(fd)


def test_the_mpi_inside_a_static_program_is_seen(tmp_path: Path) -> None:
    program = tmp_path / "static"
    program.write_bytes(Path("/bin/sleep").read_bytes() + b"\0MPIR_CVAR_CH4_NETMOD\0")
    program.chmod(0o755)
    proof = a_proof()
    environ = {"PMI_RANK": "0", "PMI_SIZE": "2", "PMI_FD": "7"}
    shell = ["/bin/sh", "-c", f"unset PMI_FD; {program} 30; true"]
    wrapper = process_tree.spawn(shell, environ, "/", (0, 1, 2))
    try:
        deadline = time.monotonic() + 30
        while not any(
            os.readlink(f"/proc/{pid}/exe") == str(program) for pid in process_tree.children(wrapper)
        ):
            assert time.monotonic() < deadline, "the program was not started"
        proof.watch({0: wrapper}, 0.0, {}, "/nonexistent")
        wrong = proof.check(1.0)
        assert f"the MPI inside {program}" in wrong
        assert "PMI_FD" in wrong
    finally:
        process_tree.send_signal(wrapper, signal.SIGKILL)
        assert process_tree.kill_descendants(os.getpid())
