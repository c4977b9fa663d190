"""A job's place in its queue, read from Kueue's Workload: admitted, or what it waits for."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from mpijob.formats.kubernetes.pod_template import quantity as written
from mpijob.formats.status.nested_fields import (
    amount,
    conditions,
    counted,
    holds,
    in_words,
    moment,
    number,
    part,
    parts,
    text,
    thing,
)
from mpijob.formats.status.pod_startup import shortened
from mpijob.model.platform.cluster_observation import Queueing, WaitKind
from mpijob.model.spec import quantity

Workload = Mapping[str, Any]
# Kueue's reasons are coarse (`Pending`, `Inadmissible`), so its messages are parsed (pkg/scheduler/flavorassigner).
# Missing unused quota becomes free again; a request above the maximum capacity never fits.
_WAITS = re.compile(
    r"insufficient unused quota for (?P<res>\S+) in flavor (?P<flavor>\S+), (?P<more>\S+) more needed"
)
_NEVER = re.compile(
    r"insufficient quota for (?P<res>\S+) in flavor (?P<flavor>\S+), (?:previously considered podsets requests "
    r"\((?P<before>[^)]*)\) \+ current podset request \((?P<now>[^)]*)\)|request) > maximum capacity "
    r"\((?:[^)]* > )?(?P<most>[^)]*)\)"
)
_OF_A_SET = "couldn't assign flavors to pod set "
_NO_RESOURCE = re.compile(r"resource (?P<res>\S+) unavailable in ClusterQueue")
_QUEUE = re.compile(
    r"(?P<kind>LocalQueue|ClusterQueue) (?P<name>\S+) (?P<state>doesn't exist|not found|is inactive)"
)
_PREEMPTING = re.compile(r"Pending the preemption of (?P<count>\d+) workload")
_EVICTIONS = {
    "PodsReadyTimeout": "its pods were not ready in time",
    "AdmissionCheck": "an admission check was withdrawn",
    "AdmissionChecksRejected": "an admission check refused it",
    "ClusterQueueStopped": "its queue was stopped",
    "LocalQueueStopped": "its queue was stopped",
    "NodeFailures": "a node failed",
    "FlavorMigration": "it moves to other nodes",
}


def read(
    workload: Workload | None,
    label: str,
    position: int | None,
    taker: Workload | None = None,
    reached: str = "",
) -> Queueing | None:
    """Return the job's place in its queue, None for a job without one. `position` counts from 0, as Kueue does.

    `taker` is the Workload that preempted the job, if it can be read; `reached` is the progress at that time (`epoch
    45/100`).
    """
    name = text(workload, "spec", "queueName") or label
    if workload is None:
        return Queueing(name=name, hold=WaitKind.UNHEARD) if name else None
    known = conditions(workload)
    place = None if position is None else position + 1
    since = moment(known.get("Requeued"), "lastTransitionTime") or moment(
        workload, "metadata", "creationTimestamp"
    )
    # Between eviction and the deletion of its pods both conditions are True.
    if holds(known.get("Admitted")) and not holds(known.get("Evicted")):
        at = moment(known["Admitted"], "lastTransitionTime")
        return Queueing(name=name, admitted=True, since=since, admitted_at=at)
    hold, sentence = _hold(workload, known, name)
    if hold is WaitKind.PREEMPTED:
        sentence = preemption_sentence(workload, sentence, taker, reached)
    return Queueing(name=name, hold=hold, text=sentence, position=place, since=since)


def finished(workload: Workload | None) -> Mapping[str, Any] | None:
    """Return the Finished condition, None if the job is not over for Kueue."""
    found = conditions(workload).get("Finished")
    return found if holds(found) else None


def _hold(workload: Workload, known: Mapping[str, Mapping[str, Any]], name: str) -> tuple[WaitKind, str]:
    if part(workload, "spec").get("active") is False:
        return WaitKind.DEACTIVATED, _deactivated(known)
    reserved, evicted = known.get("QuotaReserved"), known.get("Evicted")
    if holds(reserved):
        if evicted is not None and holds(evicted):
            return _evicted(evicted, "")
        return WaitKind.CHECKS, _checks(workload)
    hold, sentence = _waits(workload, text(reserved, "message"), name)
    if evicted is None or not holds(evicted) or hold in (WaitKind.MISSING, WaitKind.CLOSED):
        return hold, sentence
    return _evicted(evicted, sentence)


def _deactivated(known: Mapping[str, Mapping[str, Any]]) -> str:
    why = next((text(known[one], "message") for one in ("DeactivationTarget", "Evicted") if one in known), "")
    return f"its workload was deactivated: {shortened(why)}" if why else "its workload was deactivated"


def _checks(workload: Workload) -> str:
    waiting = [
        check for check in parts(workload, "status", "admissionChecks") if text(check, "state") != "Ready"
    ]
    names = in_words([text(one, "name") for one in waiting])
    message = next((text(one, "message") for one in waiting if text(one, "message")), "")
    return f"Quota is reserved, waiting for {names or 'admission'}" + (
        f": {shortened(message)}" if message else ""
    )


def _evicted(evicted: Mapping[str, Any], sentence: str) -> tuple[WaitKind, str]:
    reason = text(evicted, "reason")
    if reason == "Preempted":
        return WaitKind.PREEMPTED, sentence
    why = _EVICTIONS.get(reason) or shortened(text(evicted, "message")) or reason
    return WaitKind.EVICTED, f"Queued again: {why}" + (f". {sentence}" if sentence else "")


def _waits(workload: Workload, message: str, name: str) -> tuple[WaitKind, str]:
    if queue := _QUEUE.search(message):
        return _queue_wait(queue, name)
    needs = _least(message)
    if never := _never(message):
        return WaitKind.TOO_LARGE, _too_large(workload, never)
    if not _NEVER.search(message) and (lacking := _NO_RESOURCE.search(message)):
        return WaitKind.TOO_LARGE, f"Queue {name} offers no {thing(lacking['res'])}"
    if "namespace doesn't match" in message:
        return WaitKind.MISSING, f"Queue {name} does not serve this namespace"
    if needs:
        return WaitKind.WAITING, _waiting(needs, message, name)
    # "Workload no longer fits after processing another workload" and the like.
    if not message or "Workload" in message:
        return WaitKind.WAITING, f"Waiting for its turn in queue {name}"
    return WaitKind.WAITING, f"Waiting in queue {name}: {shortened(message)}"


def _never(message: str) -> re.Match[str] | None:
    # By pod set: one that fits in no flavor is final, whatever another one waits for.
    sets = ((_NEVER.search(one), _WAITS.search(one)) for one in message.split(_OF_A_SET))
    return next((never for never, waits in sets if never and not waits), None)


def _queue_wait(queue: re.Match[str], name: str) -> tuple[WaitKind, str]:
    what = f"queue {queue['name']}" if queue["kind"] == "LocalQueue" else f"cluster queue {queue['name']}"
    behind = "" if queue["kind"] == "LocalQueue" else f" behind queue {name}"
    if queue["state"] == "is inactive":
        return WaitKind.CLOSED, f"The {what}{behind} is inactive and admits nothing"
    return WaitKind.MISSING, f"The {what}{behind} does not exist"


def _least(message: str) -> dict[str, str]:
    # Flavors are alternatives: the one that lacks least is reported.
    flavors: dict[str, dict[str, str]] = {}
    for match in _WAITS.finditer(message):
        flavors.setdefault(match["flavor"], {})[match["res"]] = match["more"]
    return min(flavors.values(), key=lambda one: sum(_value(more) for more in one.values()), default={})


def missing(message: str) -> dict[str, float]:
    """Return the missing quota by resource, from Kueue's message."""
    return {resource: _value(more) for resource, more in _least(message).items() if _value(more) < _value("")}


