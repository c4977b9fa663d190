"""The shim as a binary: out of the wheel, else compiled at first use (docs/decisions/0057).

A wheel brings it for x86-64 and aarch64, because a laptop may submit to nodes of the other kind. A checkout has none:
there a C compiler makes it, for this machine only.
"""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
import zlib
from pathlib import Path

from mpijob.errors import Unsupported

FOLDER = Path(__file__).parent
MACHINES = ("x86_64", "aarch64")
SOURCES = ("mpi_profile.c", "mpi_calls.h", "mpi_counted_calls.h")
# -nostdlib: no C library is named in it, so that it fits any; no stack protector and no fortified functions, because
# not every C library has what they call
FLAGS = (
    *(
        "-std=gnu11",
        "-O2",
        "-fPIC",
        "-shared",
        "-nostdlib",
        "-fvisibility=hidden",
        "-ftls-model=initial-exec",
    ),
    *("-fno-stack-protector", "-U_FORTIFY_SOURCE", "-Wl,-z,lazy", "-Wl,-s"),
)
_COMPILERS = ("cc", "gcc", "clang")
_SECONDS = 120.0
HINT = "install mpijob from its wheel, which brings the shim, or install a C compiler (gcc)"


def prebuilt(machine: str) -> Path:
    """Return where a wheel has the shim for a kind of machine; there or not."""
    return FOLDER / "lib" / f"mpi_profile-{machine}.so"


def planned(home: Path) -> Path | None:
    """Return where this machine's shim is, or will be when it was compiled; None where it cannot be had."""
    machine = platform.machine()
    if machine not in MACHINES:
        return None
    if prebuilt(machine).exists():
        return prebuilt(machine)
    made = home / "profiler" / f"mpi_profile-{machine}-{_version():08x}.so"
    return made if made.exists() or _compiler() else None


def provide(home: Path) -> Path:
    """Return this machine's shim, compiled now where it is not there yet; raise Unsupported where it cannot be had."""
    path = planned(home)
    if path is None:
        raise Unsupported(f"MPI calls cannot be counted on this machine ({platform.machine()})", hint=HINT)
    if not path.exists():
        compile_into(path, _compiler())
    return path


def every(home: Path) -> dict[str, bytes]:
    """Return the shim for each kind of machine that it can be had for, for pods on nodes of any."""
    found = {machine: prebuilt(machine).read_bytes() for machine in MACHINES if prebuilt(machine).exists()}
    if platform.machine() not in found and planned(home) is not None:
        found[platform.machine()] = provide(home).read_bytes()
    return found


def compile_into(path: Path, compiler: str) -> None:
    """Compile the shim; whoever looks meanwhile sees none, or all of it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    argv = [*compiler.split(), *FLAGS, "-o", str(unfinished), str(FOLDER / SOURCES[0])]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_SECONDS, check=False)
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["it said nothing"])[0]
            raise Unsupported(
                f"{compiler} could not compile the shim that counts MPI calls: {why}", hint=HINT
            )
        unfinished.replace(path)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unsupported(f"{compiler} could not be run: {error}", hint=HINT) from error
    finally:
        unfinished.unlink(missing_ok=True)


def _compiler() -> str:
    return next((path for name in _COMPILERS if (path := shutil.which(name))), "")


@functools.cache
def _version() -> int:
    return functools.reduce(lambda crc, name: zlib.crc32((FOLDER / name).read_bytes(), crc), SOURCES, 0)
