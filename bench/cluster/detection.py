"""A worker is killed: how long after the kubelet's own word does a client that waits say Failed, with the cause.

The kubelet's word is the arrival of the pod's status at a watch of that pod, which runs beside the client in
this process: both hear over the same network, at the same time.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from bench.cluster.places import Place, place, until
from bench.line import Line, at_least, at_most, compared
from bench.places import Options
from bench.timing import median
from mpijob import Job, JobState, Phase, Resources
from mpijob.backends.kubernetes.client import resources

VICTIM = 1
LIMIT_SECONDS = 1.0
KILL = ("sh", "-c", "kill -9 -1; kill -TERM 1")
WORK = ("sh", "-c", "echo begun; sleep 600")
_number = itertools.count()


class Seen(NamedTuple):
    """What followed from one kill: seconds until the kubelet said so, and until the client did."""

    kubelet: float
    client: float
    state: JobState


def measure(options: Options) -> Iterator[Line]:
    """Yield the median and the worst, and how often the cause was right."""
    with place("detection") as there:
        seen = [_once(there) for _ in range(options.rounds(9))]
    later = [one.client - one.kubelet for one in seen]
    note = f"{len(seen)} kills; kubelet {median([one.kubelet for one in seen]):.2f} s after the kill"
    title = "worker killed to Failed, after the kubelet's word"
    for what, seconds in (("median", median(later)), ("worst", max(later))):
        yield Line(
            f"{title}, {what}", "s", seconds, LIMIT_SECONDS, seconds / LIMIT_SECONDS, at_most(1), note=note
        )
    wrong = [one.state for one in seen if not _right(one.state)]
    note = f"once: {wrong[0].reason}: {wrong[0].message}" if wrong else seen[0].state.message
    yield compared(f"{title}, cause", "right", len(seen) - len(wrong), len(seen), at_least(1), note=note)


def _right(state: JobState) -> bool:
    return state.phase is Phase.FAILED and f"worker {VICTIM}" in state.message.lower()


def _once(there: Place) -> Seen:
    room = Resources(cpu="50m", memory="96Mi")
    handle = there.client.submit(there.small_job(f"kill-{next(_number)}", 2, *WORK, resources=room))
    handle.wait(120, {Phase.RUNNING})
    until(lambda: len([line for line in handle.logs() if line.text == b"begun"]) == 2, "both ranks")
    victim, told = _victim(there, handle), list[float]()
    watching = threading.Thread(target=_kubelet, args=(there, victim, told), daemon=True)
    watching.start()
    threading.Thread(target=_kill, args=(there, handle), daemon=True).start()
    killed = time.monotonic()
    state = handle.wait(60, {Phase.FAILED})
    client = time.monotonic() - killed
    watching.join(60)
    there.remove(handle.ref.name)
    there.cleared()
    return Seen(told[0] - killed if told else client, client, state)


def _kill(there: Place, handle: Job) -> None:
    there.client.twin().execute(handle.ref, KILL, worker=VICTIM)


def _victim(there: Place, handle: Job) -> str:
    mine = f"mpijob.dev/job={handle.ref.name}"
    pods = there.api.list(resources.POD.path(there.namespace), labels=mine).items
    return next(
        str(pod["metadata"]["name"])
        for pod in pods
        if pod["metadata"]["name"].startswith(f"{handle.ref.name}-node-0-{VICTIM}-")
    )


def _kubelet(there: Place, pod: str, told: list[float]) -> None:
    """Note when the pod's status says that its container has ended."""
    path = resources.POD.path(there.namespace)
    with there.api.lines(path, watch="true", fieldSelector=f"metadata.name={pod}") as changes:
        for change in changes:
            found = msgspec.json.decode(change)["object"]
            states = [one["state"] for one in found["status"].get("containerStatuses") or ()]
            if any("terminated" in one for one in states) or "deletionTimestamp" in found["metadata"]:
                told.append(time.monotonic())
                return
