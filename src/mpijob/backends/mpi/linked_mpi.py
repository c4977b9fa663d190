"""Find which MPI library a program loads, with the system's own dynamic loader (docs/decisions/0052).

The loader lists the libraries of a program, with those that they need in turn, and runs nothing of it. So RPATH,
RUNPATH and ld.so.cache are resolved as when the program starts. The program of a command is found first: behind
wrappers (env, taskset, timeout …), in shell text and shell scripts, and the MPI module that an interpreter would
load (mpi4py, Rmpi, ruby-mpi). Which installation is used is decided in `mpi_selection`.
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
# Of a script.
_MAX_SCRIPT_BYTES = 1 << 16
# Programs of one script that are examined.
_MAX_PROGRAMS = 20
_MAX_STATIC_BYTES = 256 << 20
# Scripts that call scripts.
_MAX_DEPTH = 4
# Variables that a library reads: their names are in its binary.
_STATIC = ((Family.OPENMPI, b"OMPI_COMM_WORLD_SIZE"), (Family.MPICH, b"MPIR_CVAR_"))


class LinkedMPI(NamedTuple):
    """An MPI library that a program is linked to, as the loader resolves it."""

    program: str
    # The likeliest first: MPICH and Intel MPI share an ABI.
    families: tuple[Family, ...]
    # "" if the loader does not find it, or if it is linked statically.
    library: str = ""
    # Of Open MPI only: its releases do not start each other's programs.
    major: str = ""


class _Search(NamedTuple):
    """Where the programs of a command and their libraries are searched."""

    directory: Path
    path: str
    library_path: str


def find_in_commands(
    commands: Iterator[tuple[str, ...]], directory: Path, environ: Mapping[str, str]
) -> LinkedMPI | None:
    """Return the MPI of the first program that has one; `environ` gives PATH and LD_LIBRARY_PATH."""
    search = _Search(directory, environ.get("PATH", os.defpath), environ.get("LD_LIBRARY_PATH", ""))
    examined: set[str] = set()
    for argv in commands:
        for file in _programs(argv, search, _MAX_DEPTH):
            if file not in examined and len(examined) < _MAX_PROGRAMS:
                examined.add(file)
                if found := inspect_file(file, search.library_path):
                    return found
    return None


def inspect_file(path: str, library_path: str = "") -> LinkedMPI | None:
    """Return the MPI that an executable or a shared library is linked to; None if there is none."""
    libraries = _loaded(path, library_path)
    return find_static(path) if libraries is None else _classify(path, libraries)


def parse_ldd(path: str, text: str) -> LinkedMPI | None:
    """Return the MPI among the libraries that `ldd` lists for a program of another machine."""
    return _classify(path, _parse_libraries(text.encode()))


def resolve(word: str, directory: Path, path: str) -> str:
    """Return the file that a command's first word starts; "" if there is none."""
    if "/" in word:
        file = directory / word
        return str(file) if file.is_file() else ""
    return shutil.which(word, path=path) or ""


def _classify(path: str, libraries: Mapping[str, str]) -> LinkedMPI | None:
    mpi = [name for name in libraries if _MPI.fullmatch(name)]
    if not mpi:
        return None
    # The C library if it is there: a Fortran or C++ binding may come from another installation.
    main_libraries = (name for name in mpi if name.startswith(("libmpi.so", "libmpich.so", "libmpi_abi")))
    name = next(main_libraries, min(mpi))
    library = libraries[name]
    if name.endswith((".20", ".40")) or any(other.startswith("libopen-pal.so") for other in libraries):
        # Open MPI 5 has PRRTE instead of ORTE.
        has_orte = any(other.startswith("libopen-rte.so") for other in libraries)
        return LinkedMPI(path, (Family.OPENMPI,), library, ("4" if has_orte else "5") if library else "")
    return LinkedMPI(path, (Family.MPICH, Family.INTEL), library)


# -- the loader ---------------------------------------------------------------------------------------
def _loaded(path: str, library_path: str) -> dict[str, str] | None:
    """Return the file of each library that a dynamic ELF file needs; None if it is static, {} if it is no ELF file."""
    try:
        with open(path, "rb") as file:
            if file.read(4) != b"\x7fELF":
                return {}
    except OSError:
        return {}
    loader = next((path for path in _LOADERS if os.path.exists(path)), "")
    if not loader:
        return {}
    listing = _run_loader(loader, os.path.abspath(path), library_path)
    if b"=>" not in listing and b"linux-vdso" not in listing:
        return None
    return _parse_libraries(listing)


def _parse_libraries(listing: bytes) -> dict[str, str]:
    return {
        os.fsdecode(name): "" if path == b"not found" else os.fsdecode(path)
        for name, path in _LINE.findall(listing)
    }


