"""What the operator tells about the platform: conditions for the whole and for each component, and versions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from mpijob.cluster.reconcile import FAILED, WELL
from mpijob.model.platform.governance import Component, Condition, PlatformStatus


def status(before: PlatformStatus, components: Iterable[Component], generation: int) -> PlatformStatus:
    """Return the status after a look; a condition keeps the time at which it became what it is."""
    found = tuple(components)
    conditions = (_whole(found), *(_of(one) for one in found))
    known = {one.type: one for one in before.conditions}
    return PlatformStatus(
        observed_generation=generation,
        conditions=tuple(_dated(one, known.get(one.type), generation) for one in conditions),
        components=found,
    )


def refused(before: PlatformStatus, message: str, generation: int) -> PlatformStatus:
    """Return the status of a platform that cannot be understood; what was found before stays."""
    known = {one.type: one for one in before.conditions}
    ready = Condition(type="Ready", status="False", reason="Invalid", message=message)
    others = [one for one in before.conditions if one.type != "Ready"]
    dated = _dated(ready, known.get("Ready"), generation)
    return msgspec.structs.replace(before, observed_generation=generation, conditions=(dated, *others))


def _whole(components: tuple[Component, ...]) -> Condition:
    ill = [one for one in components if one.state not in WELL]
    if not ill:
        return Condition(type="Ready", status="True", reason="AllReady", message="every component is well")
    reason = FAILED if any(one.state == FAILED for one in ill) else ill[0].state
    said = "; ".join(f"{one.name}: {one.message or one.state}" for one in ill)
    return Condition(type="Ready", status="False", reason=reason, message=said[:1000])


def _of(component: Component) -> Condition:
    words = "".join(word.capitalize() for word in component.name.split("-"))
    status_word = "True" if component.state in WELL else "False"
    return Condition(
        type=f"{words}Ready", status=status_word, reason=component.state, message=component.message[:1000]
    )


def _dated(now: Condition, before: Condition | None, generation: int) -> Condition:
    same = before is not None and (before.status, before.reason) == (now.status, now.reason)
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    since = before.last_transition_time if same and before is not None else stamp
    return msgspec.structs.replace(now, last_transition_time=since or stamp, observed_generation=generation)
