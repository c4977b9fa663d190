"""The processes of a job as an outsider sees them in /proc: no help from the engine whose work is judged."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """One process that carries a job's mark."""

    pid: int
    parent: int
    argv: tuple[str, ...]
    environ: dict[str, str]

    @property
    def worker(self) -> str:
        return self.environ.get("MPIJOB_WORKER", "")


def of_job(home: Path, uid: str) -> dict[int, Process]:
    """Return every process below the launcher and the workers of a job."""
    found = (_look(int(entry)) for entry in os.listdir("/proc") if entry.isdigit())
    mark = f"{home}/jobs/{uid}/"
    return {p.pid: p for p in found if p and p.environ.get("MPIJOB_ATTEMPT_DIR", "").startswith(mark)}


def launcher(home: Path, uid: str) -> int:
    """Return the pid of mpirun or mpiexec."""
    seen = of_job(home, uid)
    return next(p.pid for p in seen.values() if not p.worker and p.parent not in seen)


def worker(home: Path, uid: str, index: int) -> int:
    """Return the pid of the process that plays one worker."""
    above = supervisor(home, uid)
    found = sorted(
        int(one) for one in os.listdir("/proc") if one.isdigit() and _plays_worker(int(one), above)
    )
    return found[index]


def daemon(home: Path, uid: str, index: int) -> int:
    """Return the pid of MPI's own helper in a worker that is a node (the shell that started it may have become it)."""
    shell = _shell(home, uid, index)
    below = [p.pid for p in of_job(home, uid).values() if p.parent == shell.pid]
    return below[0] if below and Path(shell.argv[0]).name == "sh" else shell.pid


def rank(home: Path, uid: str, number: int) -> int | None:
    """Return the pid of one rank's program, once it is there."""
    seen = of_job(home, uid)
    ours = [p for p in seen.values() if p.environ.get("MPIJOB_RANK") == str(number)]
    pids = {p.pid for p in ours}
    return next((p.pid for p in ours if p.parent not in pids), None)


def supervisor(home: Path, uid: str) -> int:
    """Return the pid of the process that looks after a job: the parent of its launcher."""
    return of_job(home, uid)[launcher(home, uid)].parent


def runner(home: Path, uid: str) -> int:
    """Return the pid of the process that claimed the job: the parent of its supervisor."""
    return parent(supervisor(home, uid))


def shared_memory(home: Path, uid: str) -> set[str]:
    """Return the files in /dev/shm that processes of a job have mapped, by their names there."""
    maps = (Path(f"/proc/{pid}/maps").read_text() for pid in of_job(home, uid))
    return {name for text in maps for name in re.findall(r" /dev/shm/(\S+)$", text, re.MULTILINE)}


def parent(pid: int) -> int:
    """Return the parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _plays_worker(pid: int, above: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text() == "mpijob-worker\n" and parent(pid) == above
    except OSError:
        return False


def _shell(home: Path, uid: str, index: int) -> Process:
    seen = of_job(home, uid)
    return next(p for p in seen.values() if p.worker == str(index) and p.parent not in seen)


def _look(pid: int) -> Process | None:
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        above = parent(pid)
    except OSError:
        return None
    environ = dict(item.decode(errors="replace").partition("=")[::2] for item in raw if item)
    return Process(pid, above, tuple(word.decode(errors="replace") for word in argv[:-1]), environ)
