"""The status of the platform: conditions for the whole and for each component, with versions.

The states of components come from `reconcile`; the operator writes the result.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from mpijob.cluster.reconcile import FAILED, HEALTHY_STATES
from mpijob.model.platform.governance import Component, Condition, PlatformStatus


def status(old_status: PlatformStatus, components: Iterable[Component], generation: int) -> PlatformStatus:
    """Return the new status; a condition that did not change keeps its time."""
    observed = tuple(components)
    conditions = (_overall_condition(observed), *(_component_condition(item) for item in observed))
    old_conditions = {item.type: item for item in old_status.conditions}
    return PlatformStatus(
        observed_generation=generation,
        conditions=tuple(
            _with_transition_time(item, old_conditions.get(item.type), generation) for item in conditions
        ),
        components=observed,
    )


def invalid_status(old_status: PlatformStatus, message: str, generation: int) -> PlatformStatus:
    """Return the status for an invalid spec; the last observed components stay."""
    old_conditions = {condition.type: condition for condition in old_status.conditions}
    ready = Condition(type="Ready", status="False", reason="Invalid", message=message)
    others = [condition for condition in old_status.conditions if condition.type != "Ready"]
    dated = _with_transition_time(ready, old_conditions.get("Ready"), generation)
    return msgspec.structs.replace(old_status, observed_generation=generation, conditions=(dated, *others))


def _overall_condition(components: tuple[Component, ...]) -> Condition:
    not_ready = [component for component in components if component.state not in HEALTHY_STATES]
    if not not_ready:
        return Condition(type="Ready", status="True", reason="AllReady", message="all components are ready")
    reason = FAILED if any(component.state == FAILED for component in not_ready) else not_ready[0].state
    details = "; ".join(
        f"{component.name}: {component.message or component.state}" for component in not_ready
    )
    return Condition(type="Ready", status="False", reason=reason, message=details[:1000])


def _component_condition(component: Component) -> Condition:
    name = "".join(word.capitalize() for word in component.name.split("-"))
    status_word = "True" if component.state in HEALTHY_STATES else "False"
    return Condition(
        type=f"{name}Ready", status=status_word, reason=component.state, message=component.message[:1000]
    )


def _with_transition_time(condition: Condition, old: Condition | None, generation: int) -> Condition:
    # The message does not count: it may hold a number that changes with every step.
    is_unchanged = old is not None and (old.status, old.reason) == (condition.status, condition.reason)
    timestamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    since = old.last_transition_time if is_unchanged and old is not None else timestamp
    return msgspec.structs.replace(
        condition, last_transition_time=since or timestamp, observed_generation=generation
    )
