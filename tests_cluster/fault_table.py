"""`make faults`: faults made on purpose, seeded, again and again, and a table of how often all came out right.

Each fault is a function that makes it at moments which its seed chooses, in a namespace of its own, and then
holds what is left against what was promised: nothing orphaned, nothing doubled, no state gone backwards. A
failure prints the seed, with which it can be made again: `--only NAME --seed N`.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from testbed import places
from tests_cluster.faults import left_of, silent_api_server
from tests_cluster.governed import (
    QUIET,
    becomes,
    controller,
    free_lease,
    install_resources,
    noted_phase,
    operator,
    platform,
    transitions,
    want,
)
from tests_cluster.support import PATIENCE, TINY, Place, a_job, eventually, own_place

from mpijob import Phase
from mpijob.backends.kubernetes import kinds
from mpijob.model import Retry, Role

ORDER = ["Queued", "Pending", "Initializing", "Running", "Succeeded", "Failed", "Cancelled"]
SILENT_SECONDS = 60.0
SHORT_SECONDS = 6.0  # an engine keeps its lease


class Fault(NamedTuple):
    """One fault: its name, what is promised, and how it is made."""

    name: str
    promise: str
    make: Callable[[Place, Random, float], None]
    alone: bool = False  # it concerns the whole cluster


class Tally(NamedTuple):
    """How often a fault was made, and what went wrong."""

    fault: Fault
    runs: int
    wrong: list[str]
    seconds: float


def in_order(place: Place, name: str) -> None:
    """Every transition was told once, and none goes back."""
    phases = transitions(place, name)
    assert len(phases) == len(set(phases)), f"told twice: {phases}"
    late = [one for one in phases if one != "Queued"]
    assert late == sorted(late, key=ORDER.index), f"told backwards: {phases}"


def nothing_left(place: Place, name: str) -> None:
    place.client.delete(name, grace_period=0)
    eventually(lambda: not left_of(place, name), "nothing is left", PATIENCE)


def controller_killed(place: Place, chance: Random, _: float) -> None:
    """Killed again and again while a job without a client fails and is tried again."""
    place.client.submit(a_job("alone", "exit 7", resources=TINY, retry=Retry(limit=1, backoff_seconds=1)))
    for _ in range(3):
        with controller(place):
            time.sleep(chance.uniform(0.0, 5.0))  # the fault's own moment
        free_lease(place, "mpijob-controller")
    with controller(place):
        eventually(lambda: noted_phase(place, "alone-a2") == "Failed", "the last attempt's end", PATIENCE)
    state = place.client.state("alone")
    assert (state.phase, state.attempt) == (Phase.FAILED, 2)
    assert place.find(kinds.TRAINJOB, "alone-a3") is None
    in_order(place, "alone")
    in_order(place, "alone-a2")
    nothing_left(place, "alone")


def leader_killed(place: Place, chance: Random, _: float) -> None:
    """Of two controllers the one that leads is killed; the other goes on."""
    with controller(place) as first, controller(place) as second:
        eventually(lambda: "leading" in first.said, "the first leads")
        place.client.submit(a_job("handed", "sleep 3", resources=TINY))
        time.sleep(chance.uniform(0.0, 8.0))  # the fault's own moment
        first.kill()
        eventually(lambda: noted_phase(place, "handed") == "Succeeded", "its end is told", PATIENCE)
        assert "leading" in second.said or noted_phase(place, "handed") == "Succeeded"
    in_order(place, "handed")
    nothing_left(place, "handed")


def namespace_deleted(place: Place, chance: Random, _: float) -> None:
    """The namespace goes in mid-run; nothing holds it."""
    with controller(place) as service:
        place.client.submit(
            a_job("doomed", "sleep 600", resources=TINY, retry=Retry(limit=3, backoff_seconds=0))
        )
        time.sleep(chance.uniform(0.0, 8.0))  # the fault's own moment
        path = kinds.NAMESPACE.path("", place.namespace)
        place.api.delete(path)
        eventually(lambda: place.api.find(path) is None, "the namespace is gone", PATIENCE)
        assert service.process.poll() is None


def member_killed(role: Role, place: Place, chance: Random, _: float) -> None:
    """A pod goes in mid-run; the job fails, says who was lost, and is tried again."""
    with controller(place):
        job = place.client.submit(
            a_job("bereft", "sleep 20", resources=TINY, retry=Retry(limit=1, backoff_seconds=0))
        )
        eventually(lambda: noted_phase(place, "bereft") == "Running", "it runs", PATIENCE)
        pod = place.launcher(job) if role is Role.LAUNCHER else place.worker(job, chance.randrange(2))
        path = kinds.POD.path(place.namespace, pod["metadata"]["name"])
        place.api.delete(path, grace_seconds=0)
        eventually(lambda: noted_phase(place, "bereft-a2") == "Running", "it runs again", PATIENCE)
        job.cancel(grace_period=0)
        eventually(lambda: noted_phase(place, "bereft-a2") == "Cancelled", "its end is told", PATIENCE)
    in_order(place, "bereft")
    in_order(place, "bereft-a2")
    nothing_left(place, "bereft")


def api_server_silent(place: Place, chance: Random, seconds: float) -> None:
    """The API server answers nobody for a while; the controller goes on when it is back."""
    with controller(place) as service:
        job = place.client.submit(a_job("patient", "sleep 600", resources=TINY))
        time.sleep(chance.uniform(0.0, 6.0))  # the fault's own moment
        with silent_api_server():
            time.sleep(seconds)  # that long
        eventually(lambda: noted_phase(place, "patient") == "Running", "it is told that it runs", PATIENCE)
        job.cancel(grace_period=0)
        eventually(lambda: noted_phase(place, "patient") == "Cancelled", "its end is told", PATIENCE)
        assert service.process.poll() is None
    in_order(place, "patient")
    nothing_left(place, "patient")


def operator_killed(place: Place, chance: Random, _: float) -> None:
    """Killed again and again while it makes queues, and while it takes them away."""
    queue = {"name": place.namespace, "quota": {"cpu": "1"}, "namespaces": [place.namespace]}
    queues = (
        kinds.CLUSTER_QUEUE.path("", place.namespace),
        kinds.LOCAL_QUEUE.path(place.namespace, place.namespace),
    )
    with platform(place, {**QUIET, "queues": [queue]}):
        for state, there in (("Managed", True), ("Removed", False)):
            want(place, managementState=state)
            for _ in range(2):
                with operator(place):
                    time.sleep(chance.uniform(0.5, 3.0))  # the fault's own moment
            with operator(place):
                becomes(place, "queues", "Ready" if there else "Absent")
            assert [place.api.find(path) is not None for path in queues] == [there, there]


FAULTS = (
    Fault("controller killed", "the same end, told once", controller_killed),
    Fault("operator killed", "the same end", operator_killed, alone=True),
    Fault("leader of two killed", "the other goes on", leader_killed),
    Fault("worker killed", "named, and tried again", partial(member_killed, Role.WORKER)),
    Fault("launcher killed", "named, and tried again", partial(member_killed, Role.LAUNCHER)),
    Fault("namespace deleted", "nothing left, nothing hangs", namespace_deleted),
    Fault("API server silent", "resumes when it is back", api_server_silent, alone=True),
)


def tally(kubeconfig: Path, fault: Fault, seeds: Iterable[int], silent_seconds: float) -> Tally:
    """Make a fault once for each seed, two side by side where they do not meet."""
    begun, numbers = time.monotonic(), [*seeds]
    with ThreadPoolExecutor(1 if fault.alone else 2) as pool:
        found = [*pool.map(lambda seed: _wrong(kubeconfig, fault, seed, silent_seconds), numbers)]
    wrong = [one for one in found if one]
    return Tally(fault, len(numbers), wrong, time.monotonic() - begun)


def _wrong(kubeconfig: Path, fault: Fault, seed: int, silent_seconds: float) -> str:
    """Return what went wrong with one seed, "" for nothing."""
    try:
        with own_place(kubeconfig, "fault") as place:
            fault.make(place, Random(seed), silent_seconds)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{fault.name}, seed {seed}: {error} ({Path(where.filename).name}:{where.lineno})"
    return ""


def main() -> int:
    """Make the faults and print the table; return 1 when anything went wrong."""
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--only", default="", help="faults whose name holds this")
    asked = parser.parse_args()
    kubeconfig = places.kubeconfig()
    with own_place(kubeconfig, "resources") as place:
        install_resources(place)
    print(f"{'fault':24} {'promise':32} {'right':>7} {'of':>4} {'seconds':>8}")
    wrong: list[str] = []
    for fault in FAULTS:
        if asked.only not in fault.name:
            continue
        seeds = range(asked.seed, asked.seed + asked.repeats)
        done = tally(kubeconfig, fault, seeds, SILENT_SECONDS)
        right = done.runs - len(done.wrong)
        print(f"{fault.name:24} {fault.promise:32} {right:7} {done.runs:4} {done.seconds:8.0f}", flush=True)
        wrong += done.wrong
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
