"""Proof in the processes that every rank's own MPI is the one that started it.

Counting wrappers proves nothing about MPI: a program of another MPI, or one that has lost the variables of its
launcher, becomes a world of its own and succeeds. So the processes below each rank are looked at until one of them
has loaded an MPI library: which one it is (`/proc/PID/maps`), and whether that process knows its launcher
(`/proc/PID/environ`). Then until it has mapped the memory that it shares with the other ranks: its MPI has come up.
A program that never loads MPI is looked at for a minute, ever less often.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mpijob.backends.local.worker import process_tree
from mpijob.model import Family, Plan
from mpijob.model.spec.command import is_launcher

_LIBRARY = re.compile(rb"(/[^\n]*/lib(?:mpi|mpich|mpi_abi)\.so[.\d]*)$", re.M)
_OPEN_MPI = re.compile(rb"/libopen-pal\.so|/libmpi\.so\.[24]0")
_CONTACT = {
    Family.OPENMPI: re.compile(rb"(?:^|\0)(?:PMIX_RANK|OMPI_COMM_WORLD_RANK)="),
    Family.MPICH: re.compile(rb"(?:^|\0)(?:PMI_RANK|PMI_FD|PMI_ID|PMIX_RANK)="),
}
_SHARED = re.compile(rb" /dev/shm/(?!mpijob/)")
_FIRST_SECONDS, _SLOWEST_SECONDS, _WHOLE_SECONDS = 0.01, 2.0, 60.0
_LEAST_SECONDS = 1.0  # of looking, before a program is said to be without MPI
_RANKS_PER_LOOK = 4  # more ranks are looked at less often: a look costs some 0.1 ms a rank
_DEEPEST = 6


class _Loaded(NamedTuple):
    library: str
    family: Family
    contact: bool
    up: bool


class WorldProof:
    """Looks at the ranks of one attempt until each has shown its MPI."""

    def __init__(self, plan: Plan) -> None:
        self._family = Family.OPENMPI if plan.family is Family.OPENMPI else Family.MPICH
        self._launcher = plan.mpi
        self._world = plan.world
        self._open: dict[int, int] = {}
        self._up: set[int] = set()
        self._loaded = False
        self._pause = _FIRST_SECONDS * max(1.0, plan.world / _RANKS_PER_LOOK)
        self._since = self._next = 0.0

    def watch(self, ranks: dict[int, int], now: float) -> None:
        """Begin to look at these ranks (rank → pid of its wrapper); `now` is a monotonic time."""
        self._open = dict(ranks)
        self._up.clear()
        self._since, self._next = now, now + self._pause

    def pause(self, now: float) -> float | None:
        """Return how long until the next look; None when there will be none."""
        return max(0.0, self._next - now) if self._open else None

    def look(self, now: float) -> str:
        """Look where it is time to; return the sentence that says what is wrong, "" while nothing is."""
        if not self._open or now < self._next:
            return ""
        if now - self._since > _WHOLE_SECONDS:
            self._open.clear()
            return ""
        for rank, pid in list(self._open.items()):
            if wrong := self._look_at(rank, pid):
                self._open.clear()
                return wrong
        self._pause = min(self._pause * 1.25, _SLOWEST_SECONDS)
        self._next = now + self._pause
        return ""

    @property
    def up(self) -> bool:
        """Whether MPI was seen to have come up in every rank."""
        return len(self._up) == self._world

    def without_mpi(self, now: float) -> bool:
        """Whether the ranks were looked at for a while, and none had loaded an MPI library."""
        return self._since > 0 and not self._loaded and now - self._since >= _LEAST_SECONDS

    def _look_at(self, rank: int, pid: int) -> str:
        below = _below(pid)
        if below is None:
            del self._open[rank]
            return ""
        for process in below:
            if loaded := _loaded(process, self._family):
                self._loaded = True
                if wrong := self._judged(rank, loaded):
                    return wrong
                if loaded.up or self._world == 1:
                    self._up.add(rank)
                    del self._open[rank]
                return ""
        if self._world > 1 and any(is_launcher(_name(process)) for process in below):
            return (
                f"rank {rank} starts an mpirun of its own: each of the {self._world} ranks would start a world of its "
                "own; the command is to start it once, or to do without it"
            )
        return ""

    def _judged(self, rank: int, loaded: _Loaded) -> str:
        if loaded.family is not self._family:
            wants = "openmpi" if loaded.family is Family.OPENMPI else "mpich"
            return (
                f"rank {rank} has loaded {loaded.library}, and {self._launcher} started it: it would be a world of "
                f"one; set mpi: {wants}"
            )
        if not loaded.contact:
            return (
                f"rank {rank} has loaded {loaded.library} without the variables of its launcher (env -i, or a clean "
                "login shell): it would be a world of one; hand the environment on"
            )
        return ""


def _below(pid: int) -> list[int] | None:
    """Return the processes below a rank's wrapper; None when it is gone."""
    if process_tree.look(pid) is None:
        return None
    found: list[int] = []
    level = [pid]
    for _ in range(_DEEPEST):
        level = [child for parent in level for child in process_tree.children(parent)]
        if not level:
            break
        found += level
    return found


def _loaded(pid: int, family: Family) -> _Loaded | None:
    maps = _read(pid, "maps") or b""
    match = _LIBRARY.search(maps)
    if match is None:
        return None
    own = Family.OPENMPI if _OPEN_MPI.search(maps) else Family.MPICH
    contact = has_contact(_read(pid, "environ"), family)
    return _Loaded(match[1].decode(errors="replace"), own, contact, _SHARED.search(maps) is not None)


def has_contact(environ: bytes | None, family: Family) -> bool:
    """Whether a process has the variables of its launcher; it is given credit where that cannot be read.

    Programs that change their title write over their variables, and leave something that is no list of them.
    """
    if environ is None:
        return True
    variables = environ.removesuffix(b"\0").split(b"\0") if environ else []
    if not all(b"=" in one for one in variables):
        return True
    return bool(_CONTACT[family].search(environ))


def _name(pid: int) -> str:
    return (_read(pid, "comm") or b"").decode(errors="replace").strip()


def _read(pid: int, what: str) -> bytes | None:
    """Return what the kernel shows of a process; None of one that is gone, or another user's."""
    try:
        with open(f"/proc/{pid}/{what}", "rb") as file:
            return file.read()
    except OSError:
        return None
