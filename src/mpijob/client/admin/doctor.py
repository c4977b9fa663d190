"""Check whether this machine, or a cluster, is ready for jobs; problems come with their fixes.

On this machine: MPI libraries and what they need. On a cluster: engines, their versions, and the user's
permissions.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from collections.abc import Iterable, Iterator

from mpijob.backends.local.planning import machine
from mpijob.backends.local.storage.paths import Home
from mpijob.backends.local.worker import isolation
from mpijob.backends.mpi import mpi_installations
from mpijob.errors import BackendError, Finding, MpiJobError, Severity, UnsafePath
from mpijob.model.spec import quantity
from mpijob.settings import CLUSTER, Settings, is_slurm, load

_LOW_SHM_BYTES = 64 << 20
_LOW_DISK_BYTES = 512 << 20


def report(settings: Settings | None = None) -> tuple[Finding, ...]:
    """Return the findings, problems first."""
    settings = load() if settings is None else settings
    if settings.engine == CLUSTER:
        return _in_order(_cluster(settings))
    if is_slurm(settings.engine):
        from mpijob.backends.slurm.backend import SlurmBackend

        return _in_order(SlurmBackend(settings, settings.engine).doctor())
    found = [*_home(settings), *_mpi(settings), *_python(), *_machine(settings), *_isolation(settings)]
    return _in_order(found)


def _in_order(found: Iterable[Finding]) -> tuple[Finding, ...]:
    order = (Severity.ERROR, Severity.WARNING, Severity.NOTICE)
    return tuple(sorted(found, key=lambda finding: order.index(finding.severity)))


def _cluster(settings: Settings) -> Iterator[Finding]:
    from mpijob.backends.kubernetes.admin import versions

    try:
        yield from versions.report(settings)
    except MpiJobError as error:
        yield Finding("DOCTOR_CLUSTER", error.message, error.hint)


def _home(settings: Settings) -> Iterator[Finding]:
    try:
        Home(settings.home).ensure()
        free = shutil.disk_usage(settings.home).free
    except (BackendError, UnsafePath) as error:
        yield Finding("DOCTOR_HOME", error.message, error.hint)
        return
    if not os.access(settings.home, os.W_OK):
        yield Finding(
            "DOCTOR_HOME", f"{settings.home} cannot be written", "set MPIJOB_HOME to another directory"
        )
    elif free < _LOW_DISK_BYTES:
        text = f"{settings.home}: only {quantity.as_bytes(free)} are free on its disk"
        yield Finding(
            "DOCTOR_DISK",
            text,
            "remove what is no longer needed: mpijob delete NAME",
            severity=Severity.WARNING,
        )
    else:
        yield _fine(f"jobs are kept in {settings.home}, {quantity.as_bytes(free)} free")


def _mpi(settings: Settings) -> Iterator[Finding]:
    known = mpi_installations.find_all(settings, Home(settings.home))
    has_mpi4py = importlib.util.find_spec("mpi4py") is not None
    for one in known:
        name = f"MPI {one.family.value} {one.version} in {one.prefix}"
        if not has_mpi4py:
            yield _fine(f"{name}: found, but not tested, because mpi4py is not installed")
        elif wrong := mpi_installations.test_run(one):
            hint = "programs built with it may still run; for Python, select another with mpi: FAMILY"
            yield Finding(
                "DOCTOR_MPI", f"{name} does not run mpi4py: {wrong}", hint, severity=Severity.WARNING
            )
        else:
            yield _fine(f"{name} passed a test with two mpi4py ranks")
    if not known:
        yield Finding("DOCTOR_MPI", "no MPI library was found", "run: mpijob mpi install mpich")


def _python() -> Iterator[Finding]:
    yield _fine(f"Python {platform.python_version()}")
    if importlib.util.find_spec("mpi4py") is None:
        text = "mpi4py is not installed: Python programs cannot use MPI"
        yield Finding("DOCTOR_MPI4PY", text, "run: pip install mpi4py", severity=Severity.WARNING)


def _machine(settings: Settings) -> Iterator[Finding]:
    has = machine.capacity(settings)
    memory = quantity.as_bytes(has.memory_bytes)
    yield _fine(f"{quantity.as_count(has.cores)} cores, {memory} of memory, {has.gpus} GPUs for jobs")
    try:
        shared = shutil.disk_usage("/dev/shm").total  # noqa: S108 - the mount point itself
    except OSError:
        return
    if shared < _LOW_SHM_BYTES:
        text = f"shared memory has only {quantity.as_bytes(shared)} (/dev/shm): too little for MPI"
        yield Finding(
            "DOCTOR_SHM", text, "enlarge it (in a container: --shm-size)", severity=Severity.WARNING
        )


def _isolation(settings: Settings) -> Iterator[Finding]:
    chosen = isolation.choose(settings.isolation)
    yield _fine(f"isolation by {chosen.value}: {chosen.guarantee}")


def _fine(message: str) -> Finding:
    return Finding("DOCTOR_OK", message, severity=Severity.NOTICE)
