"""Events of a job's objects, in the order of time.

Events say what no status does: that an image is being pulled, that a volume cannot be mounted, that an engine was
refused when it created an object. The API server keeps them for one hour.
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
    """Events by the object that they are about; those before `since` belong to an earlier job and are left out."""

    def __init__(self, events: Iterable[Mapping[str, Any]] = (), since: float = 0.0) -> None:
        reports = (_report(event) for event in events)
        self.all = sorted((event for event in reports if event.time >= since), key=lambda event: event.time)
        self._by_object: dict[tuple[str, str], list[EventReport]] = {}
        for event in self.all:
            self._by_object.setdefault((event.kind, event.name), []).append(event)

    def of(self, kind: str, name: str, uid: str = "") -> list[EventReport]:
        """Return an object's events; with a uid, not those of an earlier object with the same name."""
        found = self._by_object.get((kind, name), [])
        return [event for event in found if not (uid and event.uid) or event.uid == uid]


def _report(event: Mapping[str, Any]) -> EventReport:
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
    # Recorders of events.k8s.io fill `eventTime` and `series`, older ones `lastTimestamp`.
    places = (("series", "lastObservedTime"), ("lastTimestamp",), ("eventTime",), ("firstTimestamp",))
    found = [time for path in places if (time := moment(event, *path)) is not None]
    return max(found) if found else moment(event, "metadata", "creationTimestamp") or 0.0
