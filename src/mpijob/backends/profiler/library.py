"""The shim as a binary: from the wheel, else compiled at first use (docs/decisions/0057).

A wheel contains it for x86-64 and aarch64, because a laptop may submit to nodes of the other architecture. In a
checkout a C compiler builds it, for this machine only. The profiles that it writes are read in
`attempts/mpi_profiles` and `kubernetes/metrics`.
"""

from __future__ import annotations

import functools
import platform
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from mpijob.errors import Unsupported

FOLDER = Path(__file__).parent
MACHINES = ("x86_64", "aarch64")
SOURCES = ("mpi_profile.c", "mpi_calls.h", "mpi_counted_calls.h")
# No stack protector and no fortified functions: not every C library has what they call.
_COMPILE = (
    *("-std=gnu11", "-O2", "-fPIC", "-c", "-fvisibility=hidden", "-ftls-model=initial-exec"),
    *("-fno-stack-protector", "-fno-sanitize=undefined", "-U_FORTIFY_SOURCE"),
)
# Linked to no C library, so that it can be preloaded with any (glibc, musl).
_LINK = ("-shared", "-nostdlib", "-Wl,-z,lazy", "-Wl,-s")
_COMPILERS = ("cc", "gcc", "clang")
# It takes five seconds on an idle machine.
_SECONDS = 600.0
HINT = "install mpijob from its wheel, which contains the shim, or install a C compiler (gcc)"


def prebuilt(machine: str) -> Path:
    """Return the path of the shim in a wheel for an architecture; it need not exist."""
    return FOLDER / "lib" / f"mpi_profile-{machine}.so"


def find_shim(home: Path) -> Path | None:
    """Return the path of this machine's shim, compiled or not; None if it is not available."""
    machine = platform.machine()
    if machine not in MACHINES:
        return None
    if prebuilt(machine).exists():
        return prebuilt(machine)
    # With a digest of its sources: another release does not use an outdated one.
    compiled = home / "profiler" / f"mpi_profile-{machine}-{_version():08x}.so"
    return compiled if compiled.exists() or _compiler() else None


def ensure_shim(home: Path) -> Path:
    """Return this machine's shim, compiled if necessary; raise Unsupported if it is not available."""
    if (path := find_shim(home)) is None:
        raise Unsupported(f"MPI calls cannot be counted on this machine ({platform.machine()})", hint=HINT)
    if not path.exists():
        compile_into(path, (_compiler(),))
    return path


def shims_by_machine(home: Path) -> dict[str, bytes]:
    """Return the content of the shim for each available architecture, for pods on nodes of any."""
    found = {machine: prebuilt(machine).read_bytes() for machine in MACHINES if prebuilt(machine).exists()}
    if platform.machine() not in found and find_shim(home) is not None:
        found[platform.machine()] = ensure_shim(home).read_bytes()
    return found


def build_for_wheel() -> Path:
    """Compile the shim for this machine to its path in a wheel; raise Unsupported without a compiler."""
    machine, compiler = platform.machine(), _compiler()
    if machine not in MACHINES or not compiler:
        raise Unsupported(f"there is no C compiler, or no shim for {machine}", hint=HINT)
    compile_into(prebuilt(machine), (compiler,))
    return prebuilt(machine)


def compile_into(path: Path, compiler: Sequence[str]) -> None:
    """Compile the shim; other processes see no file, or a complete one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        code, unfinished = Path(folder) / "shim.o", Path(folder) / path.name
        _run([*compiler, *_COMPILE, "-o", str(code), str(FOLDER / SOURCES[0])])
        _run([*compiler, *_LINK, "-o", str(unfinished), str(code)])
        unfinished.chmod(0o755)
        unfinished.replace(path)


def _run(argv: Sequence[str]) -> None:
    try:
        process = subprocess.run(argv, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unsupported(f"{argv[0]} could not compile the shim: {error}", hint=HINT) from error
    if process.returncode:
        reason = (process.stderr.strip().splitlines() or ["no output"])[0]
        raise Unsupported(f"{argv[0]} could not compile the shim that counts MPI calls: {reason}", hint=HINT)


def _compiler() -> str:
    return next((path for name in _COMPILERS if (path := shutil.which(name))), "")


@functools.cache
def _version() -> int:
    return functools.reduce(lambda crc, name: zlib.crc32((FOLDER / name).read_bytes(), crc), SOURCES, 0)
