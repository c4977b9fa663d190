"""Proof in the processes that every rank's own MPI is the one that started it.

Counting wrappers proves nothing about MPI: a program of another MPI, one that has lost the variables of its launcher,
or one below a second launcher becomes a world of its own and succeeds. So the processes below each rank are looked at
until one of them has an MPI library: which one it is (`/proc/PID/maps`, or the executable of a static program), and
whether that process has from the launcher what the rank's wrapper got (`/proc/PID/environ`). Then until it has mapped
the memory that it shares with the other ranks: its MPI has come up. The looks become rarer, and end after a minute;
a program that is started later is seen by the opening of a known MPI library, or of its file in the working directory
(inotify).
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from mpijob.backends.local.worker import process_tree, syscalls
from mpijob.backends.mpi import linked_mpi
from mpijob.formats.launch import wrong_world
from mpijob.model import Family, Plan
from mpijob.model.spec.command import is_launcher

_LIBRARY = re.compile(rb"(/[^\n]*/lib(?:mpi|mpich|mpi_abi)\.so[.\d]*)$", re.M)
_OPEN_MPI = re.compile(rb"/libopen-pal\.so|/libmpi\.so\.[24]0")
_IDENTITY = re.compile(rb"(?:PMI_(?:FD|RANK|SIZE|ID|PORT)|PMIX_(?:NAMESPACE|RANK|SERVER_URI\d*))")
_HELPERS = frozenset({"hydra_pmi_proxy", "hydra_bstrap_proxy", "mpiexec.gforker", "orted", "prted", "prte"})
_SHARED = re.compile(rb" /dev/shm/(?!mpijob/)")
_MIN_INTERVAL_SECONDS, _MAX_INTERVAL_SECONDS, _MAX_CROWDED_SECONDS, _CHECK_FOR_SECONDS = 0.01, 0.25, 2.0, 60.0
_MAX_BURST, _PER_SECOND = 50.0, 2.0  # openings that bring a look: a program may open files all the time
_AFTER_OPEN_SECONDS = 0.001  # from the opening of a library until it is mapped
_MIN_CHECKED_SECONDS = 1.0  # of looking, before a program is said to be without MPI
_RANKS_PER_CHECK = 4  # more ranks are looked at less often: a look costs some 0.1 ms a rank
_MAX_DEPTH = 6


class _LoadedMpi(NamedTuple):
    library: str
    family: Family
    up: bool


class WorldProof:
    """Looks at the ranks of one attempt, or of one step of its script, until each has shown its MPI."""

    def __init__(self, plan: Plan, world: int = 0) -> None:
        self._family = Family.OPENMPI if plan.family is Family.OPENMPI else Family.MPICH
        self._launcher = plan.mpi
        self._world = world or plan.world
        self._watches_orphans = not plan.own_launcher
        self._open: dict[int, int] = {}
        self._up: set[int] = set()
        self._loaded = False
        crowd = max(1.0, self._world / _RANKS_PER_CHECK)
        self._first = self._pause = _MIN_INTERVAL_SECONDS * crowd
        self._slowest = min(_MAX_INTERVAL_SECONDS * crowd, _MAX_CROWDED_SECONDS)
        self._credit, self._credited, self._again = _MAX_BURST, 0.0, False
        self._since = self._next = self._last = 0.0
        self._ours: frozenset[int] = frozenset()
        self._embedded: dict[tuple[int, int], Family | None] = {}

    def watch(self, ranks: dict[int, int], now: float, environ: Mapping[str, str], work: str) -> int:
        """Begin to look at these ranks (rank → pid of its wrapper); `now` is a monotonic time.

        Return a descriptor that can be read when an MPI library is opened (`opened`) that `environ` leads to, one of
        the system's, or a file in the working directory, where a static program may be; -1 where there is none.
        """
        self._open = dict(ranks)
        self._up.clear()
        self._ours = frozenset(process_tree.children(os.getpid()))
        self._since, self._next = now, now + self._pause
        return syscalls.watch_opens([*_libraries(environ), work])

    def file_opened(self, fd: int, now: float) -> bool:
        """Take note that a file was opened: two looks come at once; return whether any will come."""
        os.read(fd, 1 << 16)
        self._credit = min(_MAX_BURST, self._credit + (now - self._credited) * _PER_SECOND)
        self._credited = now
        if self._credit >= 1.0:
            self._credit -= 1.0
            soonest = max(now + _AFTER_OPEN_SECONDS, self._last + self._first)
            self._next, self._again = min(self._next or soonest, soonest), True
        return bool(self._open)

    def close(self) -> None:
        """Look no more: the step is over."""
        self._open.clear()

    def pause(self, now: float) -> float | None:
        """Return how long until the next look; None when there will be none."""
        return max(0.0, self._next - now) if self._open and self._next else None

    def check(self, now: float) -> str:
        """Look where it is time to; return the sentence that says what is wrong, "" while nothing is."""
        if not self._open or not self._next or now < self._next:
            return ""
        self._last = now
        wrong = next(filter(None, (self._check_rank(*one) for one in list(self._open.items()))), "")
        if wrong := wrong or self._check_orphans():
            self._open.clear()
            return wrong
        self._pause = min(self._pause * 1.25, self._slowest)
        if self._again:  # once more, should what was opened not have been there yet
            self._again, self._next = False, now + self._first
        else:
            self._next = now + self._pause if now - self._since <= _CHECK_FOR_SECONDS else 0.0
        return ""

    @property
    def mpi_ready(self) -> bool:
        """Whether MPI was seen to have come up in every rank."""
        return len(self._up) == self._world

    def without_mpi(self, now: float) -> bool:
        """Whether the ranks were looked at for a while, and none had loaded an MPI library."""
        return self._since > 0 and not self._loaded and now - self._since >= _MIN_CHECKED_SECONDS

    def _check_rank(self, rank: int, pid: int) -> str:
        below = _descendants(pid)
        if below is None:
            del self._open[rank]
            return ""
        if self._world > 1 and any(_is_launcher(process) for process in below):
            return wrong_world.nested(f"rank {rank}", self._world)
        identity = _read(pid, "environ")
        for process in below:
            if loaded := self._find_loaded_mpi(process):
                self._loaded = True
                if wrong := self._compare(f"rank {rank}", loaded, identity, process):
                    return wrong
                if loaded.up or self._world == 1:
                    self._up.add(rank)
                    del self._open[rank]
                return ""
        return ""

    def _check_orphans(self) -> str:
        """Look at what has outlived the process of a rank that started it: the kernel made it our child."""
        if not self._watches_orphans or not self._open:
            return ""
        wrapper = next(iter(self._open.values()))
        for orphan in set(process_tree.children(os.getpid())) - self._ours:
            for process in (orphan, *(_descendants(orphan) or ())):
                if loaded := self._find_loaded_mpi(process):
                    who = "a process that a rank has left behind"
                    if wrong := self._compare(who, loaded, _read(wrapper, "environ"), process, any_rank=True):
                        return wrong
        return ""

    def _compare(
        self, who: str, loaded: _LoadedMpi, identity: bytes | None, process: int, *, any_rank: bool = False
    ) -> str:
        if loaded.family is not self._family:
            wants = "openmpi" if loaded.family is Family.OPENMPI else "mpich"
            return wrong_world.other_mpi(who, loaded.library, self._launcher, wants)
        lost, changed = differences(identity, _read(process, "environ"))
        if lost and not _read(process, "maps"):
            return ""  # it is ending, and has no variables any more
        if lost:
            return wrong_world.cut_off(who, loaded.library, lost)
        if changed and not any_rank:
            return wrong_world.started_again(who, loaded.library, changed)
        return ""

    def _find_loaded_mpi(self, pid: int) -> _LoadedMpi | None:
        maps = _read(pid, "maps") or b""
        up = _SHARED.search(maps) is not None
        if match := _LIBRARY.search(maps):
            own = Family.OPENMPI if _OPEN_MPI.search(maps) else Family.MPICH
            return _LoadedMpi(match[1].decode(errors="replace"), own, up)
        if family := self._find_static_mpi(pid):
            return _LoadedMpi(f"the MPI inside {_target(pid)}", family, up)
        return None

    def _find_static_mpi(self, pid: int) -> Family | None:
        """Return the MPI that is part of a process's executable; each file is searched once."""
        path = f"/proc/{pid}/exe"
        try:
            status = os.stat(path)
        except OSError:
            return None
        key = (status.st_dev, status.st_ino)
        if key not in self._embedded:
            found = None if _is_launcher(pid) else linked_mpi.find_static(path)
            self._embedded[key] = found.families[0] if found else None
        return self._embedded[key]


