"""The parts of watched objects that a controller keeps in memory."""

from __future__ import annotations

from mpijob.backends.kubernetes.controller.work_queue import PODS, bare
from mpijob.formats.kubernetes.metadata import controller_notes
from mpijob.formats.kubernetes.metadata.well_known import Document

_POD_LABELS = (*PODS.values(),)
_EVENT_FIELDS = ("involvedObject", "reason", "message", "type", "firstTimestamp", "lastTimestamp", "eventTime", "count",
              "series", "source", "reportingComponent")  # fmt: skip


def pod(document: Document) -> Document:
    """Keep the node of a pod, and whether it has ended."""
    kept = bare(document)
    labels = kept["metadata"].get("labels") or {}
    kept["metadata"]["labels"] = {name: labels[name] for name in _POD_LABELS if name in labels}
    alive = (document.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    return kept | {"node": (document.get("spec") or {}).get("nodeName") or "", "alive": alive}


def spec(document: Document) -> Document:
    return bare(document) | {"spec": document.get("spec") or {}}


def event(document: Document) -> Document:
    """Keep the fields of an Event that the timeline uses; of our own Events only that they exist."""
    if controller_notes.is_own(document):
        return bare(document) | {"involvedObject": {}}
    return bare(document) | {name: document[name] for name in _EVENT_FIELDS if name in document}
