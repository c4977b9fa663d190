"""What a controller keeps of objects that it watches: enough to know whose they are and where they stand, no more."""

from __future__ import annotations

from mpijob.backends.kubernetes.controller.work_queue import PODS, bare
from mpijob.formats.kubernetes.metadata import controller_notes
from mpijob.formats.kubernetes.metadata.well_known import Document

_POD_LABELS = (*PODS.values(),)
_OF_EVENTS = ("involvedObject", "reason", "message", "type", "firstTimestamp", "lastTimestamp", "eventTime", "count",
              "series", "source", "reportingComponent")  # fmt: skip


def pod(document: Document) -> Document:
    """Keep of a pod where it is and whether it lives."""
    kept = bare(document)
    labels = kept["metadata"].get("labels") or {}
    kept["metadata"]["labels"] = {name: labels[name] for name in _POD_LABELS if name in labels}
    alive = (document.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    return kept | {"node": (document.get("spec") or {}).get("nodeName") or "", "alive": alive}


def spec(document: Document) -> Document:
    """Keep of an object what is wanted."""
    return bare(document) | {"spec": document.get("spec") or {}}


def event(document: Document) -> Document:
    """Keep of an Event what it tells; of our own, that it was said."""
    if controller_notes.is_own(document):
        return bare(document) | {"involvedObject": {}}
    return bare(document) | {name: document[name] for name in _OF_EVENTS if name in document}