def _descendants(pid: int) -> list[int] | None:
    """Return the processes below a rank's wrapper; None when it is gone."""
    if process_tree.read_process(pid) is None:
        return None
    found: list[int] = []
    level = [pid]
    for _ in range(_MAX_DEPTH):
        level = [child for parent in level for child in process_tree.children(parent)]
        if not level:
            break
        found += level
    return found


def differences(identity: bytes | None, environ: bytes | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which of the launcher's variables in `identity` a process has lost, and which it has otherwise.

    None of both where that cannot be told: programs that change their title write over their variables, and leave
    something that is no list of them.
    """
    given, has = _variables(identity), _variables(environ)
    if given is None or has is None:
        return (), ()
    wanted = {name: value for name, value in given.items() if _IDENTITY.fullmatch(name)}
    lost = tuple(sorted(name.decode() for name in wanted if name not in has))
    return lost, tuple(
        sorted(name.decode() for name in wanted if has.get(name, wanted[name]) != wanted[name])
    )


def _variables(environ: bytes | None) -> dict[bytes, bytes] | None:
    if environ is None:
        return None
    entries = environ.removesuffix(b"\0").split(b"\0") if environ else []
    pairs = [entry.partition(b"=") for entry in entries]
    return {name: value for name, _, value in pairs} if all(equals for _, equals, _ in pairs) else None


def _libraries(environ: Mapping[str, str]) -> list[str]:
    """Return the MPI libraries that programs of a job are likely to load."""
    directories = [
        *environ.get("LD_LIBRARY_PATH", "").split(os.pathsep),
        os.path.dirname(environ.get("MPI4PY_LIBMPI", "")),
    ]
    directories += ["/usr/lib64", "/usr/lib/*-linux-gnu", "/usr/lib64/*/lib", "/usr/local/lib", "/opt/*/lib"]
    found = [path for one in directories if one for path in glob.glob(f"{one}/libmpi*.so*")]
    return sorted({os.path.realpath(path) for path in found})


def _is_launcher(pid: int) -> bool:
    """Whether a process is a launcher of ranks, by its name or by its executable's."""
    names = {_name(pid), os.path.basename(_target(pid))}
    return any(is_launcher(name) or name in _HELPERS for name in names)


def _target(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def _name(pid: int) -> str:
    return (_read(pid, "comm") or b"").decode(errors="replace").strip()


def _read(pid: int, what: str) -> bytes | None:
    """Return what the kernel shows of a process; None of one that is gone, or another user's."""
    try:
        with open(f"/proc/{pid}/{what}", "rb") as file:
            return file.read()
    except OSError:
        return None
