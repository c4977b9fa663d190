"""Programs of the distribution in our workers against plain mpirun: the speed that each of them tells of itself."""

from __future__ import annotations

import itertools
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench import bare
from bench.line import Bound, Line, Unmeasured, at_least
from bench.places import Options, Place, place, small_job
from bench.timing import median, output
from mpijob import MPIJob, Resources
from mpijob.model import Code

_MELT = """units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 20 0 20 0 20
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
fix 1 all nve
run 100
"""
_HPL = """HPL by HPCC
one problem
HPL.out      output file
6            device
1            problems
2500         N
1            block sizes
96           NB
0            row-major mapping
1            process grids
{rows}            P
2            Q
16.0         threshold
1            panel factorisations
2            right
1            recursive stops
4            NBMIN
1            panels in recursion
2            NDIV
1            recursive factorisations
1            Crout
1            broadcasts
1            1rM
1            lookahead depths
1            DEPTH
2            mixed swapping
64           swapping threshold
0            L1 transposed
0            U transposed
1            equilibration
8            alignment
"""
_number = itertools.count()


class Program(NamedTuple):
    """One program: its command, its input, the figure that it prints, and how good it must be."""

    name: str
    ranks: int
    executable: str
    command: tuple[str, ...]
    figure: str
    unit: str
    goal: Bound
    files: dict[str, str] = {}
    more_is_better: bool = True


def _netpipe(name: str, program: str) -> Program:
    command = (program, "-l", "65536", "-u", "2097152")
    return Program(name, 2, program, command, r"--> +([\d.]+) Mbps", "Mbps", at_least(0.97))


def _lammps(ranks: int) -> Program:
    command, figure = ("lmp", "-in", "in.melt"), r"Loop time of (\S+) on"
    return Program(
        "LAMMPS", ranks, "lmp", command, figure, "s", at_least(0.98), {"in.melt": _MELT}, more_is_better=False
    )


def _hpl(ranks: int) -> Program:
    command = ("sh", "-c", "hpcc && cat hpccoutf.txt")
    files = {"hpccinf.txt": _HPL.format(rows=ranks // 2)}
    return Program(
        "HPL", ranks, "hpcc", command, r"HPL_time=(\S+)", "s", at_least(0.98), files, more_is_better=False
    )


PROGRAMS = (
    _lammps(2),
    _lammps(4),
    _hpl(2),
    _hpl(4),
    _netpipe("NetPIPE with Open MPI", "NPopenmpi"),
    _netpipe("NetPIPE with MPICH", "NPmpich2"),
)


def measure(options: Options) -> Iterator[Line]:
    """Yield a line for each program."""
    with place() as there:
        for program in PROGRAMS:
            title = f"{program.name}, {program.ranks} ranks"
            if shutil.which(program.executable):
                yield _line(there, program, title, options.rounds(7))
            else:
                yield Line(
                    title, missing=f"{program.executable} is not installed (make test-programs does it)"
                )


def _line(there: Place, program: Program, title: str, rounds: int) -> Line:
    ours, plain = [], []
    for _ in range(rounds):
        ours.append(_ours(there, program))
        plain.append(_plain(there, program))
    mine, theirs = median(ours), median(plain)
    ratio = mine / theirs if program.more_is_better else theirs / mine
    return Line(
        title,
        program.unit,
        mine,
        theirs,
        ratio,
        program.goal,
        note=f"{rounds} runs, ours {min(ours):g} to {max(ours):g}",
    )


def _job(program: Program) -> MPIJob:
    room = Resources(cpu="1", memory="1Gi")
    fields = {"resources": room, "code": Code(files=program.files)}
    return small_job(f"program-{next(_number)}", program.ranks, *program.command, **fields)


def _ours(there: Place, program: Program) -> float:
    handle = there.client.run(_job(program), timeout=300)
    return _figure(program, "".join(line.text.decode(errors="replace") + "\n" for line in handle.logs()))


def _plain(there: Place, program: Program) -> float:
    with tempfile.TemporaryDirectory() as directory:
        for name, text in program.files.items():
            Path(directory, name).write_text(text)
        line = bare.plain(there, _job(program))
        return _figure(
            program, output(["sh", "-c", 'exec "$@" 2>&1', "sh", *line.argv], line.environ, directory)
        )


def _figure(program: Program, text: str) -> float:
    found = [float(one) for one in re.findall(program.figure, text)]
    if not found:
        raise Unmeasured(f"{program.name} said {text[-200:]!r}")
    return max(found)
