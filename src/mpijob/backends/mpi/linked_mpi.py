"""Which MPI library a program loads, asked of the system's own dynamic loader: RPATH, RUNPATH, ld.so.cache and all.

The loader lists what a program needs, with what those libraries need in turn, and runs nothing of it. A command is
looked through to its program first: behind wrappers (env, taskset, timeout …), in shell text and shell scripts, and
behind an interpreter to the MPI module that it would load (mpi4py, Rmpi, ruby-mpi).
"""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from mpijob.model import Family
from mpijob.model.spec.command import (
    BATCH_LAUNCHERS,
    SHELLS,
    is_launcher,
    shell_commands,
    shell_text,
    unwrapped,
)

_LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1", "/lib64/ld64.so.2", "/lib/ld64.so.1",
            "/lib/ld-linux-riscv64-lp64d.so.1")  # fmt: skip
_LINE = re.compile(rb"^\s*(\S+) => (\S+|not found)(?: \(0x[0-9a-f]+\))?$", re.M)
_MPI = re.compile(r"libmpi(?:ch|fort|chfort|cxx|chcxx|_mpifh|_usempi\w*|_cxx|_abi)?\.so\.\d+")
_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*")
_MOST_BYTES = 1 << 16  # of a script
_MOST_PROGRAMS = 20  # that one script is searched for
_MOST_STATIC_BYTES = 256 << 20
_DEEPEST = 4
_STATIC = ((Family.OPENMPI, b"OMPI_COMM_WORLD_SIZE"), (Family.MPICH, b"MPIR_CVAR_"))


class LinkedMPI(NamedTuple):
    """An MPI library that a program is linked to, as the loader resolves it."""

    program: str
    families: tuple[Family, ...]  # the likeliest first: MPICH and Intel MPI share an ABI
    library: str = ""  # "" where the loader does not find it, or where it is linked statically
    major: str = ""  # of Open MPI only: its releases do not start each other's programs


class _Search(NamedTuple):
    """Where the words of a command are looked for."""

    directory: Path
    path: str
    library_path: str


def find_in_commands(
    commands: Iterator[tuple[str, ...]], directory: Path, environ: Mapping[str, str]
) -> LinkedMPI | None:
    """Return the MPI of the first program that has one; `environ` gives PATH and LD_LIBRARY_PATH."""
    where = _Search(directory, environ.get("PATH", os.defpath), environ.get("LD_LIBRARY_PATH", ""))
    seen: set[str] = set()
    for argv in commands:
        for file in _programs(argv, where, _DEEPEST):
            if file not in seen and len(seen) < _MOST_PROGRAMS:
                seen.add(file)
                if found := inspect_file(file, where.library_path):
                    return found
    return None


def inspect_file(path: str, library_path: str = "") -> LinkedMPI | None:
    """Return the MPI that an executable or a shared library is linked to; None where that is none."""
    libraries = _loaded(path, library_path)
    if libraries is None:
        return find_static(path)
    return _classify(path, libraries)


def parse_ldd(path: str, text: str) -> LinkedMPI | None:
    """Return the MPI among the libraries that `ldd` lists for a program of another machine."""
    return _classify(path, {os.fsdecode(name): _place(place) for name, place in _LINE.findall(text.encode())})


def resolve(word: str, directory: Path, path: str) -> str:
    """Return the file that a command's first word starts; "" where there is none."""
    if "/" in word:
        file = directory / word
        return str(file) if file.is_file() else ""
    return shutil.which(word, path=path) or ""


def _classify(path: str, libraries: Mapping[str, str]) -> LinkedMPI | None:
    mpi = {name: place for name, place in libraries.items() if _MPI.fullmatch(name)}
    if not mpi:
        return None
    name = next((one for one in mpi if one.startswith(("libmpi.so", "libmpich.so", "libmpi_abi"))), min(mpi))
    library = mpi[name]
    if name.endswith((".20", ".40")) or any(one.startswith("libopen-pal.so") for one in libraries):
        has_orte = any(one.startswith("libopen-rte.so") for one in libraries)  # Open MPI 5 has PRRTE instead
        return LinkedMPI(path, (Family.OPENMPI,), library, ("4" if has_orte else "5") if library else "")
    return LinkedMPI(path, (Family.MPICH, Family.INTEL), library)


# -- the loader ---------------------------------------------------------------------------------------
def _loaded(path: str, library_path: str) -> dict[str, str] | None:
    """Return soname → file of all that a dynamic ELF file needs; None for a static one, {} for no ELF file."""
    try:
        with open(path, "rb") as file:
            if file.read(4) != b"\x7fELF":
                return {}
    except OSError:
        return {}
    loader = next((one for one in _LOADERS if os.path.exists(one)), "")
    if not loader:
        return {}
    answer = _ask(loader, os.path.abspath(path), library_path)
    if b"=>" not in answer and b"linux-vdso" not in answer:
        return None
    return {os.fsdecode(name): _place(place) for name, place in _LINE.findall(answer)}


def _place(said: bytes) -> str:
    return "" if said == b"not found" else os.fsdecode(said)


