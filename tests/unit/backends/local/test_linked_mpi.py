"""Which MPI a program uses is read from what the loader would load, behind wrappers, scripts and interpreters."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from mpijob.backends.local.storage.paths import Home
from mpijob.backends.mpi import linked_mpi, mpi_selection
from mpijob.backends.mpi.linked_mpi import LinkedMPI
from mpijob.errors import InvalidJob, Unsupported
from mpijob.model import Family, MPIJob
from mpijob.settings import Settings

MODULES = Path(sys.prefix) / f"lib/python3.{sys.version_info.minor}/site-packages/mpi4py"
HYDRA = (Family.MPICH, Family.INTEL)


def module(family: str) -> Path:
    """Return a real ELF file that is linked to the family's library: mpi4py's wheel has one for each."""
    return next(MODULES.glob(f"MPI.{family}.*.so"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a program of Open MPI."""
    shutil.copy(module("openmpi"), tmp_path / "solve")
    (tmp_path / "solve").chmod(0o755)
    return tmp_path


def found(place: Path, *argv: str, path: str = "/usr/bin:/bin") -> LinkedMPI | None:
    return linked_mpi.find_in_commands(iter([argv]), place, {"PATH": path})


def test_the_loader_tells_the_library_of_each_family() -> None:
    lib = str(Path(sys.prefix) / "lib")
    mpich = linked_mpi.inspect_file(str(module("mpich")), lib)
    assert mpich is not None
    assert (mpich.families, mpich.library) == (HYDRA, f"{lib}/libmpi.so.12")
    openmpi = linked_mpi.inspect_file(str(module("openmpi")))
    assert openmpi is not None
    assert openmpi.families == (Family.OPENMPI,)


