"""A job that waits for others on a cluster: created suspended, outside its queue, with a note of whom it waits for.

Kueue starts what is in a queue as soon as there is room, so the queue's label is kept in the note until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from mpijob import codec
from mpijob.formats.kubernetes.well_known import AFTER_ANNOTATION, QUEUE_LABEL, Document
from mpijob.model.ref import JobRef


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the annotation says: names and uids of the jobs waited for, and the queue to come."""

    jobs: dict[str, str] = {}
    queue: str = ""


def hold(document: Document, refs: Iterable[JobRef]) -> None:
    """Write the note on a job's document, and take it out of its queue."""
    metadata, spec = document["metadata"], document["spec"]
    note = Note({ref.name: ref.uid for ref in refs}, metadata["labels"].pop(QUEUE_LABEL, ""))
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