def _value(more: str) -> float:
    try:
        return quantity.parse(more)
    except ValueError:
        return float("inf")


def _waiting(needs: Mapping[str, str], message: str, name: str) -> str:
    sentence = f"Waiting for {in_words([counted(res, more) for res, more in needs.items()])} in queue {name}"
    if preempting := _PREEMPTING.search(message):
        count = int(preempting["count"])
        sentence += f"; {count} running job{'' if count == 1 else 's'} will be preempted for it"
    return sentence


def _too_large(workload: Workload, never: re.Match[str]) -> str:
    resource = never["res"]
    wanted = max(
        sum(_requests(workload, resource)), _value(never["before"] or "0") + _value(never["now"] or "0")
    )
    asked = amount(resource, written(float(wanted))) if wanted != float("inf") else "more"
    return f"Insufficient {thing(resource)}: requested {asked}, available {amount(resource, never['most'])}"


def _requests(workload: Workload, resource: str) -> Iterator[float]:
    # Kueue's message covers the pod sets up to the one that did not fit; users ask what the whole job needs.
    for pod_set in parts(workload, "spec", "podSets"):
        asked = (
            text(container, "resources", "requests", resource)
            for container in parts(pod_set, "template", "spec", "containers")
        )
        yield (number(pod_set, "count") or 0) * sum(
            value for each in asked if (value := _value(each or "0")) < 1e30
        )


