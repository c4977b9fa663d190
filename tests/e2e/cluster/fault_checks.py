"""What is promised whatever happens: nothing orphaned, nothing doubled, no state gone backwards, the audit whole."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from random import Random
from typing import Any, NamedTuple

from testbed import control_plane
from tests.e2e.cluster.governed import transitions
from tests.e2e.cluster.support import PATIENCE, Place, eventually

from mpijob.backends.kubernetes.client import resources
from mpijob.model.status.audit import AuditQuery

ORDER = ["Queued", "Pending", "Initializing", "Running", "Succeeded", "Failed", "Cancelled"]
_OBJECTS = (
    resources.TRAINJOB,
    resources.TRAINING_RUNTIME,
    resources.MPIJOB,
    resources.JOBSET,
    resources.JOB,
    resources.POD,
    resources.CONFIG_MAP,
    resources.SECRET,
    resources.NETWORK_POLICY,
    resources.WORKLOAD,
)


class Moment(NamedTuple):
    """One repeat of a fault: its own namespace, its own chance, what all repeats share, and what is told of it."""

    place: Place
    chance: Random
    seconds: float  # how long an outage lasts
    shared: Any
    stack: ExitStack  # what must be undone at its end
    notes: list[str]


def in_order(place: Place, name: str) -> None:
    """Every transition was told once, and none goes back."""
    phases = transitions(place, name)
    assert len(phases) == len(set(phases)), f"told twice: {phases}"
    late = [one for one in phases if one != "Queued"]
    assert late == sorted(late, key=ORDER.index), f"told backwards: {phases}"


def nothing_left(place: Place, name: str) -> None:
    """Delete a job; all of it goes."""
    place.client.delete(name, grace_period=0)
    try:
        eventually(lambda: not left(place, name), "nothing is left", PATIENCE)
    except AssertionError as error:
        raise AssertionError(f"{error}: {left(place, name)}") from None


def left(place: Place, name: str) -> list[str]:
    """Return everything in the namespace that bears a job's name."""
    found = (one for kind in _OBJECTS for one in place.api.list(kind.path(place.namespace)).items)
    names = (str(one["metadata"]["name"]) for one in found)
    return [one for one in names if one.startswith((name, f"trainjob-{name}"))]


def made_once(place: Place, *names: str) -> None:
    """The API server's own audit: each of these jobs was created, and none of them twice, and no other."""
    made = Counter(
        one["objectRef"]["name"]
        for one in server_audit(place)
        if one["verb"] == "create"
        and one["objectRef"]["resource"] in ("trainjobs", "mpijobs")
        and one["responseStatus"]["code"] == 201
    )
    assert made == dict.fromkeys(names, 1), f"created: {dict(made)}"


def audited(place: Place, name: str, *, refused: int = 0) -> None:
    """Our own audit is whole: it tells the job's beginning and its deletion, every refusal, and nobody changed it."""
    told = place.client.audit(AuditQuery(jobs=(name,)))
    done = [one.verb for one in told if one.response_status is None or one.response_status.code < 400]
    assert (done[0], done[-1], done.count("create")) == ("create", "delete", 1), f"audited: {done}"
    assert len([one for one in told if one.verb == "create"]) == 1 + refused, f"{len(told)} acts are told"
    assert place.client.verify_audit().sound


def server_audit(place: Place) -> list[dict[str, Any]]:
    """Return what the API server's audit tells of a place."""
    with control_plane.audit_log().open() as file:
        lines = [json.loads(line) for line in file if f'"{place.namespace}"' in line]
    return [one for one in lines if (one.get("objectRef") or {}).get("namespace") == place.namespace]


def all_is_well(place: Place, name: str, *attempts: str) -> None:
    """Look at everything that is promised of a job that has ended; `attempts` are those beside the first."""
    for one in (name, *attempts):
        in_order(place, one)
    made_once(place, name, *attempts)
    nothing_left(place, name)
    audited(place, name)
