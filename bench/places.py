"""A place of its own for a measurement: a fresh home, its settings, a client, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from bench import processes
from bench.line import Unmeasured
from mpijob import Client, MPIJob, Resources
from mpijob.backends.local.queue.store import Store
from mpijob.backends.local.storage.paths import Home
from mpijob.client.admin.mpi import installations
from mpijob.settings import load

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parent.parent
FAMILIES = ("mpich", "openmpi", "intel")


@dataclass(frozen=True)
class Options:
    """What was asked for on the command line."""

    quick: bool = False
    kills: int = 50
    jobs: int = 1000

    def rounds(self, full: int) -> int:
        """Return how often to repeat: a third of the full number when time is short."""
        return max(3, full // 3) if self.quick else full


@dataclass(frozen=True)
class Place:
    """A home, the environment that leads the command line there, and a client on it."""

    home: Path
    environ: dict[str, str]
    client: Client

    def idle(self, seconds: float = 30.0) -> None:
        """Wait for the jobs' end, then end the runners that listen for more: the next round starts cold."""
        deadline = time.monotonic() + seconds
        while self.busy() or processes.ours(self.home):
            if time.monotonic() > deadline:
                left = [processes.command_line(pid) for pid in processes.ours(self.home)]
                held = f"a job {'still' if self.busy() else 'no longer'} holds resources"
                raise Unmeasured(f"after {seconds:g} s {held}, and these run: {left}")
            if not self.busy():
                processes.end(processes.ours(self.home))
            time.sleep(0.005)

    def busy(self) -> bool:
        """Return whether a job still holds something here."""
        store = Store(Home(self.client.settings.home))
        held = store.read("SELECT 1 FROM jobs WHERE holds=1 LIMIT 1")
        store.close()
        return bool(held)


@contextmanager
def place(cores: float = 64.0, memory: str = "8Gi") -> Iterator[Place]:
    """Give a fresh home with so many cores and so much memory to hand out; everything in it is ended and removed."""
    home = Path(tempfile.mkdtemp(prefix="mpijob-bench-"))
    environ = {**os.environ, "MPIJOB_SETTINGS": str(_settings_file(home, cores, memory))}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for name in ("MPIJOB_HOME", "MPIJOB_CORES", "MPIJOB_NAMESPACE", "MPIJOB_ENGINE"):
        environ.pop(name, None)
    client = Client(settings=load(environ))
    try:
        yield Place(home, environ, client)
    finally:
        for state in client.jobs(
            all_namespaces=True, phases=("Queued", "Pending", "Initializing", "Running")
        ):
            client.cancel(state.ref, grace_period=0)
        shutil.rmtree(home, ignore_errors=True)


def _settings_file(home: Path, cores: float, memory: str) -> Path:
    path = home / "settings.toml"
    directories = [f'{family} = "{prefix}"' for family, prefix in _prefixes().items()]
    path.write_text(
        f'home = "{home}/state"\ncores = {cores}\nmemory = "{memory}"\ngpus = 0\n[mpi_directories]\n'
        + "\n".join(directories)
    )
    return path


def _prefixes() -> dict[str, str]:
    """Return where this user's other MPI families are: the settings', the tests', the home's."""
    settings = load()
    root = os.environ.get("MPIJOB_TEST_MPI", "")
    places = [Path(root)] if root else []
    places.append(Path(settings.home) / "mpi")
    found = dict(settings.mpi_directories)
    for family in FAMILIES:
        for directory in places:
            if family not in found and (directory / family / "bin").is_dir():
                found[family] = str(directory.resolve() / family)
    return found


def installed(there: Place) -> Iterator[tuple[str, str, Place]]:
    """Yield every MPI that jobs can use here: its name, its family, and the place with it chosen."""
    for one in installations(there.client.settings):
        family, prefix = str(one["family"]), str(one["prefix"])
        directories = there.client.settings.mpi_directories | {family: prefix}
        settings = msgspec.structs.replace(there.client.settings, mpi_directories=directories)
        yield f"{family} {one['version']}", family, replace(there, client=Client(settings=settings))


def small_job(name: str, workers: int, *command: str, **fields: Any) -> MPIJob:
    """Return a job that fits anywhere: half a tenth of a core and 64 MiB for each worker."""
    fields.setdefault("resources", Resources(cpu="50m", memory="256Mi"))
    fields.setdefault("launcher", Resources(cpu="50m", memory="64Mi"))
    return MPIJob(name=name, workers=workers, command=command, **fields)
