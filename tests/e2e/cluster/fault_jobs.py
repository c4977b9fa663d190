"""Faults of our own services and of what one job is made of: killed at a step, killed in mid-run, asked too often."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from tests.e2e.cluster import tollgate
from tests.e2e.cluster.fault_checks import Moment, all_is_well, audited, made_once, nothing_left
from tests.e2e.cluster.furniture import a_queue
from tests.e2e.cluster.governed import (
    QUIET,
    becomes,
    component,
    controller,
    doomed,
    free_lease,
    noted_phase,
    operator,
    operator_words,
    platform,
    want,
)
from tests.e2e.cluster.support import PATIENCE, TINY, Place, a_job, eventually, shows

from mpijob import Client, MPIJob, Phase
from mpijob.backends.kubernetes.backend import KubernetesBackend
from mpijob.backends.kubernetes.client import resources
from mpijob.errors import Conflict
from mpijob.model import Resources, Retry, Role

CONTROLLER_KILLS, CONTROLLER_STEPS = 3, 9
OPERATOR_KILLS, OPERATOR_STEPS = 2, 24
_KEPT = ("queues", "roles", "audit")  # what that operator makes
SUBMITS, SUBMITTERS = 100, 8


def a_tiny_job(name: str, script: str, **fields: object) -> MPIJob:
    """Return a job that hardly asks for anything."""
    return a_job(name, script, resources=TINY, launcher=Resources(cpu="50m", memory="96Mi"), **fields)


def controller_killed(moment: Moment) -> None:
    """Killed again and again, each time at another step, while a job without a client fails and is tried again."""
    place, chance = moment.place, moment.chance
    place.client.submit(a_tiny_job("alone", "exit 7", retry=Retry(limit=1, backoff_seconds=1)))
    for _ in range(CONTROLLER_KILLS):
        step, after = chance.randint(1, CONTROLLER_STEPS), chance.random() < 0.5
        with tollgate.opened(step, after=after) as (gate, config):
            with doomed(place, gate, config, "controller") as service:
                eventually(
                    lambda: service.process.poll() is not None or _has_failed(place),
                    "killed, or done",
                    PATIENCE,
                )
            moment.notes.append(gate.hit)
        free_lease(place, "mpijob-controller")
    with controller(place):
        eventually(lambda: _has_failed(place), "the last attempt's end", PATIENCE)
    state = place.client.state("alone")
    assert (state.phase, state.attempt) == (Phase.FAILED, 2)
    all_is_well(place, "alone", "alone-a2")


def _has_failed(place: Place) -> bool:
    return noted_phase(place, "alone-a2") == "Failed"


def operator_killed(moment: Moment) -> None:
    """Killed at steps of its own while it makes what the platform wants, and while it takes it away."""
    place = moment.place
    queue = {"name": place.namespace, "quota": {"cpu": "1"}, "namespaces": [place.namespace]}
    queues = (
        resources.CLUSTER_QUEUE.path("", place.namespace),
        resources.LOCAL_QUEUE.path(place.namespace, place.namespace),
    )
    with platform(place, {**QUIET, "queues": [queue]}):
        for wanted, there in (("Managed", True), ("Removed", False)):
            want(place, managementState=wanted)
            state = "Ready" if there else "Absent"
            for _ in range(OPERATOR_KILLS):
                moment.notes.append(_operator_dies(moment, state))
            with operator(place):
                for one in _KEPT:
                    becomes(place, one, state)
            assert [place.api.find(path) is not None for path in queues] == [there, there]
        inventory = (place.find(resources.CONFIG_MAP, "mpijob-inventory") or {}).get("data") or {}
        left = {name: inventory[name] for name in _KEPT if name in inventory}
        assert not left, f"the inventory is empty: {left}"


def _operator_dies(moment: Moment, state: str) -> str:
    """Run an operator until it is killed at a step, or has nothing more to do; return the step."""
    place, chance = moment.place, moment.chance
    step, after = chance.randint(1, OPERATOR_STEPS), chance.random() < 0.5
    free_lease(place, "mpijob-operator")
    with tollgate.opened(step, after=after) as (gate, config):
        with doomed(place, gate, config, *operator_words(place)) as service:
            eventually(
                lambda: service.process.poll() is not None or _stands(place, state), "killed, or done", 60
            )
        return gate.hit


def _stands(place: Place, state: str) -> bool:
    return all(component(place, one).get("state") == state for one in _KEPT)


def leader_killed(moment: Moment) -> None:
    """Of two controllers the one that leads is killed; the other goes on, and nothing is done by both."""
    place = moment.place
    with controller(place) as first, controller(place):
        eventually(lambda: "leader: watching" in first.said, "the first leads")
        place.client.submit(a_tiny_job("handed", "exit 5", retry=Retry(limit=1, backoff_seconds=1)))
        time.sleep(moment.chance.uniform(0.0, 8.0))  # the fault's own moment
        first.kill()
        eventually(lambda: noted_phase(place, "handed-a2") == "Failed", "its end is told", PATIENCE)
    all_is_well(place, "handed", "handed-a2")


def namespace_deleted(moment: Moment) -> None:
    """The namespace goes in mid-run; nothing holds it."""
    place = moment.place
    with controller(place) as service:
        place.client.submit(a_tiny_job("doomed", "sleep 600", retry=Retry(limit=3, backoff_seconds=0)))
        time.sleep(moment.chance.uniform(0.0, 8.0))  # the fault's own moment
        path = resources.NAMESPACE.path("", place.namespace)
        place.api.delete(path)
        eventually(lambda: place.api.find(path) is None, "the namespace is gone", PATIENCE)
        assert service.process.poll() is None
    made_once(place, "doomed")


def member_killed(role: Role, moment: Moment) -> None:
    """A pod goes in mid-run; the job fails, says who was lost, and is tried again."""
    place, chance = moment.place, moment.chance
    with controller(place):
        job = place.client.submit(a_tiny_job("bereft", "sleep 20", retry=Retry(limit=1, backoff_seconds=0)))
        eventually(lambda: noted_phase(place, "bereft") == "Running", "it runs", PATIENCE)
        time.sleep(chance.uniform(0.0, 2.0))  # the fault's own moment
        pod = place.launcher(job) if role is Role.LAUNCHER else place.worker(job, chance.randrange(2))
        place.api.delete(resources.POD.path(place.namespace, pod["metadata"]["name"]), grace_seconds=0)
        eventually(lambda: noted_phase(place, "bereft-a2") == "Running", "it runs again", PATIENCE)
        job.cancel(grace_period=0)
        eventually(lambda: noted_phase(place, "bereft-a2") == "Cancelled", "its end is told", PATIENCE)
    all_is_well(place, "bereft", "bereft-a2")


def submitted_often(moment: Moment) -> None:
    """A hundred identical submits from several clients at once: one is a job, the others are told so."""
    place = moment.place
    job = a_tiny_job("wanted", "sleep 600")
    clients = [Client(KubernetesBackend(place.settings), settings=place.settings) for _ in range(SUBMITTERS)]
    order = moment.chance.sample(range(SUBMITS), SUBMITS)

    def submit(number: int) -> str:
        try:
            return clients[number % SUBMITTERS].submit(job).ref.uid
        except Conflict:
            return "refused"

    try:
        with ThreadPoolExecutor(SUBMITTERS * 2) as pool:
            outcomes = [*pool.map(submit, order)]
    finally:
        for one in clients:
            one.close()
    assert outcomes.count("refused") == SUBMITS - 1, f"{SUBMITS - outcomes.count('refused')} were accepted"
    assert [one.ref.uid for one in place.client.jobs(text="wanted")] == [*({*outcomes} - {"refused"})]
    made_once(place, "wanted")
    nothing_left(place, "wanted")
    audited(place, "wanted", refused=SUBMITS - 1)


def quota_changed(moment: Moment) -> None:
    """A queue's quota shrinks below a waiting job, or grows, while it waits; it is told, and it runs when it fits."""
    place, chance = moment.place, moment.chance
    with controller(place), a_queue(place, "200m") as queue:
        first = place.running(a_tiny_job("first", "sleep 600", queue=queue))
        waiting = place.client.submit(a_tiny_job("waiting", "sleep 1", queue=queue))
        shows(waiting, lambda now: "CPU" in now.waiting_for, "waits for CPU cores")
        time.sleep(chance.uniform(0.0, 2.0))  # the fault's own moment
        if chance.random() < 0.5:
            _set_quota(place, "100m")
            shows(waiting, lambda now: now.reason == "QuotaTooSmall", "tells that it cannot fit", 60)
            moment.notes.append("shrunk, then grown")
        else:
            moment.notes.append("grown")
        assert first.state().phase is Phase.RUNNING
        _set_quota(place, "400m")
        assert waiting.wait(PATIENCE).phase is Phase.SUCCEEDED
        eventually(lambda: noted_phase(place, "waiting") == "Succeeded", "its end is told", PATIENCE)
        assert first.state().phase is Phase.RUNNING
        first.cancel(grace_period=0)
        eventually(
            lambda: noted_phase(place, "first") == "Cancelled", "the first one's end is told", PATIENCE
        )
        made_once(place, "first", "waiting")
        for name in ("first", "waiting"):
            nothing_left(place, name)
            audited(place, name)


def _set_quota(place: Place, cpu: str) -> None:
    path = resources.CLUSTER_QUEUE.path("", place.namespace)
    spec = place.api.get(path)["spec"]
    spec["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = cpu
    place.api.patch(path, {"spec": spec})