_PREEMPTOR = re.compile(r"\(UID: (?P<uid>[^,)]*)(?:, JobUID: (?P<job>[^,)]*))?")
_OWNER = re.compile(r"^(?:trainjob|mpijob|jobset|job)-(?P<name>.+)-[0-9a-f]{5}$")


def preempted(workload: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the condition of a job that is preempted now, None otherwise."""
    known = conditions(workload)
    evicted, found = known.get("Evicted"), known.get("Preempted")
    if not holds(evicted) or text(evicted, "reason") != "Preempted":
        return None
    return found if found is not None and holds(found) else evicted


def taker(workload: Mapping[str, Any] | None) -> str:
    """Return the uid of the job object that preempted the job, "" if unknown."""
    found = _PREEMPTOR.search(text(preempted(workload), "message"))
    return (found["job"] or "") if found else ""


def preemption_sentence(
    workload: Mapping[str, Any], waits: str, other: Mapping[str, Any] | None, reached: str = ""
) -> str:
    """Return a sentence: `Pre-empted at 14:02 UTC by team-b/big (priority high); will resume when …`.

    With known progress: `Pre-empted at epoch 45/100 (14:02 UTC) by …`.
    """
    found = preempted(workload)
    when = moment(found, "lastTransitionTime")
    clock = f"{time.strftime('%H:%M', time.gmtime(when))} UTC" if when else ""
    at = f"{reached} ({clock})" if reached and clock else reached or clock
    cause = text(found, "message").partition(" due to ")[2].partition(";")[0]
    why = f" ({cause})" if cause else ""
    return f"Pre-empted{f' at {at}' if at else ''} by {_preemptor(other)}{why}; {_until(waits)}"


def _preemptor(other: Mapping[str, Any] | None) -> str:
    if other is None:
        return "another job"
    namespace, name = text(other, "metadata", "namespace"), text(other, "metadata", "name")
    owners = parts(other, "metadata", "ownerReferences")
    job = (text(owners[0], "name") if owners else "") or (
        found["name"] if (found := _OWNER.match(name)) else name
    )
    priority = text(other, "spec", "priorityClassRef", "name") or number(other, "spec", "priority")
    return f"{namespace}/{job}" + (f" (priority {priority})" if priority else "")


def _until(waits: str) -> str:
    what, _, queue = waits.removeprefix("Waiting for ").partition(" in queue ")
    if not queue or what == waits:
        return "resumes when capacity is free"
    if what == "its turn":
        return f"will resume when it is its turn in queue {queue}"
    one = what.startswith("1 ") and " and " not in what
    return f"will resume when {what} {'is' if one else 'are'} free in queue {queue}"
