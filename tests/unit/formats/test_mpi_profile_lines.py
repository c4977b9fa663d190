"""How pods hand on what ranks counted: printed by sh, in pieces, and put together again."""

from __future__ import annotations

import base64
import gzip
import os
import subprocess
import time
from pathlib import Path

import pytest
from tests.unit.mpi_profiles import a_file

from mpijob.formats.launch import mpi_profile
from mpijob.formats.launch.mpi_profile import Assembler, Lack, Printed
from mpijob.formats.launch.rank_output import Output, Report
from mpijob.model import Family

MACHINE = os.uname().machine
RANDOM = os.urandom(9000)


class Worker:
    """A directory that stands for a worker's pod."""

    def __init__(self, root: Path) -> None:
        self.home, self.files = root / "home", root / "files"
        for place in (self.home / "ranks", self.home / ".ssh", self.home / "mpi-profile", self.files):
            place.mkdir(parents=True)

    def sh(self, text: str, **env: str) -> str:
        script = f"home={self.home}\n{mpi_profile.text()}\n{text}"
        told = {"PATH": os.environ["PATH"], "MPIJOB_PROFILER_FILES": str(self.files), **env}
        done = subprocess.run(["dash", "-uc", script], env=told, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def profile(self, name: str, data: bytes) -> Path:
        path = self.home / "mpi-profile" / name
        path.write_bytes(data)
        return path


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path)


def assembled(text: str) -> list[Printed | Lack]:
    assembler = Assembler()
    return [found for line in text.splitlines() if (found := assembler.feed(line.encode())) is not None]


@pytest.mark.parametrize("data", [a_file(), RANDOM], ids=["one line", "several lines"])
def test_a_file_that_a_worker_prints_is_put_together_again(worker: Worker, data: bytes) -> None:
    path = worker.profile("rank-3.mpiprofile", data)
    said = worker.sh(f"print_profile {path} 17 3")
    assert assembled(said) == [Printed("rank-3.mpiprofile", data)]
    assert all(len(line) < 4096 for line in said.splitlines()), "a pipe takes each line whole"
    assert all(mpi_profile.is_ours(line.encode()) for line in said.splitlines())


def test_lines_of_several_ranks_may_be_mixed_and_a_piece_that_is_missing_makes_no_file(
    worker: Worker,
) -> None:
    first, second = (
        worker.profile("rank-0.mpiprofile", RANDOM),
        worker.profile("rank-1.mpiprofile", RANDOM[::-1]),
    )
    zero, one = (
        worker.sh(f"print_profile {path} 1 {n}").splitlines() for n, path in enumerate((first, second))
    )
    mixed = "\n".join(line for pair in zip(zero, one, strict=True) for line in pair)
    assert {found.name for found in assembled(mixed) if isinstance(found, Printed)} == {
        "rank-0.mpiprofile",
        "rank-1.mpiprofile",
    }
    assert assembled("\n".join(zero[1:])) == []


def test_all_files_of_a_worker_are_printed_and_those_of_a_rank_at_its_end(worker: Worker) -> None:
    for name in (
        "rank-0.mpiprofile",
        "rank-10.mpiprofile",
        "step-2-rank-0.mpiprofile",
        "spawned-99.mpiprofile",
    ):
        worker.profile(name, a_file())
    assert {found[0] for found in assembled(worker.sh("print_all 5"))} == {
        "rank-0.mpiprofile", "rank-10.mpiprofile", "step-2-rank-0.mpiprofile", "spawned-99.mpiprofile",
    }  # fmt: skip
    ended = worker.sh("end_profile 0", MPIJOB_WORLD="8")
    assert {found[0] for found in assembled(ended)} == {"rank-0.mpiprofile", "step-2-rank-0.mpiprofile"}
    assert worker.sh("end_profile 0", MPIJOB_WORLD="200") == "", "of a large world only the workers print"


def test_ranks_reports_are_no_part_of_what_a_job_says(worker: Worker) -> None:
    worker.profile("rank-0.mpiprofile", a_file())
    (line,) = worker.sh("end_profile 0").splitlines()
    output = Output(Family.OPENMPI)
    (report,) = output.read(b"[1,0]<stdout>:" + line.encode())
    assert isinstance(report, Report)
    assert report.kind == "mpi"


def a_shim(worker: Worker, data: bytes) -> None:
    (worker.files / f"mpi_profile-{MACHINE}.gz").write_bytes(gzip.compress(data))


def test_a_worker_without_a_shim_for_its_machine_says_so(worker: Worker) -> None:
    said = assembled(worker.sh("begin_profile"))
    assert said == [Lack(f"whoever submitted the job had no shim for {MACHINE}")]
    assert not (worker.home / "profiler.so").exists()


def test_a_shim_that_the_images_c_library_does_not_take_is_taken_away_and_the_loader_quoted(
    worker: Worker,
) -> None:
    a_shim(worker, b"no library at all")
    (lack,) = assembled(worker.sh("begin_profile"))
    assert isinstance(lack, Lack)
    assert "profiler.so" in lack.message
    assert "cannot be preloaded" in lack.message
    assert not (worker.home / "profiler.so").exists()


def test_whatever_sshd_starts_inherits_the_shim(worker: Worker) -> None:
    from mpijob.backends.profiler import library

    a_shim(worker, library.ensure_shim(worker.home).read_bytes())
    said = worker.sh("begin_profile; kill $!")
    assert said == ""
    assert (worker.home / ".ssh" / "environment").read_text().splitlines() == [
        f"LD_PRELOAD={worker.home}/profiler.so",
        f"MPIJOB_MPI_PROFILE={worker.home}/mpi-profile",
    ]


def test_a_worker_prints_at_once_when_a_rank_has_ended(worker: Worker) -> None:
    worker.profile("rank-0.mpiprofile", a_file())
    script = (
        f"sleep 2 & echo 0 >{worker.home}/ranks/$!; keep_printing & loop=$!; wait %1; sleep 3; kill $loop"
    )
    began = time.monotonic()
    assert [found[0] for found in assembled(worker.sh(script))][:1] == ["rank-0.mpiprofile"]
    assert time.monotonic() - began < 9, "the first usual time is after 10 s"


@pytest.mark.security
@pytest.mark.parametrize(
    "line",
    [
        b"mpijob-mpi rank=0 name=../../etc/passwd id=1 part=1/1 data=AAAA",
        b"mpijob-mpi rank=0 name=rank-0.mpiprofile id=1 part=1/1 data=AAAA",
        b"mpijob-mpi rank=0 name=rank-0.mpiprofile id=1 part=9/1 data=AAAA",
        b"mpijob-mpi rank=0 name=rank-0.mpiprofile id=1 part=1/1 data=" + b"A" * 5000,
        b"mpijob-mpi of the user's own",
    ],
)
def test_lines_that_only_look_alike_make_no_file(line: bytes) -> None:
    assert Assembler().feed(line) is None


@pytest.mark.security
def test_a_small_line_does_not_become_a_file_beyond_all_bounds() -> None:
    packed = gzip.compress(b"\0" * (100 << 20))
    pieces = [
        base64.b64encode(packed)[at : at + 3000] for at in range(0, len(base64.b64encode(packed)), 3000)
    ]
    assembler, found = Assembler(), None
    for number, piece in enumerate(pieces, 1):
        line = b"mpijob-mpi rank=0 name=rank-0.mpiprofile id=1 part=%d/%d data=%s" % (
            number,
            len(pieces),
            piece,
        )
        found = assembler.feed(line)
    assert isinstance(found, Printed)
    assert len(found.data) == mpi_profile.LARGEST
