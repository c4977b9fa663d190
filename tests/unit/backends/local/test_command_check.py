"""Programs and scripts that this machine lacks or cannot execute: refused with a guess, before anything starts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpijob.backends import code_upload
from mpijob.backends.local import LocalBackend
from mpijob.backends.mpi import mpi_installations
from mpijob.client import Client
from mpijob.errors import InvalidJob, Unsupported
from mpijob.model import Code, Launch, MPIJob, Program, Volume
from mpijob.settings import Settings

WRITTEN = "files from code.files are not executable"


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    here = tmp_path / "here"
    (here / "lib").mkdir(parents=True)
    (here / "train.py").write_text("print(1)\n")
    (here / "lib" / "run.sh").write_text("true\n")
    (here / "lib" / "run.sh").chmod(0o755)
    monkeypatch.chdir(here)
    settings = Settings(home=str(tmp_path / "home"), cores=2, memory="8Gi", gpus=0)
    with Client(LocalBackend(settings), settings=settings) as client:
        yield client


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("command", "args", "field", "hint"),
    [
        (("python", "trian.py"), (), "command[1]", "did you mean train.py?"),
        (
            ("python3", "-u", "-X", "dev", "-Wignore"),
            ("trian.py", "--lr"),
            "args[0]",
            "did you mean train.py?",
        ),
        (("bash", "-e", "run.sh"), (), "command[2]", "correct the spelling"),
        (("python", "/nonexistent/train.py"), (), "command[1]", "correct the spelling"),
        (("python", "../train.py"), (), "command[1]", "did you mean train.py?"),
        (("python", "~/train.py"), (), "command[1]", "did you mean train.py?"),
        (("python", "~/x"), (), "command[1]", "~ is not expanded"),
        (("./trian.py",), (), "command[0]", "did you mean train.py?"),
        (("python", "-m", "mpi4py", "trian.py"), (), "command[3]", "did you mean train.py?"),
        (
            ("python", "-u", "-W", "x", "-X", "y", "-m", "mpi4py.run", "trian.py"),
            (),
            "command[8]",
            "train.py?",
        ),
        (("python", "-m", "mpi4py"), ("trian.py", "--lr"), "args[0]", "did you mean train.py?"),
        (("/nonexistent/solver",), (), "command[0]", "correct the spelling"),
    ],
)
def test_a_script_that_is_not_there_is_refused_with_a_guess(
    local: Client, command: tuple[str, ...], args: tuple[str, ...], field: str, hint: str
) -> None:
    with pytest.raises(InvalidJob) as caught:
        local.plan(MPIJob(name="j", workers=2, command=command, args=args))
    finding = caught.value.findings[0]
    assert (finding.code, finding.field) == ("COMMAND_NOT_FOUND", field)
    assert hint in finding.hint


@pytest.mark.thorough
@pytest.mark.parametrize(
    "job",
    [
        MPIJob(name="j", workers=2, command=("python", "train.py", "nope.py")),
        MPIJob(name="j", workers=2, command=("python", "./train.py")),
        MPIJob(name="j", workers=2, command=("bash", "lib/run.sh")),
        MPIJob(name="j", workers=2, command=("./lib/run.sh",)),
        MPIJob(name="j", workers=2, command=("/bin/true",)),
        MPIJob(name="j", workers=2, command=("python", "made.py"), code=Code(files={"made.py": ""})),
        MPIJob(name="j", workers=2, command=("python", "lib/run.sh"), code=Code(path=".", include=("lib",))),
        MPIJob(name="j", workers=2, command=("python", "-c", "nope.py")),
        MPIJob(name="j", workers=2, command=("python", "-m", "nope")),
        MPIJob(name="j", workers=2, command=("python", "-m", "mpi4py", "train.py")),
        MPIJob(name="j", workers=2, command=("python", "-m", "mpi4py", "-m", "nope")),
        MPIJob(name="j", workers=2, command=("python", "-m", "mpi4py.bench", "helloworld")),
        MPIJob(name="j", workers=2, command=("python", "-")),
        MPIJob(name="j", workers=2, command=("python", "--some-option", "nope.py")),
        MPIJob(name="j", workers=2, command=("sh", "-c", "true")),
        MPIJob(name="j", workers=2, command=("sh", "-o", "errexit", "nope.sh")),
        MPIJob(name="j", workers=2, command=("env", "nope.py")),
        MPIJob(name="j", workers=2, command=("python",)),
        MPIJob(name="j", workers=2, command=("python", "/data/train.py"),
               volumes=(Volume(mount="/data", source="."),)),
        MPIJob(name="j", workers=2, programs=(Program(ranks=2, command=("python", "train.py")),)),
    ],
    ids=lambda job: " ".join(job.argv) or "programs",
)  # fmt: skip
def test_a_script_that_is_there_or_cannot_be_known_is_planned(local: Client, job: MPIJob) -> None:
    assert local.plan(job).job.name == "j"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("program", "along", "hint"),
    [
        ("./train.py", Code(), "chmod +x {here}/train.py, or name its interpreter first: python train.py"),
        ("./lib/run.sh", Code(), "chmod +x {here}/lib/run.sh, or name its interpreter first: sh lib/run.sh"),
        ("{here}/train.py", Code(), "chmod +x {here}/train.py, or name its interpreter first: python {here}/train.py"),
        ("./solver", Code(), "make it executable: chmod +x {here}/solver"),
        ("./made.py", Code(files={"made.py": ""}), f"name its interpreter first: python made.py; {WRITTEN}"),
        ("./train.py", Code(path=".", files={"./train.py": ""}), "make it executable: chmod +x {here}/train.py"),
        ("./solve.sh", Code(path=".", exclude=("*.sh",), files={"solve.sh": ""}), WRITTEN),
        ("./venv/run", Code(path=".", files={"venv/run": ""}), WRITTEN),
    ],
)  # fmt: skip
def test_a_program_that_is_not_marked_as_executable_is_refused(
    local: Client, program: str, along: Code, hint: str
) -> None:
    here = Path.cwd()
    (here / "solver").write_text("")
    (here / "lib" / "run.sh").chmod(0o644)
    (here / "venv").mkdir()
    for name in ("solve.sh", "venv/run"):
        (here / name).touch(0o755)
    with pytest.raises(InvalidJob) as caught:
        local.plan(MPIJob(name="j", workers=2, command=(program.format(here=here),), code=along))
    (finding,) = caught.value.findings
    assert (finding.code, finding.field) == ("NOT_EXECUTABLE", "command[0]")
    assert hint.format(here=here) in finding.hint


def test_a_text_that_takes_the_place_of_an_executable_file_is_executable(
    local: Client, tmp_path: Path
) -> None:
    along = Code(path=".", files={"lib/run.sh": "#!/bin/sh\necho other\n"})
    made = local.plan(MPIJob(name="j", workers=2, command=("./lib/run.sh",), code=along))
    code_upload.copy_into(made.job.code, tmp_path / "laid")
    assert subprocess.run([tmp_path / "laid/lib/run.sh"], capture_output=True).stdout == b"other\n"


def test_a_script_that_is_left_out_of_what_goes_along_is_refused(local: Client) -> None:
    along = Code(path=".", exclude=("train.py",))
    with pytest.raises(InvalidJob, match=r"there is no file 'train.py' in the uploaded code"):
        local.plan(MPIJob(name="j", workers=2, command=("python", "train.py"), code=along))


def test_a_rankfile_without_open_mpi_says_what_needs_it(
    local: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(mpi_installations, "_PLACES", ())  # where the system may have one
    with pytest.raises(Unsupported, match=r"launch\.rankfile needs Open MPI") as caught:
        local.plan(MPIJob(name="j", workers=2, command=("/bin/true",), launch=Launch(rankfile="r")))
    assert caught.value.hint == "run: mpijob mpi install openmpi"
