"""Faults that meet everybody at once: an API server that is silent, etcd and Kueue that restart, a node that is lost.

Several repeats share one outage; how old each one's job is when it begins is its own chance.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from testbed import places, processes
from testbed.kubectl import kubectl
from tests.e2e.cluster.fault_checks import Moment, all_is_well, audited, made_once, nothing_left
from tests.e2e.cluster.fault_jobs import a_tiny_job
from tests.e2e.cluster.faults import engines_back, restart_etcd, silent_api_server
from tests.e2e.cluster.furniture import a_queue
from tests.e2e.cluster.governed import Service, controller, noted_phase, told
from tests.e2e.cluster.support import PATIENCE, eventually, shows

from mpijob import Phase

HEARD_SECONDS = 23.0  # a controller calls nobody lost before it has heard the API server for as long
LOST_SECONDS = 25.0


class Outage(NamedTuple):
    """What every repeat does before, what happens then to all of them, and what each must show afterwards."""

    before: Callable[[Moment], None]
    during: Callable[[Sequence[Moment]], AbstractContextManager[None]]
    after: Callable[[Moment], None]


# -- nobody answers ----------------------------------------------------------------------------------
def _tended(moment: Moment) -> None:
    service = moment.stack.enter_context(controller(moment.place))
    moment.shared.append(service)
    time.sleep(moment.chance.uniform(0.0, 6.0))  # how old its job is when it happens
    moment.place.client.submit(a_tiny_job("patient", "sleep 600"))


@contextmanager
def _silence(moments: Sequence[Moment]) -> Iterator[None]:
    with silent_api_server():
        time.sleep(moments[0].seconds)  # that long
    yield


@contextmanager
def _etcd(_: Sequence[Moment]) -> Iterator[None]:
    restart_etcd()
    yield


def _goes_on(moment: Moment) -> None:
    """The controller is the same process, and tells the job's life as if nothing had been."""
    place, (service,) = moment.place, moment.shared
    assert isinstance(service, Service)
    try:
        eventually(lambda: noted_phase(place, "patient") == "Running", "it is told that it runs", PATIENCE)
    except AssertionError as error:
        state = place.client.state("patient")
        now = f"{noted_phase(place, 'patient')} is told, {state.phase} ({state.message}) it is"
        raise AssertionError(f"{error}; {now}; the controller: {service.said[-2000:]}") from error
    assert service.process.poll() is None, service.said
    place.client.cancel("patient", grace_period=0)
    eventually(lambda: noted_phase(place, "patient") == "Cancelled", "its end is told", PATIENCE)
    all_is_well(place, "patient")


# -- a node ------------------------------------------------------------------------------------------
def _heard(moment: Moment) -> None:
    begun = time.monotonic()
    _tended(moment)
    eventually(lambda: noted_phase(moment.place, "patient") == "Running", "it is told that it runs", PATIENCE)
    time.sleep(max(0.0, HEARD_SECONDS - (time.monotonic() - begun)))


@contextmanager
def _node_lost(moments: Sequence[Moment]) -> Iterator[None]:
    kubelet, stopped = processes.process_id("kubelet"), time.monotonic()
    os.kill(kubelet, signal.SIGSTOP)
    try:
        for moment in moments:
            rest = LOST_SECONDS + 10 - (time.monotonic() - stopped)
            eventually(lambda moment=moment: _is_lost(moment), "its node is told as lost", max(1.0, rest))  # type: ignore[misc]  # bound per turn
            moment.notes.append(f"told within {5 * (1 + int(time.monotonic() - stopped) // 5)} s")
    finally:
        os.kill(kubelet, signal.SIGCONT)
        kubectl("wait", "--for=condition=Ready", f"node/{places.NODE}", "--timeout=90s")
    yield


def _is_lost(moment: Moment) -> bool:
    return any(one["reason"] == "NodeLost" for one in told(moment.place, "patient"))


def _comes_back(moment: Moment) -> None:
    quiet = "does not answer"
    eventually(lambda: quiet not in moment.place.client.state("patient").message, "it is back", 60)
    _goes_on(moment)


# -- Kueue -------------------------------------------------------------------------------------------
def _queued(moment: Moment) -> None:
    place = moment.place
    moment.stack.enter_context(controller(place))
    queue = moment.stack.enter_context(a_queue(place, "200m"))
    place.running(a_tiny_job("first", "sleep 600", queue=queue))
    time.sleep(moment.chance.uniform(0.0, 4.0))  # how long the other one waits when it happens
    place.client.submit(a_tiny_job("waiting", "true", queue=queue))


@contextmanager
def _kueue(_: Sequence[Moment]) -> Iterator[None]:
    words = ("--selector=control-plane=controller-manager", "--force", "--grace-period=0")
    kubectl("--namespace=kueue-system", "delete", "pods", *words)
    engines_back()
    yield


def _has_its_turn(moment: Moment) -> None:
    """What ran runs on, what waited waits on, and has its turn when there is room."""
    place = moment.place
    assert place.client.state("first").phase is Phase.RUNNING
    waiting = place.client.get("waiting")
    shows(waiting, lambda now: now.phase is Phase.QUEUED, "still waits")
    place.client.cancel("first", grace_period=0)
    assert waiting.wait(PATIENCE).phase is Phase.SUCCEEDED
    ends = {"first": "Cancelled", "waiting": "Succeeded"}
    eventually(
        lambda: {name: noted_phase(place, name) for name in ends} == ends, "both ends are told", PATIENCE
    )
    made_once(place, "first", "waiting")
    for name in ("first", "waiting"):
        nothing_left(place, name)
        audited(place, name)


API_SERVER = Outage(_tended, _silence, _goes_on)
ETCD = Outage(_tended, _etcd, _goes_on)
NODE = Outage(_heard, _node_lost, _comes_back)
KUEUE = Outage(_queued, _kueue, _has_its_turn)
