"""A model registry as Kubeflow ships it, over MariaDB from Debian's packages, both for one test."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed import build, places
from testbed.shell import run
from tests.e2e.cluster.support import eventually
from tests.servers import free_port, process

from mpijob.backends.model_registry import Registry, RegistryEntry
from mpijob.errors import BackendError

_PACKAGES = ("mariadb-server-core", "mariadb-server", "mariadb-client-core", "liburing2", "libaio1")


@contextmanager
def a_model_registry(folder: Path) -> Iterator[str]:
    """Run one and return its address."""
    database, port = free_port(), free_port()
    dsn = f"root@tcp(127.0.0.1:{database})/registry?charset=utf8mb4&parseTime=true&multiStatements=true"
    kind = ("--embedmd-database-type=mysql", f"--embedmd-database-dsn={dsn}")
    argv = (build.requested("model-registry"), "proxy", "--hostname=127.0.0.1", f"--port={port}", *kind)
    with _mariadb(folder, database), process(*argv, log=folder / "registry.log", ends_in=30):
        address = f"http://127.0.0.1:{port}"
        eventually(lambda: _answers(address), "the model registry answers", 60)
        yield address


def _answers(address: str) -> bool:
    try:
        return bool(Registry(address).register(RegistryEntry("proof", "1", "pvc://claim/proof")).artifact_id)
    except BackendError:
        return False


@contextmanager
def _mariadb(folder: Path, port: int) -> Iterator[None]:
    root, data, door = _unpacked(), folder / "data", folder / "door"
    libraries = ":".join(str(root / place / "x86_64-linux-gnu") for place in ("usr/lib", "lib"))
    around = {**os.environ, "LD_LIBRARY_PATH": libraries}
    base = ("--no-defaults", f"--basedir={root / 'usr'}", f"--datadir={data}", "--user=root")
    first = ("--auth-root-authentication-method=normal", "--skip-test-db")
    run(root / "usr/bin/mariadb-install-db", *base, *first, env=around, timeout_seconds=120)
    server = (
        root / "usr/sbin/mariadbd",
        *base,
        f"--port={port}",
        "--bind-address=127.0.0.1",
        f"--socket={door}",
    )
    client = (root / "usr/bin/mariadb", "--no-defaults", "--user=root", f"--socket={door}")
    made = (*client, "--execute=create database registry")
    with process(*server, log=folder / "mariadb.log", ends_in=30, env=around):
        eventually(
            lambda: subprocess.run(made, env=around, capture_output=True).returncode == 0,
            "MariaDB answers",
            60,
        )
        yield


def _unpacked() -> Path:
    """Return where the packages lie unpacked, in the test bed's cache and in no system directory."""
    root = places.cache() / "mariadb"
    if not (root / "usr/sbin/mariadbd").exists():
        fresh = places.cache() / f"mariadb.{os.getpid()}"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        run("apt-get", "download", "--quiet", *_PACKAGES, cwd=fresh, timeout_seconds=300)
        for package in fresh.glob("*.deb"):
            run("dpkg-deb", "--extract", package, fresh)
        fresh.rename(root)
    return root
