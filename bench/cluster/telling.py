"""A worker dies: how long after the kubelet's own word does the controller tell it on the job, though nobody waits.

Both words are heard by watches of this process, over the same connection: the pod's status, and the controller's
Event with the cause.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.e2e.cluster.governed import controller, install_resources, noted_phase
from tests.e2e.cluster.support import Place, a_job, eventually, own_place

from bench.line import Line, Unmeasured, at_most
from bench.places import Options
from bench.timing import median
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import ApiError, Document
from mpijob.backends.kubernetes.client.watch import watch
from mpijob.formats.kubernetes.metadata.controller_notes import is_own
from mpijob.model import Resources

LIMIT_SECONDS = 1.0
ROUNDS = 9


def measure(options: Options) -> Iterator[Line]:
    """Yield the median and the worst."""
    with own_place(bed(), "bench-telling") as place:
        install_resources(place)
        with controller(place):
            late = [_once(place, f"told-{number}") for number in range(options.rounds(ROUNDS))]
    note = f"{len(late)} kills; {', '.join(f'{one:.2f}' for one in sorted(late))} s"
    for what, seconds in (("median", median(late)), ("worst", max(late))):
        name = f"worker dead to the controller's word, after the kubelet's, {what}"
        bound = at_most(LIMIT_SECONDS)
        yield Line(name, "s", seconds, LIMIT_SECONDS, seconds, bound, bound, note)


def bed() -> Path:
    """Return the administrator's kubeconfig of the test bed; raise Unmeasured where it is down."""
    from testbed import cluster, places

    if not cluster.is_up():
        raise Unmeasured("the test bed is down: make cluster")
    return places.kubeconfig()


def _once(place: Place, name: str) -> float:
    room = Resources(cpu="50m", memory="96Mi")
    job = place.running(a_job(name, "sleep 600", resources=room, launcher=room))
    eventually(lambda: noted_phase(place, name) == "Running", "it is told that it runs", 120)
    heard: dict[str, float] = {}
    pods, events = resources.POD.path(place.namespace), resources.EVENT.path(place.namespace)
    _listen(place, pods, lambda one: _is_dead(one, name), heard)
    _listen(place, events, lambda one: _tells(one, name), heard)
    pod = place.worker(job, 1)["metadata"]["name"]
    words = ["kubectl", f"--kubeconfig={place.kubeconfig}", f"--namespace={place.namespace}", "exec", pod]
    subprocess.run([*words, "--", "sh", "-c", "kill -TERM 1"], capture_output=True, timeout=60, check=False)
    eventually(lambda: len(heard) == 2, "both have told it", 120)
    place.client.delete(name, grace_period=0)
    return max(0.0, heard[events] - heard[pods])


def _listen(place: Place, path: str, sign: Callable[[Document], object], heard: dict[str, float]) -> None:
    """Note when a watch first tells of an object with a sign; in a thread of its own."""

    def listen() -> None:
        try:
            for change in watch(place.api, path):
                if change.kind not in ("RESET", "BOOKMARK") and sign(change.object):
                    heard[path] = time.monotonic()
                    return
        except ApiError:
            return

    threading.Thread(target=listen, daemon=True).start()


def _is_dead(pod: Document, name: str) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    mine = str(pod["metadata"]["name"]).startswith(f"{name}-")
    return mine and any("terminated" in one["state"] for one in statuses)


def _tells(event: Document, name: str) -> bool:
    return bool(is_own(event) and event["reason"] == "Failed" and event["involvedObject"]["name"] == name)
