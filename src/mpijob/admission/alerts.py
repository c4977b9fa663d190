"""Alerts for administrators when a limit is nearly reached."""

from __future__ import annotations

from collections.abc import Iterable

from mpijob.admission.resources import display_name, format_amount
from mpijob.model.status.overview import Alert, Line, NamespaceView, QueueView

DEFAULT_PERCENT = 90.0


def alerts(
    namespaces: Iterable[NamespaceView], queues: Iterable[QueueView] = (), percent: float = DEFAULT_PERCENT
) -> tuple[Alert, ...]:
    """Return the limits that are used by at least `percent`, the fullest first."""
    found = [
        Alert(namespace=view.name, message=format_usage(view.name, line), percent=line.percent)
        for view in namespaces
        for line in view.lines
        if _is_near(line, percent)
    ]
    found += [
        Alert(namespace="", message=format_usage(f"queue {view.name}", line), percent=line.percent)
        for view in queues
        for line in view.lines
        if _is_near(line, percent)
    ]
    return tuple(sorted(found, key=lambda alert: -alert.percent))


def format_usage(subject: str, line: Line) -> str:
    """Format the use of a limit: `nlp-team quota 90% consumed: 9 of 10 GPUs (ResourceQuota mpijob)`."""
    used, total = format_amount(line.resource, line.used), format_amount(line.resource, line.most)
    return (
        f"{subject} quota {line.percent:.0f}% consumed: {used} of {total} {display_name(line.resource)} "
        f"({line.source})"
    )


def _is_near(line: Line, percent: float) -> bool:
    return line.most > 0 and line.percent >= percent
