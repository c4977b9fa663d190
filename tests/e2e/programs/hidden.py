"""Ways in which a program of another MPI, or one cut off from its launcher, would run as many worlds of one.

Each hides from the plan what it does. A job of it has the planned world, or fails; it never succeeds otherwise.
"""

from __future__ import annotations

from .installations import BROUGHT, PREFIX

_STATIC = "/usr/lib/x86_64-linux-gnu/libmpich.a -lucp -luct -lucs -lucm -lhwloc -lpthread -lm -lrt"
_MPICH = "-I/usr/include/x86_64-linux-gnu/mpich"
COMPILED = {  # name → how it is compiled from `sources`
    "static-mpich4": f"gcc {{sources}}/collectives.c {_MPICH} {_STATIC}",
    "opens": "gcc {sources}/opens.c -ldl",
    "libworld-openmpi4.so": "mpicc.openmpi -shared -fPIC {sources}/collectives.c",
}
_O4, _M4 = "./collectives-openmpi4", "./collectives-mpich4"
_O5, _M5 = "./collectives-openmpi5", "./collectives-mpich5"
FILES = ("hiding.py", "collectives-openmpi4", "collectives-mpich4", "collectives-openmpi5", "collectives-mpich5",
         "static-mpich4", "opens", "libworld-openmpi4.so", "run.mk", "launch", "hydra_pmi_proxy")  # fmt: skip
_HIDING = "python3 hiding.py"
_MPIRUN5 = f"{BROUGHT}/openmpi/bin/mpirun --allow-run-as-root"

OTHER_MPI = {  # how a program of one MPI comes to be started by another
    "a child of Python": f"{_HIDING} child {_O4}",
    "a variable of the shell": f"bash -c 'x={_O4}; $x'",
    "exec in Python": f"python3 -c \"import os; os.execv('{_O4}', ['x'])\"",
    "exec in Perl": f"perl -e 'exec \"{_O4}\"'",
    "decoded text": "bash -c 'eval \"$(echo Li9jb2xsZWN0aXZlcy1vcGVubXBpNA== | base64 -d)\"'",
    "xargs": f"sh -c 'printf %s {_O4} | xargs -I@ sh -c @'",
    "find -exec": "find . -maxdepth 1 -name collectives-openmpi4 -exec {} ;",
    "awk's system": f"awk 'BEGIN {{ exit system(\"{_O4}\") }}'",
    "make": "make -s -f run.mk PROGRAM=collectives-openmpi4",
    "dlopen": "./opens ./libworld-openmpi4.so",
    "ctypes": f"{_HIDING} loaded libmpi.so.40",
    "the loader itself": f"/lib64/ld-linux-x86-64.so.2 {_O4}",
    "a child in its own session": f"{_HIDING} child setsid -w {_O4}",
    "MPICH 5 under Open MPI": f"--mpi=openmpi {_HIDING} child {_M5}",
    "MPICH 4 under Open MPI": f"--mpi=openmpi {_HIDING} child {_M4}",
    "static MPICH under Open MPI": f"--mpi=openmpi {_HIDING} child ./static-mpich4",
    "Open MPI 4 under Open MPI 5": f"--mpi=openmpi {_HIDING} child {_O4}",
    "Open MPI 5 under MPICH": f"--mpi=mpich {_HIDING} child {_O5}",
    "Open MPI 4 under Intel MPI": f"--mpi=intel {_HIDING} child {_O4}",
}
CUT_OFF = {  # how a program loses what its launcher gave it
    "env -i, Open MPI 4": f"env -i {_O4}",
    "env -i, Open MPI 5": f"env -i {_O5}",
    "env -i, MPICH 4": f"env -i PATH=/usr/bin:/bin {_M4}",
    "env -i, MPICH 5": f"env -i {_M5}",
    "an empty environment": f"{_HIDING} 'empty environment' {_M5}",
    "a login shell": f"sh -c 'su - root -c $PWD/{_M4[2:]}'",
    "without PMI_FD": f"{_HIDING} without PMI_FD,PMI_PORT {_M5}",
    "without PMI_*": f"{_HIDING} without PMI,HYD,MPI_ {_M4}",
    "without PMIX_SERVER_*": f"--mpi=openmpi {_HIDING} without PMIX_SERVER {_O5}",
    "without PMIX_*, Open MPI 5": f"--mpi=openmpi {_HIDING} without PMIX {_O5}",
    "without PMIX_*, Open MPI 4": f"bash -c 'unset ${{!PMIX_*}}; {_O4}'",
    "without all but OMPI_COMM_*": f"bash -c 'unset ${{!PMIX_*}} ${{!OMPI_MCA_*}}; {_O4}'",
    "closed descriptors": f"{_HIDING} 'closed descriptors' {_M5}",
    "a static program": f"{_HIDING} 'empty environment' ./static-mpich4",
    "an orphan": f"{_HIDING} orphan {_M5}",
    "after a while": f"{_HIDING} later {_M5}",
    "a static program after a while": f"{_HIDING} later ./static-mpich4",
    "after a while, Open MPI": f"--mpi=openmpi {_HIDING} later {_O5}",
}
NESTED = {  # how each rank comes to have a launcher of its own
    "mpiexec by a variable": f"bash -c 'x={PREFIX}/bin/mpiexec; $x -n 1 {_M5}'",
    "mpiexec below Python": f"{_HIDING} child {PREFIX}/bin/mpiexec -n 1 {_M5}",
    "mpiexec under another name": f"{_HIDING} child ./launch -n 1 {_M5}",
    "hydra's fork launcher": f"{_HIDING} child {PREFIX}/bin/mpiexec.gforker -n 1 {_M5}",
    "Open MPI's in MPICH's": f"{_HIDING} child mpirun.openmpi --allow-run-as-root -n 1 {_O4}",
    "Open MPI's in Open MPI's": f"--mpi=openmpi {_HIDING} child {_MPIRUN5} -n 1 {_O5}",
    "Intel's in Intel's": f"--mpi=intel {_HIDING} child {BROUGHT}/intel/bin/mpiexec.hydra -n 1 {_M5}",
    "MPICH's, cut off first": f"{_HIDING} 'empty environment' {PREFIX}/bin/mpiexec -n 1 {_M5}",
    "another MPICH's": f"{_HIDING} child mpiexec.mpich -n 1 {_M4}",
}
WAYS = OTHER_MPI | CUT_OFF | NESTED
