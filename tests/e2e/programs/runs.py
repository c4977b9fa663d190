"""A program's directory, and one run in it: by plain mpirun, and by mpijob."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from .catalogue import AREAS, BROUGHT, LIBRARIES, Program, binary
from .hidden import COMPILED
from .installations import BROUGHT as BROUGHT_MPI
from .installations import EVERY, MPICH4, OPENMPI4, PREFIX, SYSTEM

HERE = Path(__file__).parent
OURS = re.compile(r"^(?:submitting|try|error:|notice:| +(?:seen|fix):).*$", re.M)  # what mpijob says itself
SECONDS = 240
SETTINGS = f'[mpi_directories]\nopenmpi = "{BROUGHT_MPI}/openmpi"\nintel = "{BROUGHT_MPI}/intel"\n'


@dataclass(frozen=True)
class Run:
    """How one run ended, and what was said."""

    status: int
    output: str
    errors: str
    seconds: float

    def numbers(self, pattern: str) -> list[str]:
        found = re.findall(pattern, self.output + "\n" + OURS.sub("", self.errors), re.M)
        return sorted(" ".join(one.split()) for one in found)


def build(place: Path) -> None:
    """Fill a directory with all inputs and with all sources, compiled for each installation."""
    for group in (HERE / "inputs").iterdir():
        shutil.copytree(group, place, dirs_exist_ok=True)
    sources = HERE / "sources"
    for mpi in EVERY:
        for source in (*AREAS, "status.c"):
            if compiler := mpi.compilers.get(Path(source).suffix):
                compile_source(f"{compiler} {sources / source} -lpthread", place / binary(source, mpi))
        _script(
            place / f"run-{mpi.short}.sh",
            f"export A=1\nif true; then\n  ./{binary('collectives.c', mpi)}\nfi\n",
        )
    for source, line in LIBRARIES.items():
        compile_source(line.format(sources / source), place / binary(source, OPENMPI4))
    demo = BROUGHT / "mpi4py/demo"
    for mpi in SYSTEM:
        for suffix, like in ((".c", ".c"), (".cxx", ".cpp"), (".f90", ".f90"), (".f08", ".f90")):
            compile_source(
                f"{mpi.compilers[like]} {demo}/helloworld{suffix}", place / f"helloworld{suffix}-{mpi.short}"
            )
    compile_source(f"{MPICH4.compilers['.c']} /usr/share/doc/mpich/examples/cpi.c -lm", place / "cpi-mpich4")
    shutil.copy2(PREFIX / "bin/mpiexec", place / "launch")
    shutil.copy2(PREFIX / "bin/hydra_pmi_proxy", place)
    for name, line in COMPILED.items():
        compile_source(line.format(sources=sources), place / name)


def compile_source(line: str, output: Path) -> None:
    """Run a compiler's line; what it prints is the error where it fails."""
    argv = [*shlex.split(line), "-o", str(output)]
    done = subprocess.run(argv, cwd=output.parent, capture_output=True, text=True)
    assert done.returncode == 0, f"{line}: {done.stderr}"


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/bash\n# it's a wrapper\n{text}")
    path.chmod(0o755)


def directory(program: Program, built: Path, place: Path) -> Path:
    """Return a new directory with what a program needs."""
    place.mkdir(parents=True)
    words = re.split(r"[\s'\"]+", program.command)
    named = [word for word in words if re.match(r"(\./)?\w", word) and (built / word).exists()]
    for name in {os.path.normpath(one) for one in (*named, *program.files)}:
        source = built / name
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, place / name)
    if program.prepare:
        subprocess.run(
            program.prepare, shell=True, cwd=place, check=True, capture_output=True, env=_environ(program)
        )
    return place


def plain(program: Program, place: Path, ranks: int) -> Run:
    """Run a program by the mpirun of its installation."""
    argv = [*program.mpi.launcher, "-n", str(ranks), *_words(program)]
    return _run(argv, place, _environ(program) | program.mpi.variables)


def ours(program: Program, place: Path, home: Path, layout: tuple[int, int], *more: str) -> Run:
    """Run a program by mpijob, with more options where there are any."""
    workers, slots = layout
    options = [f"--workers={workers}", f"--slots={slots}", "--cpu=250m", "--raw", "--no-prefix", "--code=."]
    options += [program.mpi.option] if program.mpi.option else []
    options += [f"--env={name}={value}" for name, value in program.environ.items()]
    argv = [sys.executable, "-m", "mpijob", "run", "try", *options, *more, "--", *_words(program)]
    config = home / "config"
    config.mkdir(parents=True, mode=0o700)
    (config / "settings.toml").write_text(SETTINGS)
    return _run(argv, place, _environ(program) | environ_of(home))


def environ_of(home: Path) -> dict[str, str]:
    """Return the environment that leads mpijob to a home that `ours` has used."""
    own = {"MPIJOB_HOME": str(home / "home"), "MPIJOB_SETTINGS": str(home / "config" / "settings.toml")}
    return {**os.environ, **own}


def _words(program: Program) -> list[str]:
    return [word.replace("{python}", sys.executable) for word in shlex.split(program.command)]


def _environ(program: Program) -> dict[str, str]:
    return {**os.environ, **program.environ}


def _run(argv: list[str], place: Path, environ: dict[str, str]) -> Run:
    began = time.monotonic()
    done = subprocess.run(  # a launcher that ends its process group must not end the tests
        argv, cwd=place, env=environ, capture_output=True, stdin=subprocess.DEVNULL, timeout=SECONDS,
        start_new_session=True,
    )  # fmt: skip
    output, errors = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    return Run(done.returncode, output, errors, time.monotonic() - began)
