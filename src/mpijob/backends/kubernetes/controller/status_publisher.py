"""Telling on a job's own objects what a look has shown: its transitions as Events, its findings as a note.

An Event is written before the note that says it was told. A controller that is killed between the two tells it
again, under the same name, and the API server keeps one.
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

_ILL = (Phase.FAILED,)


def publish(api: Api, look: JobSnapshot, alarms: Sequence[Finding] = ()) -> bool:
    """Tell what is new about a job; return whether anything was."""
    before, notes = progress(look.found.job), dict[str, str | None]()
    after = limits_policy.moved(before, look.state, api.now())
    found = (*look.state.findings, *alarms)
    new = controller_notes.told_codes(look.found.job) != [one.code for one in found][:MOST]
    if (after is not None or new) and not _is_as_seen(api, look.found):
        return False
    if after is not None:
        message = limits_policy.told(before, after, look.state)
        key = f"{after.number} {after.phase}"
        warning = look.state.phase in _ILL
        say(api, look.found.job, after.phase, message, key, warning=warning, when=after.since)
        notes[PROGRESS_ANNOTATION] = msgspec.json.encode(after).decode()
    if after is not None or new:
        for one in found[:MOST]:
            say_finding(api, look.found.job, one)
        notes[FINDINGS_ANNOTATION] = controller_notes.findings(found)
    if notes:
        note(api, look.found, notes)
    return bool(notes)


def _is_as_seen(api: Api, found: Found) -> bool:
    """Whether the job is still wanted as it was when the look began.

    A look is many reads. Whoever cancels or suspends a job says so on it first, and only then its pods go: pods that
    are missing from a job that has changed meanwhile tell nothing. The change itself brings the next look.
    """
    now = api.find(found.path)
    return now is not None and _wish(now) == _wish(found.job)


def _wish(job: Mapping[str, Any]) -> tuple[object, ...]:
    notes = job["metadata"].get("annotations") or {}
    told = (well_known.CANCELLED_ANNOTATION, well_known.SUSPENDED_ANNOTATION, well_known.GIVEN_UP_ANNOTATION)
    metadata = job["metadata"]
    return (
        metadata.get("uid"), metadata.get("generation"), "deletionTimestamp" in metadata, *map(notes.get, told),
    )  # fmt: skip


def progress(job: Mapping[str, Any]) -> Progress:
    """Return what was told last about a job; a note that somebody spoilt tells nothing."""
    try:
        return codec.decode(controller_notes.noted(job, PROGRESS_ANNOTATION) or "{}", Progress)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return Progress()


def say(
    api: Api, job: Mapping[str, Any], reason: str, message: str, key: str, *, warning: bool, when: float
) -> None:
    """Write an Event about a job, unless it was written before."""
    document = controller_notes.event(job, reason, message, key, warning=warning, when=when)
    try:
        api.create(resources.EVENT.path(document["metadata"]["namespace"]), document, accept=PARTIAL)
    except ApiError as error:
        if error.status != 409 and not _is_going(error):
            raise


def note(api: Api, found: Found, notes: Mapping[str, str | None]) -> None:
    """Write annotations onto the job's object, if it is still as it was seen."""
    metadata = found.job["metadata"]
    guard = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    api.patch(found.path, {"metadata": {**guard, "annotations": dict(notes)}}, accept=PARTIAL)


def say_finding(api: Api, job: Mapping[str, Any], finding: Finding) -> None:
    """Tell a finding once for each code: its numbers may change at every look."""
    words = f"{finding.message.rstrip('.')}; {finding.hint}" if finding.hint else finding.message
    warning = finding.severity is not Severity.NOTICE
    say(api, job, finding.code, words, "", warning=warning, when=api.now())


def _is_going(error: ApiError) -> bool:
    """Nothing can be created in a namespace that goes; nobody would read it."""
    return error.status == 403 and "is being terminated" in error.message
