"""Events of a job's objects: who said what, and when; newest last.

Old and new recorders fill other fields with the time (`lastTimestamp`, `eventTime`, `series`). Events are
kept for an hour only and tell what no status does: that an image is being pulled, that a volume cannot be
mounted, that the engine was refused when it made the job's parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from mpijob.formats.status.nested_fields import moment, part, text


class EventReport(NamedTuple):
    """One event."""

    kind: str
    name: str
    reason: str
    message: str
    time: float
    warning: bool
    uid: str = ""


class Events:
    """The events, by the object that they are about; what was told before `since` is of an earlier job's."""

    def __init__(self, events: Iterable[Mapping[str, Any]] = (), since: float = 0.0) -> None:
        told = (_told(event) for event in events)
        self.all = sorted((one for one in told if one.time >= since), key=lambda one: one.time)
        self._by_object: dict[tuple[str, str], list[EventReport]] = {}
        for one in self.all:
            self._by_object.setdefault((one.kind, one.name), []).append(one)

    def of(self, kind: str, name: str, uid: str = "") -> list[EventReport]:
        """Return the events of one object; those of an earlier object of that name do not count."""
        found = self._by_object.get((kind, name), [])
        return [one for one in found if not (uid and one.uid) or one.uid == uid]


def _told(event: Mapping[str, Any]) -> EventReport:
    about = part(event, "involvedObject") or part(event, "regarding")
    return EventReport(
        kind=text(about, "kind"),
        name=text(about, "name"),
        reason=text(event, "reason"),
        message=text(event, "message") or text(event, "note"),
        time=_time(event),
        warning=text(event, "type") == "Warning",
        uid=text(about, "uid"),
    )


def _time(event: Mapping[str, Any]) -> float:
    places = (("series", "lastObservedTime"), ("lastTimestamp",), ("eventTime",), ("firstTimestamp",))
    found = [time for path in places if (time := moment(event, *path)) is not None]
    return max(found) if found else moment(event, "metadata", "creationTimestamp") or 0.0