def test_what_is_no_mpi_program_has_no_library(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("libmpi.so.40\0")
    assert linked_mpi.inspect_file("/bin/ls") is None
    assert linked_mpi.inspect_file(str(tmp_path / "text")) is None
    assert linked_mpi.inspect_file(str(tmp_path / "missing")) is None


WRAPPERS = (
    "./solve", "env A=1 ./solve", "env -u B -i ./solve", "timeout -k 5 60 ./solve", "time -p ./solve",
    "nice -n 5 ./solve", "taskset -c 0-3 ./solve", "numactl -C 0 -m 0 ./solve", "stdbuf -oL ./solve", "setsid ./solve",
    "nohup ./solve", "chrt -f 1 ./solve", "strace -o t -f ./solve", "mpirun -n 4 --hostfile h ./solve",
    "env A=1 timeout 5 taskset 3 ./solve",
)  # fmt: skip


@pytest.mark.parametrize("line", WRAPPERS)
def test_a_program_is_found_behind_wrappers(place: Path, line: str) -> None:
    seen = found(place, *line.split())
    assert seen is not None
    assert seen.families == (Family.OPENMPI,)
    assert seen.program == str(place / "solve")


SCRIPTS = (
    "./solve\n",
    "set -e\nexport A=1 B='two words'\n# don't stop here\n./solve in > out 2>&1\n",
    "cd . && ./solve | tee log\n",
    "for i in 1 2; do\n  timeout 9 ./solve $i # it's long\ndone\n",
    "if true; then ./solve; fi\n",
    "echo begin; A=1 ./solve \\\n  --big\n",
)


@pytest.mark.thorough
@pytest.mark.parametrize("text", SCRIPTS)
@pytest.mark.parametrize("way", ["text", "file", "executable"])
def test_a_program_is_found_in_shell_text(place: Path, text: str, way: str) -> None:
    script = place / "run.sh"
    script.write_text("#!/bin/bash\n" + text)
    script.chmod(0o755)
    argv = {"text": ("bash", "-c", text), "file": ("bash", "run.sh"), "executable": ("./run.sh",)}[way]
    seen = found(place, *argv)
    assert seen is not None
    assert seen.families == (Family.OPENMPI,)


@pytest.mark.parametrize(
    "argv", [('exec "$0"', "./solve"), ('nice "$@"', "me", "env", "A=1", "./solve", "--big")]
)
def test_a_program_is_found_among_the_arguments_of_a_shell(place: Path, argv: tuple[str, ...]) -> None:
    seen = found(place, "bash", "-c", *argv)
    assert seen is not None
    assert seen.families == (Family.OPENMPI,)


def test_arguments_that_a_shell_text_does_not_use_are_no_programs(place: Path) -> None:
    assert found(place, "bash", "-c", "true", "./solve") is None


def a_python(place: Path, *modules: str) -> Path:
    """Make the tree of an interpreter whose mpi4py has these modules."""
    python = place / "python/bin/python3"
    python.parent.mkdir(parents=True)
    shutil.copy("/bin/true", python)
    for family in modules:
        target = place / "python/lib/python3/dist-packages/mpi4py" / f"MPI.{family}.so"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(module(family), target)
    return python


def test_an_interpreter_uses_the_mpi_of_its_module(tmp_path: Path) -> None:
    python = a_python(tmp_path, "openmpi")
    (tmp_path / "train").write_text(f"#!{python}\nimport mpi4py.MPI\n")
    (tmp_path / "train").chmod(0o755)
    for argv in ((str(python), "train.py"), ("env", "A=1", str(python), "-m", "x"), ("./train",)):
        seen = found(tmp_path, *argv)
        assert seen is not None
        assert seen.families == (Family.OPENMPI,)


def test_a_module_for_every_family_asks_for_none(tmp_path: Path) -> None:
    assert found(tmp_path, str(a_python(tmp_path, "openmpi", "mpich")), "train.py") is None
    assert found(tmp_path, sys.executable, "train.py") is None  # the wheel's own


# -- which installation -------------------------------------------------------------------------------
def an_installation(place: Path, version: str) -> None:
    launcher = place / "bin/mpirun"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(f"#!/bin/sh\necho 'mpirun (Open MPI) {version}'\n")
    launcher.chmod(0o755)
    (place / "lib").mkdir()
    (place / "lib/libmpi.so.40").write_text(version)


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A machine with an Open MPI 5 in the settings and a 4 elsewhere."""
    an_installation(tmp_path / "ompi5", "5.0.9")
    an_installation(tmp_path / "ompi4", "4.1.6")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return Settings(home=str(tmp_path / "home"), mpi_directories={"openmpi": str(tmp_path / "ompi5")})


def chosen(
    settings: Settings, place: Path, linked: LinkedMPI | None, mpi: Family = Family.AUTO
) -> mpi_selection.Choice:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linked_mpi, "find_in_commands", lambda *_: linked)
        job = MPIJob(name="job", workers=2, command=("solve",), mpi=mpi)
        return mpi_selection.choose(job, settings, Home(settings.home), place)


def test_a_program_gets_the_installation_whose_library_it_loads(two: Settings, tmp_path: Path) -> None:
    linked = LinkedMPI("solve", (Family.OPENMPI,), str(tmp_path / "ompi4/lib/libmpi.so.40"), "4")
    for mpi in (Family.AUTO, Family.OPENMPI):
        got = chosen(two, tmp_path, linked, mpi=mpi)
        assert (got.installation.version, got.installation.prefix) == ("4.1.6", str(tmp_path / "ompi4"))
    other = LinkedMPI("solve", (Family.OPENMPI,), str(tmp_path / "elsewhere/libmpi.so.40"), "5")
    assert chosen(two, tmp_path, other).installation.version == "5.0.9"


def test_a_program_whose_launcher_is_not_here_is_refused(two: Settings, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "ompi4")
    linked = LinkedMPI("solve", (Family.OPENMPI,), str(tmp_path / "gone/libmpi.so.40"), "3")
    with pytest.raises(Unsupported, match="Open MPI 3"):
        chosen(two, tmp_path, linked)


def test_another_family_than_the_program_s_is_refused(two: Settings, tmp_path: Path) -> None:
    with pytest.raises(InvalidJob) as refused:
        chosen(
            two, tmp_path, LinkedMPI("solve", (Family.OPENMPI,), "/usr/lib/libmpi.so.40"), mpi=Family.MPICH
        )
    assert [finding.code for finding in refused.value.findings] == ["MPI_MISMATCH"]
    with pytest.raises(InvalidJob):
        chosen(two, tmp_path, LinkedMPI("solve", HYDRA), mpi=Family.OPENMPI)