def _run_loader(loader: str, path: str, library_path: str) -> bytes:
    environ = {"LD_TRACE_LOADED_OBJECTS": "1", "LD_LIBRARY_PATH": library_path}
    reading, writing = os.pipe()
    # `posix_spawn`, because importing `subprocess` takes longer than the loader itself.
    try:
        actions = [(os.POSIX_SPAWN_DUP2, writing, 1), (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
        pid = os.posix_spawn(loader, [loader, path], environ, file_actions=actions)
    except OSError:
        os.close(reading)
        return b""
    finally:
        os.close(writing)
    with open(reading, "rb") as file:
        listing = file.read(1 << 20)
    os.waitpid(pid, 0)
    return listing


def find_static(path: str) -> LinkedMPI | None:
    """Return the MPI that is linked statically into a program."""
    # Imported here because static programs are rare.
    import mmap

    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if len(data) > _MAX_STATIC_BYTES:
                return None
            found = [family for family, mark in _STATIC if data.find(mark) >= 0]
    except (OSError, ValueError):
        return None
    return LinkedMPI(path, (found[0],)) if found else None


# -- from a command to its programs -------------------------------------------------------------------
def _programs(argv: tuple[str, ...], search: _Search, depth: int) -> Iterator[str]:
    """Yield the files that a command starts and that may be linked to an MPI."""
    words = unwrapped(argv)
    if not words or depth == 0:
        return
    base = os.path.basename(words[0])
    if base in SHELLS:
        yield from _shell_programs(words, search, depth)
        return
    if is_launcher(base) or base in BATCH_LAUNCHERS:
        # The launcher's options are not parsed: every word that is a file may be the program.
        yield from _programs_among(words[1:], search, depth)
        return
    file = resolve(words[0], search.directory, search.path)
    if not file:
        return
    if script := _read_script(file):
        yield from _script_programs(file, script, search, depth)
    else:
        yield from _interpreter_module(file, base)
        yield file


def _programs_among(words: tuple[str, ...], search: _Search, depth: int) -> Iterator[str]:
    for index, word in enumerate(words):
        if not word.startswith("-") and resolve(word, search.directory, search.path):
            yield from _programs(words[index:], search, depth - 1)


def _shell_programs(words: tuple[str, ...], search: _Search, depth: int) -> Iterator[str]:
    text = shell_text(words[1:])
    if not text:
        name = next((word for word in words[1:] if not word.startswith("-")), "")
        text = _read_script(str(search.directory / name)) if name else ""
    for command in shell_commands(text):
        yield from _programs(command, search, depth - 1)
    # As in: bash -c '… "$@"' name ./solve
    if text in words and "$" in text:
        yield from _programs_among(words[words.index(text) + 1 :], search, depth)


def _script_programs(file: str, text: str, search: _Search, depth: int) -> Iterator[str]:
    """Yield what a script starts: its shell's commands, or its interpreter's MPI module."""
    first, _, body = text.partition("\n")
    if not first.startswith("#!"):
        return
    words = unwrapped(tuple(first[2:].split()))
    if words and os.path.basename(words[0]) in SHELLS:
        for command in shell_commands(body):
            yield from _programs(command, search, depth - 1)
    elif words:
        yield from _programs((*words, file), search, depth - 1)


def _read_script(path: str) -> str:
    """Return the text of a script; "" for any other file."""
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_SCRIPT_BYTES)
    except OSError:
        return ""
    return "" if b"\0" in data or data.startswith(b"\x7fELF") else data.decode(errors="replace")


def _interpreter_module(file: str, base: str) -> Iterator[str]:
    """Yield the MPI module that an interpreter would load, if there is exactly one."""
    for pattern in _module_patterns(file, base):
        found = glob.glob(pattern)
        if found:
            # mpi4py's wheel has one for each family, and uses the library that it finds.
            if len(found) == 1:
                yield found[0]
            return


def _module_patterns(file: str, base: str) -> Iterator[str]:
    prefix = os.path.dirname(os.path.dirname(os.path.abspath(file)))
    if _PYTHON.fullmatch(base):
        yield from _python_patterns(file, prefix)
    elif base in ("R", "Rscript"):
        libraries = ("lib/R/site-library", "lib/R/library", "local/lib/R/site-library", "lib64/R/library")
        yield from (f"{prefix}/{library}/Rmpi/libs/Rmpi.so" for library in libraries)
    elif base.startswith("ruby"):
        yield from (f"{prefix}/lib/*/ruby/vendor_ruby/*/mpi.so", f"{prefix}/lib/ruby/**/mpi.so")


def _python_patterns(file: str, prefix: str) -> Iterator[str]:
    """Yield where `import mpi4py` finds its module, in the order of `sys.path`; Python itself is not started."""
    module = "mpi4py/MPI*.so"
    yield f"{prefix}/lib/python3*/site-packages/{module}"
    if not os.path.exists(f"{prefix}/pyvenv.cfg"):
        yield os.path.expanduser(f"~/.local/lib/python3*/site-packages/{module}")
        yield f"{prefix}/local/lib/python3*/dist-packages/{module}"
        yield f"{prefix}/lib/python3/dist-packages/{module}"
        yield f"{prefix}/lib64/python3*/site-packages/{module}"
        real_prefix = os.path.dirname(os.path.dirname(os.path.realpath(file)))
        if os.path.islink(file) and real_prefix != prefix:
            yield f"{real_prefix}/lib/python3*/site-packages/{module}"
    elif _has_system_packages(f"{prefix}/pyvenv.cfg"):
        base = os.path.realpath(file)
        yield from _python_patterns(base, os.path.dirname(os.path.dirname(base)))


def _has_system_packages(config: str) -> bool:
    try:
        text = Path(config).read_text(errors="replace")
    except OSError:
        return False
    return bool(re.search(r"include-system-site-packages\s*=\s*true", text))
