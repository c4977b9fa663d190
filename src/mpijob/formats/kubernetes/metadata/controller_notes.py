"""What a controller says about a job, in Kubernetes' words: Events, and notes on the job's own object.

An Event's name follows from what it tells, so that telling it twice makes one: the API server refuses the
second. Events are forgotten after an hour; what must outlive that is an annotation.
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
# The API server takes 1024 letters.
_LONGEST_MESSAGE = 1000
_LONGEST_NAME = 200
# Findings on one job.
MOST = 5


def event(
    job: Mapping[str, Any], reason: str, message: str, key: str, *, warning: bool, when: float
) -> Document:
    """Return an Event about a job's object; `key` tells it from all others about the same object."""
    metadata = job["metadata"]
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
    """Whether an Event was said here: it repeats what was seen, and is no evidence of anything."""
    return text(event, "source", "component") == COMPONENT


def findings(found: Sequence[Finding]) -> str | None:
    """Return findings as the annotation holds them; None takes it away."""
    if not found:
        return None
    told = [{"code": one.code, "message": _cut(one.message), "hint": _cut(one.hint)} for one in found[:MOST]]
    return msgspec.json.encode(told).decode()


def told_codes(job: Mapping[str, Any]) -> list[str]:
    """Return which findings a job's object bears; a note that somebody spoilt bears none."""
    try:
        told = codec.decode(noted(job, FINDINGS_ANNOTATION) or "[]", list[dict[str, str]])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return []
    return [one.get("code", "") for one in told]


def noted(job: Mapping[str, Any], annotation: str) -> str:
    """Return what an annotation of a job says, "" for nothing."""
    return text(job, "metadata", "annotations", annotation)


def _cut(words: str) -> str:
    return words if len(words) <= _LONGEST_MESSAGE else f"{words[: _LONGEST_MESSAGE - 1]}…"


def estimate(document: Document, forecast: Forecast) -> None:
    """Write onto a job's document when it would start, as it was estimated when it was submitted."""
    text = msgspec.json.encode(forecast).decode()
    document["metadata"].setdefault("annotations", {})[ESTIMATE_ANNOTATION] = text


def estimated(document: Mapping[str, Any]) -> Forecast | None:
    """Return what was estimated of a job when it was submitted; None where nothing was, or nobody can read it."""
    notes = (document.get("metadata") or {}).get("annotations") or {}
    try:
        return codec.decode(str(notes[ESTIMATE_ANNOTATION]), Forecast)
    except (KeyError, msgspec.ValidationError, msgspec.DecodeError):
        return None


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the annotation says: the entries of `after` with their jobs' uids, and the queue to come."""

    jobs: dict[str, str] = {}
    queue: str = ""


def hold(document: Document, after: Iterable[str], refs: Iterable[JobRef]) -> None:
    """Write the note on a job's document, and take it out of its queue; `refs` are what it waits for of `after`."""
    metadata, spec = document["metadata"], document["spec"]
    entries = {parsed(entry).name: entry for entry in after}
    note = Note({entries[ref.name]: ref.uid for ref in refs}, metadata["labels"].pop(QUEUE_LABEL, ""))
    metadata.setdefault("annotations", {})[AFTER_ANNOTATION] = written(note)
    policy = spec.setdefault("runPolicy", {}) if document["kind"] == "MPIJob" else spec
    policy["suspend"] = True


def written(note: Note) -> str:
    """Return a note as the annotation holds it."""
    return msgspec.json.encode(note).decode()


def read(document: Mapping[str, Any]) -> Note | None:
    """Return the note of a job that waits for others; None for any other job."""
    text = ((document.get("metadata") or {}).get("annotations") or {}).get(AFTER_ANNOTATION)
    if not text:
        return None
    try:
        return codec.decode(text, Note)
    except (msgspec.ValidationError, msgspec.DecodeError, TypeError):
        return None


def queue(document: Mapping[str, Any]) -> str:
    """Return the queue that a job goes to, also where it waits for others outside of it."""
    labels = (document.get("metadata") or {}).get("labels") or {}
    note = read(document)
    return str(labels.get(QUEUE_LABEL) or (note.queue if note is not None else ""))


def release(document: Mapping[str, Any], note: Note) -> Document:
    """Return the patch that lets a job start, or into its queue."""
    patch: Document = {"metadata": {"annotations": {AFTER_ANNOTATION: None}}}
    if note.queue:
        patch["metadata"]["labels"] = {QUEUE_LABEL: note.queue}
        return patch
    going = {"suspend": False}
    return patch | {"spec": {"runPolicy": going} if document["kind"] == "MPIJob" else going}
