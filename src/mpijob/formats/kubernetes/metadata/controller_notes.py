"""The controller's Events and annotations about a job, and the other annotations that hold state.

Kubernetes deletes Events after an hour; what must be known longer is an annotation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from mpijob import codec
from mpijob.errors import Finding
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import (
    AFTER_ANNOTATION,
    ESTIMATE_ANNOTATION,
    QUEUE_LABEL,
    Document,
)
from mpijob.formats.status.nested_fields import text
from mpijob.model.ref import JobRef
from mpijob.model.spec.dependencies import parsed
from mpijob.model.status.forecast import Forecast

COMPONENT = "mpijob-controller"
PROGRESS_ANNOTATION = f"{well_known.DOMAIN}/progress"
FINDINGS_ANNOTATION = f"{well_known.DOMAIN}/findings"
# The API server's limit for an Event's message is 1024 characters.
_LONGEST_MESSAGE = 1000
_LONGEST_NAME = 200
# Findings in a job's annotation, at most.
MOST = 5


def event(
    job: Mapping[str, Any], reason: str, message: str, key: str, *, warning: bool, when: float
) -> Document:
    """Return an Event about a job's object; `key` distinguishes it from others with the same reason."""
    metadata = job["metadata"]
    # The name follows from the content: the API server refuses an Event that a controller publishes again after a
    # restart.
    digest = hashlib.sha256(f"{metadata['uid']} {reason} {key}".encode()).hexdigest()[:16]
    stamp = datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = metadata.get("labels") or {}
    kept = {name: labels[name] for name in (well_known.JOB_LABEL, well_known.UID_LABEL) if name in labels}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{metadata['name'][:_LONGEST_NAME]}.{digest}",
            "namespace": metadata["namespace"],
            "labels": kept,
        },
        "involvedObject": {
            "apiVersion": job["apiVersion"],
            "kind": job["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "reason": reason,
        "message": _cut(message),
        "type": "Warning" if warning else "Normal",
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": COMPONENT,
        "action": reason,
    }


def is_own(event: Mapping[str, Any]) -> bool:
    """Whether an Event was published by our controller: it repeats a diagnosis, and is no evidence for one."""
    return text(event, "source", "component") == COMPONENT


def findings(found: Sequence[Finding]) -> str | None:
    """Return the annotation's value, None to remove the annotation."""
    if not found:
        return None
    published = [
        {"code": one.code, "message": _cut(one.message), "hint": _cut(one.hint)} for one in found[:MOST]
    ]
    return msgspec.json.encode(published).decode()


def published_codes(job: Mapping[str, Any]) -> list[str]:
    """Return the codes of the findings in a job's annotation, none if it is malformed."""
    try:
        published = codec.decode(annotation_of(job, FINDINGS_ANNOTATION) or "[]", list[dict[str, str]])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return []
    return [one.get("code", "") for one in published]


def annotation_of(job: Mapping[str, Any], annotation: str) -> str:
    """Return an annotation of a job, "" if it is missing."""
    return text(job, "metadata", "annotations", annotation)


def _cut(words: str) -> str:
    return words if len(words) <= _LONGEST_MESSAGE else f"{words[: _LONGEST_MESSAGE - 1]}…"


def estimate(document: Document, forecast: Forecast) -> None:
    """Add the estimated start, as of the submission, to a job's document."""
    text = msgspec.json.encode(forecast).decode()
    document["metadata"].setdefault("annotations", {})[ESTIMATE_ANNOTATION] = text


def estimated(document: Mapping[str, Any]) -> Forecast | None:
    """Return the start that was estimated at submission, None if it is missing or malformed."""
    annotations = (document.get("metadata") or {}).get("annotations") or {}
    try:
        return codec.decode(str(annotations[ESTIMATE_ANNOTATION]), Forecast)
    except (KeyError, msgspec.ValidationError, msgspec.DecodeError):
        return None


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """The annotation of a job that waits for others: uids by entry of `after`, and the queue to enter then."""

    jobs: dict[str, str] = {}
    queue: str = ""


def hold(document: Document, after: Iterable[str], refs: Iterable[JobRef]) -> None:
    """Suspend a new job's document until others have ended; `refs` are the jobs that its `after` names."""
    metadata, spec = document["metadata"], document["spec"]
    entries = {parsed(entry).name: entry for entry in after}
    # Without the queue label: Kueue would start a suspended job itself.
    note = Note({entries[ref.name]: ref.uid for ref in refs}, metadata["labels"].pop(QUEUE_LABEL, ""))
    metadata.setdefault("annotations", {})[AFTER_ANNOTATION] = written(note)
    policy = spec.setdefault("runPolicy", {}) if document["kind"] == "MPIJob" else spec
    policy["suspend"] = True


def written(note: Note) -> str:
    """Return the annotation's value."""
    return msgspec.json.encode(note).decode()


def read(document: Mapping[str, Any]) -> Note | None:
    """Return the note of a job that waits for others, None for any other job."""
    text = ((document.get("metadata") or {}).get("annotations") or {}).get(AFTER_ANNOTATION)
    if not text:
        return None
    try:
        return codec.decode(text, Note)
    except (msgspec.ValidationError, msgspec.DecodeError, TypeError):
        return None


def queue(document: Mapping[str, Any]) -> str:
    """Return a job's queue, also while it waits for others outside of the queue."""
    labels = (document.get("metadata") or {}).get("labels") or {}
    note = read(document)
    return str(labels.get(QUEUE_LABEL) or (note.queue if note is not None else ""))


def release(document: Mapping[str, Any], note: Note) -> Document:
    """Return the patch that starts a job, or puts it into its queue, which starts it."""
    patch: Document = {"metadata": {"annotations": {AFTER_ANNOTATION: None}}}
    if note.queue:
        patch["metadata"]["labels"] = {QUEUE_LABEL: note.queue}
        return patch
    spec = {"suspend": False}
    return patch | {"spec": {"runPolicy": spec} if document["kind"] == "MPIJob" else spec}
