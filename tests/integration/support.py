"""Small jobs, patient conditions and a look at the process table. Only broken engines wait as long as allowed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from mpijob import Client, Job, JobState, MPIJob, Phase
from mpijob.backends.local import LocalBackend
from mpijob.model import Resources
from mpijob.settings import Settings

FAMILIES = ("mpich", "openmpi", "intel")
PATIENCE = 180.0  # seconds: only what is broken takes that long
T = TypeVar("T")


@contextmanager
def emptied_client(settings: Settings) -> Iterator[Client]:
    """Yield a client of the local engine, and remove every job of it in the end."""
    with Client(LocalBackend(settings), settings=settings) as client:
        yield client
        for state in [*client.jobs(all_namespaces=True)]:
            client.delete(state.ref, grace_period=0)


def a_job(name: str = "job", script: str = "true", **fields: Any) -> MPIJob:
    fields.setdefault("workers", 2)
    fields.setdefault("grace_seconds", 1.0)
    fields.setdefault("resources", Resources(cpu="500m", memory="128Mi"))
    fields.setdefault("command", ("sh", "-c", script))
    return MPIJob(name=name, **fields)


def running(client: Client, job: MPIJob) -> Job:
    """Return the job once it runs."""
    handle = client.submit(job)
    handle.wait(PATIENCE, {Phase.RUNNING})
    return handle


def ended(client: Client, job: MPIJob) -> JobState:
    """Return the state in which a job ends, however it does."""
    return client.submit(job).wait(PATIENCE)


def succeeded(client: Client, job: MPIJob) -> Job:
    """Return the job once it has succeeded; anything else is an error with the findings."""
    handle = client.submit(job)
    handle.wait_for_completion(PATIENCE)
    return handle


def said(job: Job, **wanted: Any) -> dict[int, list[str]]:
    """Return what each rank said."""
    lines: dict[int, list[str]] = {}
    for line in job.logs(**wanted):
        if line.rank is not None:
            lines.setdefault(line.rank, []).append(line.text.decode())
    return lines


def eventually(look: Callable[[], T], what: str, seconds: float = PATIENCE) -> T:
    """Return what a look gives once it gives something; fail with the sentence when it never does."""
    deadline = time.monotonic() + seconds
    while True:
        if found := look():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds:g} s it is still not so: {what}")
        time.sleep(0.02)


def private_dirs(client: Client, job: Job, attempt: int = 1) -> list[str]:
    """Return the directories outside the home that an attempt was given: for its agent, and for its ranks' files."""
    record = Path(client.settings.home, "jobs", job.ref.uid, f"a{attempt}", "private-dirs.json")
    return [one["path"] for one in json.loads(record.read_text()).values()]


# -- the process table --------------------------------------------------------------------------------
def processes_of(place: Path) -> dict[int, str]:
    """Return every process that belongs to a home or a job in it: by its mark, its directory or its files."""
    found: dict[int, str] = {}
    for pid in _pids():
        if pid != os.getpid() and _belongs(pid, str(place)):
            found[pid] = _command(pid)
    return found


def check_nothing_runs(place: Path, seconds: float = 10.0) -> None:
    """Fail when something of a home, or of a job in it, still runs."""
    deadline = time.monotonic() + seconds
    while (left := processes_of(place)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert left == {}


def _pids() -> Iterator[int]:
    return (int(entry) for entry in os.listdir("/proc") if entry.isdigit())


def _belongs(pid: int, place: str) -> bool:
    try:
        if _state(pid) in "ZX":
            return False
        if f"={place}/".encode() in Path(f"/proc/{pid}/environ").read_bytes():
            return True
        held = [f"/proc/{pid}/cwd", *(f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd"))]
        return any(_target(path).startswith(place) for path in held)
    except OSError:
        return False  # gone meanwhile


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "(gone)"
