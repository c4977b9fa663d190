"""Detection: a worker, a rank, a daemon, the launcher is killed; how long until the job is Failed with its cause.

The kill comes from here, with SIGKILL to the real process; the end is the `finished` time of the
state, which is written together with the cause.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench import processes
from bench.line import Line, Unmeasured, at_least, at_most, compared
from bench.places import PROGRAMS, Options, Place, installed, place, small_job
from bench.timing import median, p95
from mpijob import Client, Job, Phase, Resources
from mpijob.backends.local.queue.store import Store
from mpijob.backends.local.storage.paths import Home

TOGETHER = str(PROGRAMS / "together.py")
VICTIM = 1  # the number of the worker, and of its rank
CAUSES = {  # the state's reason, and whom its message must name
    "worker": (("WorkerLost",), f"worker {VICTIM}"),
    "rank": (("RankFailed",), f"rank {VICTIM}"),
    "daemon": (("WorkerFailed", "WorkerLost"), f"worker {VICTIM}"),
    "launcher": (("LauncherFailed",), "launcher"),
}
_number = itertools.count()


class Seen(NamedTuple):
    """What followed from one kill."""

    seconds: float
    reason: str
    message: str


def measure(options: Options) -> Iterator[Line]:
    """Yield median and worst for each victim and family."""
    with place() as there:
        families = dict.fromkeys(family for _, family, _ in installed(there))
        settings = msgspec.structs.replace(there.client.settings, local_nodes=True)
        nodes = replace(there, client=Client(settings=settings))  # only nodes have daemons of their own
        for family, victim in itertools.product(families, CAUSES):
            where = nodes if victim == "daemon" else there
            seen = [_once(where, family, victim) for _ in range(5 if options.quick else options.kills)]
            yield from _lines(family, victim, seen)


def _lines(family: str, victim: str, seen: list[Seen]) -> Iterator[Line]:
    seconds = [one.seconds for one in seen]
    note = f"{len(seen)} kills, p95 {p95(seconds):.2f} s"
    title = f"{victim} killed to Failed: {family}"
    middle, worst = median(seconds), max(seconds)
    yield Line(f"{title}, median", "s", middle, 1.0, middle, at_most(1), note=note)
    yield Line(f"{title}, worst", "s", worst, 5.0, worst / 5.0, at_most(1))
    wrong = [one for one in seen if not _right(victim, one)]
    note = f"once: {wrong[0].reason}: {wrong[0].message}" if wrong else ""
    yield compared(f"{title}, cause", "right", len(seen) - len(wrong), len(seen), at_least(1), note=note)


def _right(victim: str, seen: Seen) -> bool:
    reasons, named = CAUSES[victim]
    return seen.reason in reasons and named in seen.message.lower()


def _once(there: Place, family: str, victim: str) -> Seen:
    handle = _running(there, family)
    pid = _find(there, handle, victim)
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    state = handle.wait(60, {Phase.FAILED})
    if state.finished is None:
        raise Unmeasured(f"{state.ref.name} is {state.phase.value} without an end")
    return Seen(state.finished - killed, state.reason, state.message)


def _running(there: Place, family: str) -> Job:
    program = (sys.executable, TOGETHER)
    room = Resources(cpu="500m", memory="512Mi")
    name = f"{family}-{next(_number)}"
    handle = there.client.submit(small_job(name, 2, *program, mpi=family, resources=room))
    handle.wait(60, {Phase.RUNNING})
    ready = (line for line in handle.logs(follow=True) if line.text == b"ready")
    if len(list(itertools.islice(ready, 2))) < 2:
        raise Unmeasured(f"{name} ended before it was ready: {handle.state().message}")
    return handle


def _find(there: Place, handle: Job, victim: str) -> int:
    top = supervisor(there, handle)
    parents = processes.parents()
    children = [pid for pid, parent in sorted(parents.items()) if parent == top]
    workers = [pid for pid in children if processes.RUNNER in processes.command_line(pid)]
    if victim == "worker":
        return workers[VICTIM]
    if victim == "launcher":
        return next(pid for pid in children if pid not in workers)
    if victim == "daemon":
        return _daemon(workers[VICTIM], parents)
    return _rank(top, parents)


def supervisor(there: Place, handle: Job) -> int:
    """Return the process that watches over a job."""
    store = Store(Home(there.client.settings.home))
    noted = store.rows("uid=?", handle.ref.uid)[0].supervisor
    store.close()
    return int(noted.partition(":")[0])


def _daemon(worker: int, parents: dict[int, int]) -> int:
    """Return the MPI daemon of a worker that is a node (not a shell around it)."""
    for pid in processes.below(worker, parents):
        words = processes.command_line(pid).split()
        if words and os.path.basename(words[0]) not in processes.SHELLS and TOGETHER not in words:
            return pid
    raise Unmeasured(f"no daemon found below process {worker}")


def _rank(supervisor: int, parents: dict[int, int]) -> int:
    """Return the program of the victim's rank, wherever its launcher has started it."""
    mark = f"MPIJOB_RANK={VICTIM}".encode()
    for pid in processes.below(supervisor, parents):
        words = processes.command_line(pid).split()
        program = TOGETHER in words and os.path.basename(words[0]) not in processes.SHELLS
        if program and mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            return pid
    raise Unmeasured(f"no rank {VICTIM} found below process {supervisor}")