def _ask(loader: str, path: str, library_path: str) -> bytes:
    environ = {"LD_TRACE_LOADED_OBJECTS": "1", "LD_LIBRARY_PATH": library_path}
    reading, writing = os.pipe()
    try:
        actions = [(os.POSIX_SPAWN_DUP2, writing, 1), (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
        pid = os.posix_spawn(loader, [loader, path], environ, file_actions=actions)
    except OSError:
        os.close(reading)
        return b""
    finally:
        os.close(writing)
    with open(reading, "rb") as file:
        answer = file.read(1 << 20)
    os.waitpid(pid, 0)
    return answer


def find_static(path: str) -> LinkedMPI | None:
    """Return the MPI that is part of a program itself, by the names of variables that its library reads."""
    import mmap  # static programs are rare

    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if len(data) > _MOST_STATIC_BYTES:
                return None
            found = [family for family, mark in _STATIC if data.find(mark) >= 0]
    except (OSError, ValueError):
        return None
    return LinkedMPI(path, (found[0],)) if found else None


# -- from a command to its programs -------------------------------------------------------------------
def _programs(argv: tuple[str, ...], where: _Search, depth: int) -> Iterator[str]:
    """Yield the files that a command starts and that may be linked to an MPI."""
    words = unwrapped(argv)
    if not words or depth == 0:
        return
    base = os.path.basename(words[0])
    if base in SHELLS:
        yield from _of_shell(words, where, depth)
        return
    if is_launcher(base) or base in BATCH_LAUNCHERS:
        for at, word in enumerate(words[1:], 1):
            if not word.startswith("-") and resolve(word, where.directory, where.path):
                yield from _programs(words[at:], where, depth - 1)
        return
    file = resolve(words[0], where.directory, where.path)
    if not file:
        return
    if script := _script(file):
        yield from _of_script(file, script, where, depth)
    else:
        yield from _of_interpreter(file, base)
        yield file


def _of_shell(words: tuple[str, ...], where: _Search, depth: int) -> Iterator[str]:
    text = shell_text(words[1:])
    if not text:
        name = next((word for word in words[1:] if not word.startswith("-")), "")
        text = _script(str(where.directory / name)) if name else ""
    for command in shell_commands(text):
        yield from _programs(command, where, depth - 1)
    given = (
        words[words.index(text) + 1 :] if text in words and "$" in text else ()
    )  # bash -c '… "$@"' name ./solve
    for at, word in enumerate(given):
        if resolve(word, where.directory, where.path):
            yield from _programs(given[at:], where, depth - 1)


def _of_script(file: str, text: str, where: _Search, depth: int) -> Iterator[str]:
    """Yield what a script starts: its shell's commands, or its interpreter's MPI."""
    first, _, body = text.partition("\n")
    if not first.startswith("#!"):
        return
    words = unwrapped(tuple(first[2:].split()))
    if words and os.path.basename(words[0]) in SHELLS:
        for command in shell_commands(body):
            yield from _programs(command, where, depth - 1)
    elif words:
        yield from _programs((*words, file), where, depth - 1)


def _script(path: str) -> str:
    """Return the text of a script; "" for anything else."""
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES)
    except OSError:
        return ""
    return "" if b"\0" in data or data.startswith(b"\x7fELF") else data.decode(errors="replace")


def _of_interpreter(file: str, base: str) -> Iterator[str]:
    """Yield the MPI module that an interpreter would load, where it has just one."""
    for pattern in _modules(file, base):
        found = glob.glob(pattern)
        if found:
            if len(found) == 1:  # PyPI's mpi4py has one for each family, and takes what it finds
                yield found[0]
            return


def _modules(file: str, base: str) -> Iterator[str]:
    prefix = os.path.dirname(os.path.dirname(os.path.abspath(file)))
    if _PYTHON.fullmatch(base):
        yield from _of_python(file, prefix)
    elif base in ("R", "Rscript"):
        libraries = ("lib/R/site-library", "lib/R/library", "local/lib/R/site-library", "lib64/R/library")
        yield from (f"{prefix}/{one}/Rmpi/libs/Rmpi.so" for one in libraries)
    elif base.startswith("ruby"):
        yield from (f"{prefix}/lib/{one}" for one in ("*/ruby/vendor_ruby/*/mpi.so", "ruby/**/mpi.so"))


def _of_python(file: str, prefix: str) -> Iterator[str]:
    module = "mpi4py/MPI*.so"
    yield f"{prefix}/lib/python3*/site-packages/{module}"
    if not os.path.exists(f"{prefix}/pyvenv.cfg"):
        yield os.path.expanduser(f"~/.local/lib/python3*/site-packages/{module}")
        yield f"{prefix}/local/lib/python3*/dist-packages/{module}"
        yield f"{prefix}/lib/python3/dist-packages/{module}"
        yield f"{prefix}/lib64/python3*/site-packages/{module}"
        if (
            os.path.islink(file)
            and (real := os.path.dirname(os.path.dirname(os.path.realpath(file)))) != prefix
        ):
            yield f"{real}/lib/python3*/site-packages/{module}"
    elif _sees_system(f"{prefix}/pyvenv.cfg"):
        base = os.path.realpath(file)
        yield from _of_python(base, os.path.dirname(os.path.dirname(base)))


def _sees_system(config: str) -> bool:
    try:
        text = Path(config).read_text(errors="replace")
    except OSError:
        return False
    return bool(re.search(r"include-system-site-packages\s*=\s*true", text))
