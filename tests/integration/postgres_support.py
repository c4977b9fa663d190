"""A PostgreSQL of a test's own, from Debian's package."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # its stubs are a package of their own
from tests.servers import free_port


class Server:
    """A PostgreSQL of one's own, that can be killed and started again."""

    def __init__(self, place: Path) -> None:
        found = sorted(glob("/usr/lib/postgresql/*/bin")) or [os.path.dirname(shutil.which("initdb") or "")]
        assert found[-1], "PostgreSQL is not installed; `make test` does it"
        self._bin, self._data = found[-1], place / "data"
        self._as = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        place.mkdir(mode=0o755)
        if self._as:
            shutil.chown(place, "postgres")
        self.port = free_port()
        self._run("initdb", "-D", str(self._data), "-A", "trust", "-U", "test", "--no-sync")
        self._sockets = place
        self.start()

    def _run(self, program: str, *argv: str) -> None:
        done = subprocess.run(
            [*self._as, f"{self._bin}/{program}", *argv], capture_output=True, text=True, cwd="/", timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        options = f"-p {self.port} -k {self._sockets} -c listen_addresses=127.0.0.1"
        self._run(
            "pg_ctl", "-D", str(self._data), "-w", "-l", str(self._sockets / "log"), "-o", options, "start"
        )

    def kill(self) -> None:
        """End the server as a power cut would."""
        main = psutil.Process(int((self._data / "postmaster.pid").read_text().split()[0]))
        everybody = [main, *main.children(recursive=True)]
        for one in everybody:
            one.kill()
        psutil.wait_procs(everybody, timeout=20)
        (self._data / "postmaster.pid").unlink()

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self._data), "-w", "-m", "immediate", "stop")

    def database(self, name: str) -> str:
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "test", name)
        return f"postgresql://test@127.0.0.1:{self.port}/{name}"


@contextmanager
def serving(name: str) -> Iterator[Server]:
    """Run a server in a directory that its own user may reach."""
    place = Path("/tmp") / f"mpijob-{name}-{os.getpid()}"
    one = Server(place)
    try:
        yield one
    finally:
        one.stop()
        shutil.rmtree(place, ignore_errors=True)
