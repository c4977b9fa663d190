"""The programs: how each is started, and which of the numbers that it prints must be those of plain mpirun."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .installations import BROUGHT as _MPI
from .installations import EVERY, INTEL, MPICH4, MPICH5, OPENMPI4, OPENMPI5, PYPI, SYSTEM, Installation

WORLD = r"rank \d+ of \d+(?:(?!rank \d).)*"  # ranks write into each other's lines with plain mpirun
PAIRS = ((2, 1), (1, 2))
ALL = ((2, 1), (1, 2), (4, 1))
BROUGHT = Path(
    os.environ.get("MPIJOB_TEST_PROGRAMS", "/nonexistent")
).resolve()  # mpi4py's source, dask-mpi …


@dataclass(frozen=True)
class Program:
    """One program; `numbers` finds in its output what must be equal, in any order.

    `files` go along beside those that the command names; `prepare` is run by a shell among them first.
    `exception` says why it is known to differ from plain mpirun; a wrong world is never excepted.
    """

    name: str
    mpi: Installation
    command: str
    numbers: str = WORLD
    layouts: tuple[tuple[int, int], ...] = PAIRS
    files: tuple[str, ...] = ()
    prepare: str = ""
    environ: dict[str, str] = field(default_factory=dict)
    exception: str = ""


# -- the distribution's ---------------------------------------------------------------------------------
_SCALAPACK = "/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests"
_MUMPS = "/usr/lib/mumps"
_PYTHON = "/usr/bin/python3"
_THREADS = {"OMP_NUM_THREADS": "1"}
_FOAM = {"WM_PROJECT_DIR": "/usr/share/openfoam"}
_TESTS = r"\d+ tests (?:completed|skipped).*"


def _system(name: str, command: str, *words: str, **more: object) -> Program:
    return Program(name, OPENMPI4, command, *words, **more)  # type: ignore[arg-type]  # as Program's own


_DISTRIBUTION = (
    _system("LAMMPS", "lmp -in lammps.in", r"^\s+20\s+\S+\s+\S+|on \d+ procs", layouts=ALL),
    _system("Quantum ESPRESSO", "pw.x -in si.in", r"running on\s+\d+ proc"),
    _system("CP2K", "cp2k.psmp -i cp2k.inp", r"Total number of message passing processes.*|ENERGY\|.*"),
    _system(
        "GROMACS",
        "gmx_mpi mdrun -s argon.tpr -nb cpu -ntomp 1 -reprod -g /dev/stdout -dlb no",
        r"Using \d+ MPI process\w*|^\s+LJ \(SR\).*\n.{15}",
        files=("argon.mdp", "argon.gro", "argon.top"),
        environ=_THREADS,
        prepare="gmx_mpi grompp -f argon.mdp -c argon.gro -p argon.top -o argon.tpr -maxwarn 5",
    ),
    _system("NWChem", "nwchem.openmpi nwchem.nw", r"nproc\s+=\s+\d+|Total SCF energy =.*"),
    _system(
        "OpenFOAM",
        "icoFoam -parallel -case cavity",
        r"nProcs : \d+|^Time = .*|Final residual = \S+",
        files=("cavity",),
        environ=_FOAM,
        prepare="cd cavity && blockMesh && decomposePar",
    ),
    _system(
        "HPCC",
        "sh -c 'hpcc && cat hpccoutf.txt'",
        r"CommWorldProcs=\d+|HPL_N=\d+|^Success=\d",
        files=("hpccinf.txt",),
    ),
    _system("NetPIPE", "NPopenmpi -u 4 -n 3 -o np.out", r"^\s*\d+:\s+\d+ bytes"),
    Program("NetPIPE", MPICH4, "NPmpich2 -u 4 -n 3 -o np.out", r"^\s*\d+:\s+\d+ bytes"),
    _system("FreeFem++", "FreeFem++-mpi -v 0 freefem.edp", layouts=ALL),
    _system(
        "PhyML",
        "phyml-mpi -i sequences.phy -b 4 --r_seed 3",
        r"Log likelihood of the current tree: \S{12}|use \d+ CPUs",
    ),
    _system(
        "IQ-TREE",
        "iqtree2-mpi -s sequences.phy -m JC -seed 5 -nt 1",
        r"Log-likelihood of BIONJ tree.*|Best score found.*",
    ),
    _system(
        "MrBayes",
        "/usr/lib/mrbayes-mpi/mb-mpi mrbayes.nex",
        r"\d+ processors available|Exiting mrbayes block|chain number",
    ),
    _system("NEURON", "nrniv -mpi neuron.hoc", layouts=ALL),
    *(
        _system(
            f"MUMPS, {kind}",
            f"sh -c '{_MUMPS}/{kind}simpletest < {_MUMPS}/input_simpletest_{numbers}'",
            r"executing #MPI = +\d+|Solution is .{18}",
        )
        for kind, numbers in (("d", "real"), ("s", "real"), ("z", "cmplx"))
    ),
    _system(
        "ScaLAPACK, LU", f"{_SCALAPACK}/xdlu", _TESTS, layouts=((4, 1),), prepare=f"cp {_SCALAPACK}/LU.dat ."
    ),
    _system("ScaLAPACK, QR", f"{_SCALAPACK}/xdqr", _TESTS, prepare=f"cp {_SCALAPACK}/QR.dat ."),
    _system("ScaLAPACK, inverse", f"{_SCALAPACK}/xdinv", _TESTS, prepare=f"cp {_SCALAPACK}/INV.dat ."),
    _system("ScaLAPACK, Cholesky", f"{_SCALAPACK}/xdllt", _TESTS, prepare=f"cp {_SCALAPACK}/LLT.dat ."),
    _system(
        "PBLAS", f"{_SCALAPACK}/PBLAS/dpb1tst", r"^\s+\| +PD\w+ .*", prepare=f"cp {_SCALAPACK}/PBLAS/*.dat ."
    ),
    _system("GPAW", "gpaw python gpaw_h.py", environ=_THREADS),
    _system("Meep", f"{_PYTHON} meep_flux.py", r"rank .*|\d+ processes"),
    _system("MPB", "mpb-mpi mpb.ctl", r"Gap from band \d \(0\.\d{5}"),
    _system("FORM", "parform form.frm", r"bits \d+ workers?\b|Terms in output =.*|b\^2\*c \+.*"),
    _system("HyPhy", "HYPHYMPI hyphy.bf", r"rank \d+ of \d+"),
    _system("PT-SCOTCH, ordering", "dgord grid.grf ord.out -vt", r"^T\t\w+"),
    _system("PT-SCOTCH, partition", "dgpart 2 grid.grf", r"^\d+\t\d+"),
    _system("PT-SCOTCH, statistics", "dgtst grid.grf", r"^S\s.*"),
    _system("Rmpi", "Rscript world.R", layouts=ALL),
    _system("ruby-mpi", "ruby world.rb", layouts=ALL),
    _system("the system's mpi4py", f"{_PYTHON} world.py", layouts=ALL),
    _system("the system's mpi4py.bench", f"{_PYTHON} -m mpi4py.bench ringtest", r"\d+ processes"),
    _system("parallel h5py", f"{_PYTHON} h5py_shared.py"),
    _system("petsc4py", f"{_PYTHON} petsc4py_solve.py", layouts=ALL),
    _system("slepc4py", f"{_PYTHON} slepc4py_eigen.py"),
    Program("cpi", MPICH4, "./cpi-mpich4", r"Process \d+ of \d+|pi is approximately \S+", ALL),
    *(
        Program(
            f"mpi4py's helloworld, {language}",
            mpi,
            f"./helloworld{suffix}-{mpi.short}",
            r"process +\d+ +of +\d+",
        )
        for suffix, language in ((".c", "C"), (".cxx", "C++"), (".f90", "Fortran"), (".f08", "Fortran 2008"))
        for mpi in SYSTEM
    ),
)

# -- PyPI's ----------------------------------------------------------------------------------------------
_VENV = f"{BROUGHT}/venv/bin/python"
_HOROVOD = f"{BROUGHT.parent}/horovod/bin/python"
_DEMO = f"{BROUGHT}/mpi4py/demo"
_QUICK = "test_(cco_buf|p2p_buf|rma|comm|win|cart|graph|group)"
_UNITTEST = r"Ran \d+ tests|skipped=\d+|^FAILED.*"
_BENCH = r"\d+ processes|Hello.* process \d+ of \d+"


def _of_mpi4py(mpi: Installation) -> Iterator[Program]:
    yield Program("mpi4py", mpi, "{python} world.py", layouts=ALL)
    yield Program("mpi4py.bench helloworld", mpi, "{python} -m mpi4py.bench helloworld", _BENCH)
    yield Program("mpi4py.bench ringtest", mpi, "{python} -m mpi4py.bench ringtest -n 2", _BENCH)
    yield Program("mpi4py.futures", mpi, "{python} -m mpi4py.futures pool.py", r"squares \d+")
    yield Program(
        "mpi4py's demo, pi",
        mpi,
        f"sh -c 'echo 20 | {{python}} {_DEMO}/compute-pi/cpi-rma.py'",
        r"pi is .{18}",
    )
    yield Program(
        "mpi4py's demo, reductions", mpi, f"{{python}} {_DEMO}/reductions/test_reductions.py -q", _UNITTEST
    )
    yield Program(
        "mpi4py's demo, sequential",
        mpi,
        f"{{python}} {_DEMO}/sequential/test_seq.py",
        r"I am process \d+ of \d+",
    )


_PYPI = (
    *(program for mpi in PYPI for program in _of_mpi4py(mpi)),
    *(
        Program(
            f"Intel's {name}",
            INTEL,
            f"{_MPI}/intel/bin/{name} -npmin 2 -iter 2 -msglog 3 {what}",
            r"# (?:List of )?#?processes = \d+|# Benchmarking \S+|#processes = \d+",
        )
        for name, what in (
            ("IMB-MPI1", "PingPong Allreduce"),
            ("IMB-RMA", "Unidir_get"),
            ("IMB-NBC", "Ibcast"),
        )
    ),
    Program(
        "mpi4jax",
        MPICH5,
        f"{_VENV} mpi4jax_sum.py",
        r"rank \d+ of \d+ sum \S+ gradient \S+",
        ALL,
        environ=_THREADS | {"JAX_PLATFORMS": "cpu"},
    ),
    Program(
        "Horovod, PyTorch",
        MPICH5,
        f"{_HOROVOD} horovod_step.py",
        r"rank \d+ of \d+ loss \S+ weights \S+",
        ALL,
        environ=_THREADS,
    ),
    Program("dask-mpi", MPICH5, f"{_VENV} dask_sum.py", r"dask sum \d+", ((3, 1),)),
    Program(
        "mpi-pytest", MPICH5, f"{_VENV} -m pytest -q -p no:cacheprovider parallel_case.py", r"\d+ passed"
    ),
    *(
        Program(
            "mpi4py's own tests",
            mpi,
            f"{{python}} {BROUGHT}/mpi4py/test/main.py -q -i '{_QUICK}'",
            _UNITTEST,
            ((2, 1),),
        )
        for mpi in PYPI
    ),
)

# -- our own sources, one for each area of MPI --------------------------------------------------------------
AREAS = ("point_to_point.c", "collectives.c", "one_sided.c", "spawn.c", "threads.c", "file.c", "intercommunicators.c",
         "classes.cpp", "legacy.f90", "fixed.f", "modern.f90")  # fmt: skip
LIBRARIES = {  # source → how it is compiled, with the system's Open MPI
    "fftw.c": "mpicc.openmpi {} -lfftw3_mpi -lfftw3 -lm",
    "hdf5.c": "h5pcc.openmpi {}",
    "boost.cpp": "mpicxx.openmpi {} -lboost_mpi -lboost_serialization",
}
_NO_SPAWN = (MPICH4, INTEL)  # plain mpiexec of both ends MPI_Comm_spawn by SIGSEGV or an error here


def binary(source: str, mpi: Installation) -> str:
    return f"{source.partition('.')[0]}-{mpi.short}"


def _areas() -> Iterator[Program]:
    for mpi in EVERY:
        for source in AREAS:
            runs_plain = source != "spawn.c" or mpi not in _NO_SPAWN
            if Path(source).suffix in mpi.compilers and runs_plain:
                yield Program(source, mpi, f"./{binary(source, mpi)}", layouts=ALL)
        yield Program("exit status 7", mpi, f"./{binary('status.c', mpi)} 7")
    for source in LIBRARIES:
        yield Program(source, OPENMPI4, f"./{binary(source, OPENMPI4)}", layouts=ALL)
    yield Program("statically linked", MPICH4, "./static-mpich4", layouts=ALL)


# -- behind wrappers -----------------------------------------------------------------------------------------
WRAPPERS = ("env A=1", "taskset -c 0,1", "timeout 50", "nice -n 1", "stdbuf -oL", "setsid -w", "numactl --localalloc",
            "ionice -c 3", "chrt -o 0", "time -p", "prlimit --core=0", "strace -f -o /dev/null",
            "env A=1 nice timeout 50", "sh -c 'exec \"$0\"'")  # fmt: skip


def _wrapped() -> Iterator[Program]:
    for mpi in (OPENMPI4, MPICH4, OPENMPI5):
        program = f"./{binary('collectives.c', mpi)}"
        for wrapper in WRAPPERS:
            yield Program(f"behind {wrapper.split()[0]}", mpi, f"{wrapper} {program}", layouts=((2, 1),))
        yield Program("a script", mpi, f"./run-{mpi.short}.sh", files=(program,), layouts=((2, 1),))
        yield Program(
            "a script of bash", mpi, f"bash run-{mpi.short}.sh", files=(program,), layouts=((2, 1),)
        )
        yield Program(
            "a symbolic link",
            mpi,
            "./link",
            files=(program,),
            layouts=((2, 1),),
            prepare=f"ln -s {program} link",
        )


PROGRAMS = (*_DISTRIBUTION, *_PYPI, *_areas(), *_wrapped())
