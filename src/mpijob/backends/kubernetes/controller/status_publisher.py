"""Publishes a job's state on its own objects: transitions as Events, findings as annotations.

The Event is written before the annotation that records it. A controller that is killed in between writes it
again under the same name, which the API server refuses, so it exists once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mpijob import codec
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import PARTIAL, Api, ApiError
from mpijob.backends.kubernetes.status.job_objects import Found
from mpijob.backends.kubernetes.status.job_reader import JobSnapshot
from mpijob.errors import Finding, Severity
from mpijob.formats.kubernetes.metadata import controller_notes, well_known
from mpijob.formats.kubernetes.metadata.controller_notes import FINDINGS_ANNOTATION, MOST, PROGRESS_ANNOTATION
from mpijob.model import Phase
from mpijob.observation.state import limits_policy
from mpijob.observation.state.limits_policy import Progress

_WARNINGS = (Phase.FAILED,)


def publish(api: Api, snapshot: JobSnapshot, alarms: Sequence[Finding] = ()) -> bool:
    """Publish what is new about a job; return whether anything was."""
    before, notes = progress(snapshot.found.job), dict[str, str | None]()
    after = limits_policy.next_transition(before, snapshot.state, api.now())
    found = (*snapshot.state.findings, *alarms)
    new = controller_notes.published_codes(snapshot.found.job) != [finding.code for finding in found][:MOST]
    if (after is not None or new) and not _is_unchanged(api, snapshot.found):
        return False
    if after is not None:
        message = limits_policy.transition_message(before, after, snapshot.state)
        key = f"{after.number} {after.phase}"
        warning = snapshot.state.phase in _WARNINGS
        write_event(api, snapshot.found.job, after.phase, message, key, warning=warning, when=after.since)
        notes[PROGRESS_ANNOTATION] = msgspec.json.encode(after).decode()
    if after is not None or new:
        for finding in found[:MOST]:
            write_finding_event(api, snapshot.found.job, finding)
        notes[FINDINGS_ANNOTATION] = controller_notes.findings(found)
    if notes:
        note(api, snapshot.found, notes)
    return bool(notes)


def _is_unchanged(api: Api, found: Found) -> bool:
    # A snapshot is many reads. Cancelling and suspending are noted on the job before its pods are deleted, so missing
    # pods of a job that changed meanwhile mean nothing. The change itself makes the job due again.
    now = api.find(found.path)
    return now is not None and _intent(now) == _intent(found.job)


def _intent(job: Mapping[str, Any]) -> tuple[object, ...]:
    notes = job["metadata"].get("annotations") or {}
    keys = (well_known.CANCELLED_ANNOTATION, well_known.SUSPENDED_ANNOTATION, well_known.GIVEN_UP_ANNOTATION)
    metadata = job["metadata"]
    return (
        metadata.get("uid"), metadata.get("generation"), "deletionTimestamp" in metadata, *map(notes.get, keys),
    )  # fmt: skip


def progress(job: Mapping[str, Any]) -> Progress:
    """Return what was published last; nothing if a user has damaged the annotation."""
    try:
        return codec.decode(controller_notes.annotation_of(job, PROGRESS_ANNOTATION) or "{}", Progress)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return Progress()


def write_event(
    api: Api, job: Mapping[str, Any], reason: str, message: str, key: str, *, warning: bool, when: float
) -> None:
    """Create an Event about a job; one with the same key exists once."""
    document = controller_notes.event(job, reason, message, key, warning=warning, when=when)
    try:
        api.create(resources.EVENT.path(document["metadata"]["namespace"]), document, accept=PARTIAL)
    except ApiError as error:
        if error.status != 409 and not _is_namespace_terminating(error):
            raise


def note(api: Api, found: Found, notes: Mapping[str, str | None]) -> None:
    """Set annotations on the job's object; ApiError 409 if it has changed since it was read."""
    metadata = found.job["metadata"]
    guard = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    api.patch(found.path, {"metadata": {**guard, "annotations": dict(notes)}}, accept=PARTIAL)


def write_finding_event(api: Api, job: Mapping[str, Any], finding: Finding) -> None:
    """Create the Event of a finding, once for each code: its numbers change with every snapshot."""
    text = f"{finding.message.rstrip('.')}; {finding.hint}" if finding.hint else finding.message
    warning = finding.severity is not Severity.NOTICE
    write_event(api, job, finding.code, text, "", warning=warning, when=api.now())


def _is_namespace_terminating(error: ApiError) -> bool:
    # Nothing can be created there any more, and the Event would be deleted.
    return error.status == 403 and "is being terminated" in error.message
