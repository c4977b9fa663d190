"""Proof that the MPI library of every rank belongs to the launcher that started the rank (docs/decisions/0052).

A program of another MPI, one that lost its launcher's variables, or one below a second launcher becomes a world of one
rank and succeeds; the census counts wrappers and cannot see that. So the processes below each wrapper are checked until
one has loaded an MPI library (`/proc/PID/maps`, or a static executable): its family, and its variables
(`/proc/PID/environ`) against the wrapper's. Then until it has mapped memory shared with other ranks: MPI is ready.
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
# All three families map shared memory there in MPI_Init; the job's own pipes are in /dev/shm/mpijob.
_SHARED = re.compile(rb" /dev/shm/(?!mpijob/)")
# Checks become rarer, with many ranks down to the third of these, and end after the last. A program that starts later
# is noticed by inotify.
_MIN_INTERVAL_SECONDS, _MAX_INTERVAL_SECONDS, _MAX_CROWDED_SECONDS, _CHECK_FOR_SECONDS = 0.01, 0.25, 2.0, 60.0
# A token bucket for checks after an opened file: a program without MPI may open files all the time.
_MAX_BURST, _PER_SECOND = 50.0, 2.0
# From the opening of a library until it is mapped.
_AFTER_OPEN_SECONDS = 0.001
# Of checks without result, before the job is said to have no MPI.
_MIN_CHECKED_SECONDS = 1.0
# A check takes about 0.1 ms for each rank, so more ranks are checked less often.
_RANKS_PER_CHECK = 4
_MAX_DEPTH = 6


class _LoadedMpi(NamedTuple):
    library: str
    family: Family
    is_ready: bool


class WorldProof:
    """Checks the ranks of one attempt, or of one step of its script, until each has a proved MPI."""

    def __init__(self, plan: Plan, world: int = 0) -> None:
        self._family = Family.OPENMPI if plan.family is Family.OPENMPI else Family.MPICH
        self._launcher = plan.mpi
        self._world = world or plan.world
        self._watches_orphans = not plan.own_launcher
        self._unproved: dict[int, int] = {}
        self._ready: set[int] = set()
        self._loaded = False
        crowd = max(1.0, self._world / _RANKS_PER_CHECK)
        self._first = self._pause = _MIN_INTERVAL_SECONDS * crowd
        self._slowest = min(_MAX_INTERVAL_SECONDS * crowd, _MAX_CROWDED_SECONDS)
        self._credit, self._credited, self._again = _MAX_BURST, 0.0, False
        self._since = self._next = self._last = 0.0
        self._own_children: frozenset[int] = frozenset()
        self._embedded: dict[tuple[int, int], Family | None] = {}

    def watch(self, ranks: dict[int, int], now: float, environ: Mapping[str, str], work: str) -> int:
        """Start checks of these ranks (pids of wrappers by rank); `now` is a monotonic time.

        Return a descriptor, -1 for none: when it is readable, call `file_opened`. It watches the MPI libraries of
        `environ` and of the system, and the working directory, where a static program may be.
        """
        self._unproved = dict(ranks)
        self._ready.clear()
        self._own_children = frozenset(process_tree.children(os.getpid()))
        self._since, self._next = now, now + self._pause
        return syscalls.watch_opens([*_libraries(environ), work])

    def file_opened(self, fd: int, now: float) -> bool:
        """Plan two checks soon; return False if the descriptor is not needed any more."""
        os.read(fd, 1 << 16)
        self._credit = min(_MAX_BURST, self._credit + (now - self._credited) * _PER_SECOND)
        self._credited = now
        if self._credit >= 1.0:
            self._credit -= 1.0
            soonest = max(now + _AFTER_OPEN_SECONDS, self._last + self._first)
            self._next, self._again = min(self._next or soonest, soonest), True
        return bool(self._unproved)

    def close(self) -> None:
        """End the checks."""
        self._unproved.clear()

    def pause(self, now: float) -> float | None:
        """Return the seconds until the next check, None if none is planned."""
        return max(0.0, self._next - now) if self._unproved and self._next else None

    def check(self, now: float) -> str:
        """Check if it is time; return a sentence about what is wrong, "" for nothing."""
        if not self._unproved or not self._next or now < self._next:
            return ""
        self._last = now
        wrong = next(filter(None, (self._check_rank(*rank) for rank in list(self._unproved.items()))), "")
        if wrong := wrong or self._check_orphans():
            self._unproved.clear()
            return wrong
        self._pause = min(self._pause * 1.25, self._slowest)
        # A second time after an opened file: the first check may have come before the library was mapped.
        if self._again:
            self._again, self._next = False, now + self._first
        else:
            self._next = now + self._pause if now - self._since <= _CHECK_FOR_SECONDS else 0.0
        return ""

    @property
    def mpi_ready(self) -> bool:
        """Whether every rank has completed MPI_Init, as far as its shared memory shows."""
        return len(self._ready) == self._world

    def without_mpi(self, now: float) -> bool:
        """Return whether ranks were checked for a while, and none had loaded an MPI library."""
        return self._since > 0 and not self._loaded and now - self._since >= _MIN_CHECKED_SECONDS

    def _check_rank(self, rank: int, pid: int) -> str:
        below = _descendants(pid)
        if below is None:
            del self._unproved[rank]
            return ""
        if self._world > 1 and any(_is_launcher(process) for process in below):
            return wrong_world.nested(f"rank {rank}", self._world)
        identity = _read(pid, "environ")
        for process in below:
            if loaded := self._find_loaded_mpi(process):
                self._loaded = True
                if wrong := self._compare(f"rank {rank}", loaded, identity, process):
                    return wrong
                # A single rank shares memory with nobody.
                if loaded.is_ready or self._world == 1:
                    self._ready.add(rank)
                    del self._unproved[rank]
                return ""
        return ""

    def _check_orphans(self) -> str:
        """Check processes that outlived the process of a rank that started them."""
        # This process is a subreaper: the kernel has made them its children.
        if not self._watches_orphans or not self._unproved:
            return ""
        wrapper = next(iter(self._unproved.values()))
        for orphan in set(process_tree.children(os.getpid())) - self._own_children:
            for process in (orphan, *(_descendants(orphan) or ())):
                if loaded := self._find_loaded_mpi(process):
                    name = "a process that a rank has left behind"
                    identity = _read(wrapper, "environ")
                    if wrong := self._compare(name, loaded, identity, process, any_rank=True):
                        return wrong
        return ""

    def _compare(
        self, name: str, loaded: _LoadedMpi, identity: bytes | None, process: int, *, any_rank: bool = False
    ) -> str:
        if loaded.family is not self._family:
            needed = "openmpi" if loaded.family is Family.OPENMPI else "mpich"
            return wrong_world.other_mpi(name, loaded.library, self._launcher, needed)
        lost, changed = differences(identity, _read(process, "environ"))
        # A process that is ending has neither memory nor variables any more.
        if lost and not _read(process, "maps"):
            return ""
        if lost:
            return wrong_world.cut_off(name, loaded.library, lost)
        # Which rank left an orphan behind is not known, so its variables may be those of another.
        if changed and not any_rank:
            return wrong_world.started_again(name, loaded.library, changed)
        return ""

    def _find_loaded_mpi(self, pid: int) -> _LoadedMpi | None:
        maps = _read(pid, "maps") or b""
        is_ready = _SHARED.search(maps) is not None
        if match := _LIBRARY.search(maps):
            loaded = Family.OPENMPI if _OPEN_MPI.search(maps) else Family.MPICH
            return _LoadedMpi(match[1].decode(errors="replace"), loaded, is_ready)
        if family := self._find_static_mpi(pid):
            return _LoadedMpi(f"the MPI inside {_target(pid)}", family, is_ready)
        return None

    def _find_static_mpi(self, pid: int) -> Family | None:
        """Return the MPI family that a process's executable contains, None if it contains none."""
        # Cached: the whole file is searched.
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
    """Return the processes below a rank's wrapper, None if the wrapper is gone."""
    # By `children`, a file for each process: the whole process table takes much longer.
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
    """Return which of the launcher's variables in `identity` a process lacks, and which have another value."""
    given, actual = _variables(identity), _variables(environ)
    if given is None or actual is None:
        return (), ()
    expected = {name: value for name, value in given.items() if _IDENTITY.fullmatch(name)}
    lost = tuple(sorted(name.decode() for name in expected if name not in actual))
    return lost, tuple(
        sorted(name.decode() for name in expected if actual.get(name, expected[name]) != expected[name])
    )


