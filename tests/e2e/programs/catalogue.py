"""The programs: how each is started, and which of the numbers that it prints must be those of plain mpirun."""

from __future__ import annotations

from dataclasses import dataclass, field

OPENMPI, MPICH = "openmpi", "mpich"

LJ = """units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 4 0 4 0 4
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
fix 1 all nve
run 20
"""
SILICON = """&control
  calculation='scf', pseudo_dir='.', outdir='./tmp', verbosity='low'
/
&system
  ibrav=2, celldm(1)=10.2, nat=2, ntyp=1, ecutwfc=8
/
&electrons
/
ATOMIC_SPECIES
 Si 28.086 missing.UPF
ATOMIC_POSITIONS
 Si 0.00 0.00 0.00
 Si 0.25 0.25 0.25
K_POINTS automatic
 1 1 1 0 0 0
"""
C_SOURCE = """#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
  int rank, size, sum;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int mine = rank + 1;
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  printf("rank %d of %d sum %d\\n", rank, size, sum);
  MPI_Finalize();
  return 0;
}
"""
FORTRAN_SOURCE = """program hello
  use mpi
  integer :: rank, size, error
  call mpi_init(error)
  call mpi_comm_rank(mpi_comm_world, rank, error)
  call mpi_comm_size(mpi_comm_world, size, error)
  print '(a,i0,a,i0)', 'rank ', rank, ' of ', size
  call mpi_finalize(error)
end program
"""
F08_SOURCE = FORTRAN_SOURCE.replace("use mpi", "use mpi_f08").replace("program hello", "program hello08")
WINDOW_SOURCE = """#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
  int rank, size, *memory, got;
  MPI_Win window;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
  *memory = 10 + rank;
  MPI_Win_fence(0, window);
  MPI_Get(&got, 1, MPI_INT, (rank + 1) % size, 0, 1, MPI_INT, window);
  MPI_Win_fence(0, window);
  printf("rank %d of %d got %d\\n", rank, size, got);
  MPI_Win_free(&window);
  MPI_Finalize();
  return 0;
}
"""
SEVEN_SOURCE = C_SOURCE.replace("  return 0;", "  return 7;")
PYTHON = """from mpi4py import MPI
world = MPI.COMM_WORLD
print(f"rank {world.rank} of {world.size} sum {world.allreduce(world.rank + 1)}")
"""
R = """suppressMessages(library(Rmpi))
cat(sprintf("rank %d of %d\\n", mpi.comm.rank(0), mpi.comm.size(0)))
invisible(mpi.quit(save = "no"))
"""
RUBY = """require "mpi"
MPI.Init()
world = MPI::Comm::WORLD
puts "rank #{world.rank} of #{world.size}"
MPI.Finalize()
"""
WRAPPER = "#!/bin/bash\n# it's a wrapper\nexport A=1\nif true; then\n  ./c-openmpi\nfi\n"
HIDING = "import subprocess, sys\nsys.exit(subprocess.run(['./c-openmpi']).returncode)\n"
WORLD = r"rank \d+ of \d+(?: sum \d+| got \d+)?"
SOURCES = {
    "c.c": C_SOURCE, "f.f90": FORTRAN_SOURCE, "f08.f90": F08_SOURCE, "window.c": WINDOW_SOURCE, "seven.c": SEVEN_SOURCE,
    "world.py": PYTHON, "world.R": R, "world.rb": RUBY, "run.sh": WRAPPER, "hiding.py": HIDING, "in.lj": LJ,
    "si.in": SILICON,
}  # fmt: skip
BUILT = {
    "c-openmpi": "mpicc.openmpi c.c", "c-mpich": "mpicc.mpich c.c", "f-openmpi": "mpifort.openmpi f.f90",
    "f-mpich": "mpifort.mpich f.f90", "f08-openmpi": "mpifort.openmpi f08.f90", "f08-mpich": "mpifort.mpich f08.f90",
    "window-openmpi": "mpicc.openmpi window.c", "window-mpich": "mpicc.mpich window.c",
    "seven-openmpi": "mpicc.openmpi seven.c", "seven-mpich": "mpicc.mpich seven.c",
}  # fmt: skip


@dataclass(frozen=True)
class Program:
    """One program; `numbers` finds in its output what must be equal, in any order."""

    name: str
    family: str
    command: str
    numbers: str = WORLD
    package: str = ""
    layouts: tuple[tuple[int, int], ...] = field(default=((2, 1), (1, 2)))


PROGRAMS = (
    Program("LAMMPS", OPENMPI, "lmp -in in.lj", r"^\s+20\s+\S+\s+\S+|on \d+ procs", "lammps"),
    Program("Quantum ESPRESSO", OPENMPI, "pw.x -in si.in", r"running on\s+\d+ proc", "quantum-espresso"),
    Program("the system's mpi4py", OPENMPI, "/usr/bin/python3 world.py", package="python3-mpi4py"),
    Program("Rmpi", OPENMPI, "Rscript world.R", package="r-cran-rmpi"),
    Program("ruby-mpi", OPENMPI, "ruby world.rb", package="ruby-mpi"),
    *(Program(f"C, {mpi}", mpi, f"./c-{mpi}") for mpi in (OPENMPI, MPICH)),
    *(Program(f"Fortran, {mpi}", mpi, f"./f-{mpi}") for mpi in (OPENMPI, MPICH)),
    *(Program(f"Fortran 2008, {mpi}", mpi, f"./f08-{mpi}") for mpi in (OPENMPI, MPICH)),
    *(Program(f"exit status 7, {mpi}", mpi, f"./seven-{mpi}") for mpi in (OPENMPI, MPICH)),
    Program("one-sided, openmpi", OPENMPI, "./window-openmpi", layouts=((1, 2),)),
    Program("one-sided, mpich", MPICH, "./window-mpich", layouts=((1, 2),)),
    *(
        Program(f"behind {wrapper.split()[0]}", OPENMPI, f"{wrapper} ./c-openmpi")
        for wrapper in (
            "env A=1",
            "taskset -c 0",
            "timeout 50",
            "nice -n 1",
            "stdbuf -oL",
            "setsid",
            "numactl --localalloc",
        )
    ),
    Program("a script", OPENMPI, "./run.sh"),
    Program("a script of bash", OPENMPI, "bash run.sh"),
)
HIDDEN = (  # what nothing can read from the command: never many worlds of one
    "python3 hiding.py",
    "bash -c 'x=./c-openmpi; $x'",
    "env -i ./c-openmpi",
    "env -i PATH=/usr/bin:/bin ./c-mpich",
    "python3 -c \"import os; os.execv('./c-openmpi', ['x'])\"",
    "perl -e 'exec \"./c-openmpi\"'",
)
