"""Who took a job's place, read from Kueue's words: when, for whom, why, and when the job runs again.

Kueue names the other job by its uid only. Its Workload, where the reader may see it, has the rest.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from mpijob.formats.status.nested_fields import conditions, holds, moment, number, parts, text

_WHOM = re.compile(r"\(UID: (?P<uid>[^,)]*)(?:, JobUID: (?P<job>[^,)]*))?")
_OWNER = re.compile(r"^(?:trainjob|mpijob|jobset|job)-(?P<name>.+)-[0-9a-f]{5}$")


def preempted(workload: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the condition by which a job has just made way for another; None for any other job."""
    known = conditions(workload)
    evicted, found = known.get("Evicted"), known.get("Preempted")
    if not holds(evicted) or text(evicted, "reason") != "Preempted":
        return None
    return found if found is not None and holds(found) else evicted


def taker(workload: Mapping[str, Any] | None) -> str:
    """Return the uid of the job object for which a job had to make way, "" where none is told."""
    found = _WHOM.search(text(preempted(workload), "message"))
    return (found["job"] or "") if found else ""


def sentence(
    workload: Mapping[str, Any], waits: str, other: Mapping[str, Any] | None, reached: str = ""
) -> str:
    """Return it in plain words: `Pre-empted at 14:02 UTC by team-b/big (priority high); will resume when …`.

    Where it is known how far the job had come, that stands first: `Pre-empted at epoch 45/100 (14:02 UTC) by …`.
    """
    found = preempted(workload)
    when = moment(found, "lastTransitionTime")
    clock = f"{time.strftime('%H:%M', time.gmtime(when))} UTC" if when else ""
    at = f"{reached} ({clock})" if reached and clock else reached or clock
    cause = text(found, "message").partition(" due to ")[2].partition(";")[0]
    why = f" ({cause})" if cause else ""
    return f"Pre-empted{f' at {at}' if at else ''} by {_whom(other)}{why}; {_until(waits)}"


def _whom(other: Mapping[str, Any] | None) -> str:
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
    """Return when it runs again, from what it waits for."""
    what, _, queue = waits.removeprefix("Waiting for ").partition(" in queue ")
    if not queue or what == waits:
        return "will resume when there is room"
    if what == "its turn":
        return f"will resume when it is its turn in queue {queue}"
    one = what.startswith("1 ") and " and " not in what
    return f"will resume when {what} {'is' if one else 'are'} free in queue {queue}"