def _variables(environ: bytes | None) -> dict[bytes, bytes] | None:
    if environ is None:
        return None
    entries = environ.removesuffix(b"\0").split(b"\0") if environ else []
    pairs = [entry.partition(b"=") for entry in entries]
    # Programs that set their title (setproctitle) overwrite the memory that /proc/PID/environ shows.
    return {name: value for name, _, value in pairs} if all(equals for _, equals, _ in pairs) else None


def _libraries(environ: Mapping[str, str]) -> list[str]:
    """Return paths of MPI libraries that programs of a job are likely to load."""
    directories = [
        *environ.get("LD_LIBRARY_PATH", "").split(os.pathsep),
        os.path.dirname(environ.get("MPI4PY_LIBMPI", "")),
    ]
    directories += ["/usr/lib64", "/usr/lib/*-linux-gnu", "/usr/lib64/*/lib", "/usr/local/lib", "/opt/*/lib"]
    paths = [path for directory in directories if directory for path in glob.glob(f"{directory}/libmpi*.so*")]
    return sorted({os.path.realpath(path) for path in paths})


def _is_launcher(pid: int) -> bool:
    # By the executable too: a link to a launcher may have any name.
    names = {_name(pid), os.path.basename(_target(pid))}
    return any(is_launcher(name) or name in _HELPERS for name in names)


def _target(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def _name(pid: int) -> str:
    return (_read(pid, "comm") or b"").decode(errors="replace").strip()


def _read(pid: int, file_name: str) -> bytes | None:
    """Return a file of /proc/PID, None if the process is gone or another user's."""
    try:
        with open(f"/proc/{pid}/{file_name}", "rb") as file:
            return file.read()
    except OSError:
        return None
