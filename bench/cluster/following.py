"""A line's way from a rank in a pod to the screen, against `kubectl logs -f` of the pod that it comes out of.

Both follow the same launcher at the same time, and every line says when it was written: what differs between the
two is ours. Whoever is started first is the other one in every round.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence

from bench.cluster.places import Place, place, until
from bench.line import Line, Unmeasured, at_most, compared
from bench.places import Options
from bench.timing import median
from mpijob import Job, Phase, Resources
from mpijob.backends.kubernetes.client import resources

RANKS_PER_WORKER, WORKERS = 4, 2
SECONDS = 15
SAYS = f"for i in $(seq {SECONDS * 4}); do date +%s%N; sleep 0.25; done"
_STAMP = re.compile(rb"\b(\d{19})\b")
_number = itertools.count()


class Follower:
    """A command that shows lines; notes for each how late it was."""

    def __init__(self, argv: Sequence[str], there: Place) -> None:
        self.late: dict[int, float] = {}
        self._child = subprocess.Popen(
            argv, env=there.environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for raw in self._child.stdout:
            now = time.time_ns()
            if (said := _STAMP.search(raw)) is not None:
                self.late[int(said[1])] = (now - int(said[1])) / 1e6

    def ended(self) -> dict[int, float]:
        """Return what was seen, once the command has ended by itself."""
        self._child.wait(60)
        self._thread.join(10)
        return self.late


def measure(options: Options) -> Iterator[Line]:
    """Yield how late lines are shown, at the median and at worst, for us and for kubectl."""
    ours, theirs = list[float](), list[float]()
    with place("following") as there:
        for round in range(options.rounds(3)):
            mine, other = _once(there, first=bool(round % 2))
            ours += mine
            theirs += other
    for what, at in (("median", 0.5), ("p99", 0.99)):
        yield compared(
            f"logs: line in a pod → shown, {what}, against kubectl logs -f", "ms", _at(ours, at), _at(theirs, at),
            at_most(1.2), note=f"{len(ours)} lines of {RANKS_PER_WORKER * WORKERS} ranks, both at once",
        )  # fmt: skip


def _at(values: Sequence[float], share: float) -> float:
    return median(values) if share == 0.5 else sorted(values)[int(len(values) * share)]


def _once(there: Place, *, first: bool) -> tuple[list[float], list[float]]:
    """Return the lateness of the lines that both have shown live."""
    name = f"says-{next(_number)}"
    room = Resources(cpu="50m", memory="96Mi")
    job = there.small_job(name, WORKERS, "sh", "-c", SAYS, slots=RANKS_PER_WORKER, resources=room)
    handle = there.client.submit(job)
    handle.wait(120, {Phase.RUNNING})
    until(lambda: _launcher(there, handle), "the launcher")
    us = ("mpijob", "logs", "-f", name, "--no-prefix")
    them = (there.kubectl, "logs", "-f", "-n", there.namespace, _launcher(there, handle))
    followers = {argv: Follower(argv, there) for argv in ((us, them) if first else (them, us))}
    begun = time.time_ns() + 2_000_000_000  # what was said before both listened is no live line
    mine, other = followers[us].ended(), followers[them].ended()
    there.remove(name)
    there.cleared()
    both = [said for said in mine.keys() & other.keys() if said > begun]
    if len(both) < SECONDS * RANKS_PER_WORKER:
        raise Unmeasured(f"only {len(both)} live lines were shown by both")
    return [mine[said] for said in both], [other[said] for said in both]


def _launcher(there: Place, handle: Job) -> str:
    pods = there.api.list(
        resources.POD.path(there.namespace), labels=f"mpijob.dev/job={handle.ref.name}"
    ).items
    names = [str(pod["metadata"]["name"]) for pod in pods if "-launcher-" in pod["metadata"]["name"]]
    return names[0] if names else ""
