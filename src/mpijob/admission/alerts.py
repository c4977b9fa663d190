"""When a limit is nearly consumed: the sentences for administrators."""

from __future__ import annotations

from collections.abc import Iterable

from mpijob.admission.resources import named, number
from mpijob.model.status.overview import Alert, Line, NamespaceView, QueueView

USUAL_PERCENT = 90.0


def alerts(
    namespaces: Iterable[NamespaceView], queues: Iterable[QueueView] = (), percent: float = USUAL_PERCENT
) -> tuple[Alert, ...]:
    """Return what is consumed by at least so many percent, the fullest first."""
    found = [
        Alert(namespace=one.name, message=sentence(one.name, line), percent=line.percent)
        for one in namespaces
        for line in one.lines
        if _near(line, percent)
    ]
    found += [
        Alert(namespace="", message=sentence(f"queue {one.name}", line), percent=line.percent)
        for one in queues
        for line in one.lines
        if _near(line, percent)
    ]
    return tuple(sorted(found, key=lambda alert: -alert.percent))


def sentence(whose: str, line: Line) -> str:
    """Return how far a limit is consumed: `nlp-team quota 90% consumed: 9 of 10 GPUs (ResourceQuota mpijob)`."""
    used, most = number(line.resource, line.used), number(line.resource, line.most)
    return (
        f"{whose} quota {line.percent:.0f}% consumed: {used} of {most} {named(line.resource)} ({line.source})"
    )


def _near(line: Line, percent: float) -> bool:
    return line.most > 0 and line.percent >= percent
