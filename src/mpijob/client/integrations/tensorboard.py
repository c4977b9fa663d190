"""Run TensorBoard for one job: over its own event files, or over the metrics that its ranks reported.

While the process runs, its address is in a file in the home directory, for links in `describe` and the web
UI. It listens on loopback only, as the web UI does.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mpijob.backends.capabilities import SupportsWorkingDirectory
from mpijob.client.integrations.tfevents import Writer
from mpijob.errors import BackendError, NotFound, Unsupported

if TYPE_CHECKING:
    from mpijob.client.client import Client
    from mpijob.model import JobRef
    from mpijob.settings import Settings

_EVERY_SECONDS = 2.0
_START_SECONDS = 60.0
_AT = re.compile(rb"at (http://\S+)")
_OVERLAP_SECONDS = 30.0


def serve(
    client: Client,
    ref: JobRef,
    stop: threading.Event,
    ready: Callable[[str], None],
    *,
    logdir: str = "",
    port: int = 0,
) -> None:
    """Run TensorBoard for a job until `stop`, following the job; `ready` is called with the address."""
    if find_spec("tensorboard") is None:
        raise Unsupported("TensorBoard is not installed here", hint="run: pip install 'mpijob[tensorboard]'")
    with tempfile.TemporaryDirectory(prefix="mpijob-tensorboard-") as own:
        place = logdir or written_by(client, ref)
        reported = None if place else _ReportedMetrics(client, ref, own)
        if reported is not None:
            reported.write_new()
        with _process(place or own, port) as (process, address), _known(client.settings, ref, address):
            ready(address)
            while not stop.wait(_EVERY_SECONDS) and process.poll() is None:
                if reported is not None:
                    reported.write_new()


def written_by(client: Client, ref: JobRef) -> str:
    """Return the directory of a job's event files, "" if it has none or none are on this machine."""
    known = client.backend.capability(SupportsWorkingDirectory)
    found = ""
    # The files of a deleted job are deleted, too.
    with contextlib.suppress(NotFound):
        found = "" if known is None else str(known.working_directory(ref))
    for _, _, files in os.walk(found) if found else ():
        if any("tfevents" in name for name in files):
            return found
    return ""


class _ReportedMetrics:
    """Reported metrics, written as event files while the job runs."""

    def __init__(self, client: Client, ref: JobRef, directory: str) -> None:
        self._client, self._ref, self._writer = client, ref, Writer(directory)
        self._newest: dict[int, float] = {}
        self._over = False

    def write_new(self) -> None:
        """Write new values; the lines of each rank are in order."""
        if self._over:
            return
        self._over = self._client.state(self._ref).phase.final
        since = min(self._newest.values()) - _OVERLAP_SECONDS if self._newest else None
        reported = self._client.points(self._ref, since=since)
        fresh = [one for one in reported if one.time > self._newest.get(one.rank, -1.0)]
        self._writer.write(fresh)
        for one in fresh:
            self._newest[one.rank] = max(one.time, self._newest.get(one.rank, 0.0))


@contextmanager
def _process(directory: str, port: int) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    argv = [sys.executable, "-m", "tensorboard.main", "--logdir", directory, "--host", "127.0.0.1",
            "--port", str(port), "--reload_interval", "2"]  # fmt: skip
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        yield process, _address(process)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def _address(process: subprocess.Popen[bytes]) -> str:
    """Return the address of a TensorBoard process that has just started."""
    output: list[bytes] = []
    known = threading.Event()

    def listen() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            if not known.is_set():
                output.append(line)
            if _AT.search(line):
                known.set()
        known.set()

    # It keeps reading to the end: TensorBoard would block on a full stderr pipe.
    threading.Thread(target=listen, name="mpijob-tensorboard", daemon=True).start()
    known.wait(_START_SECONDS)
    if found := _AT.search(b"".join(output)):
        return found[1].decode()
    words = b"".join(output).decode(errors="replace").strip().splitlines()
    raise BackendError(f"TensorBoard did not start: {words[-1] if words else 'no output'}")


# -- where it is --------------------------------------------------------------------------------------
def address(settings: Settings, ref: JobRef) -> str:
    """Return the address of a running TensorBoard of a job, "" if there is none."""
    try:
        with open(_link(settings, ref), encoding="utf-8") as file:
            pid, _, found = file.read().partition(" ")
        # A killed process leaves its file: signal 0 tests whether it runs.
        os.kill(int(pid), 0)
    except (OSError, ValueError):
        return ""
    return found


@contextmanager
def _known(settings: Settings, ref: JobRef, found: str) -> Iterator[None]:
    path = _link(settings, ref)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {found}")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _link(settings: Settings, ref: JobRef) -> str:
    return link_file(settings, "tensorboard", ref)


def link_file(settings: Settings, tool: str, ref: JobRef) -> str:
    """Return the file with the link to a job in another tool; namespaces contain no dot, so names are unique."""
    return os.path.join(settings.home, "links", f"{tool}-{ref.namespace}.{ref.uid}")
