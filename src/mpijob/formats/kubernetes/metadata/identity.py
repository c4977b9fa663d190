"""Which job an engine's object belongs to, and who owns it: the labels that can be trusted.

Everybody who may create an object can write any label. Labels are trusted if the object's name matches them (names
are unique in a namespace) and the uid was issued for the object's owner (`model.job_uid`). Any other object is a job
of its own, with its own name and the uid that the API server gave it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mpijob.formats.kubernetes.metadata import well_known
from mpijob.model import JobRef, job_uid

_SUFFIX = re.compile(r"(?:-r(?P<run>[1-9][0-9]*))?(?:-a([1-9][0-9]*))?")
_MOST_DIGITS = 9


class Claim(NamedTuple):
    """A job's reference, its attempt, and the user who created the object ("" if unknown)."""

    ref: JobRef
    attempt: int
    owner: str


def of(metadata: Mapping[str, Any]) -> Claim:
    """Return the job of an object, by its metadata."""
    labels = _mapping(metadata, "labels")
    namespace, object_name, object_uid = (
        str(metadata.get(key) or "") for key in ("namespace", "name", "uid")
    )
    name, uid = (str(labels.get(key) or "") for key in (well_known.JOB_LABEL, well_known.UID_LABEL))
    owner = owner_of(metadata)
    if not name or not uid or not fits(object_name, name) or not _is_issued_for(uid, namespace, owner):
        return Claim(JobRef(namespace, object_name, object_uid), 1, owner)
    number = str(labels.get(well_known.ATTEMPT_LABEL, "1"))
    return Claim(JobRef(namespace, name, uid), int(number) if number.isdecimal() else 1, owner)


def run_of(metadata: Mapping[str, Any]) -> int:
    """Return the number of a job among those of its name."""
    labels = _mapping(metadata, "labels")
    # Earlier releases have it in the object's name only.
    number_text, name = (
        str(labels.get(well_known.RUN_LABEL) or ""),
        str(labels.get(well_known.JOB_LABEL) or ""),
    )
    if not number_text and name and str(metadata.get("name") or "").startswith(name):
        found = _SUFFIX.fullmatch(str(metadata["name"])[len(name) :])
        number_text = (found["run"] if found is not None else "") or ""
    return (
        max(1, int(number_text))
        if number_text.isascii() and number_text.isdecimal() and len(number_text) <= _MOST_DIGITS
        else 1
    )


def owner_of(metadata: Mapping[str, Any]) -> str:
    """Return a job's owner: the annotation has the full name, the label what a label's syntax allows."""
    number_text = _mapping(metadata, "annotations").get(well_known.OWNER_LABEL)
    return str(number_text or _mapping(metadata, "labels").get(well_known.OWNER_LABEL) or "")


def outline(metadata: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """Return the keys of an object's metadata, and the annotations that `of` needs."""
    kept = {key: metadata[key] for key in keys if key in metadata}
    owner = _mapping(metadata, "annotations").get(well_known.OWNER_LABEL)
    return kept | ({"annotations": {well_known.OWNER_LABEL: owner}} if owner else {})


def fits(object_name: str, name: str) -> bool:
    """Whether an object's name may belong to a job: `bert`, `bert-r2` beside an earlier one, `bert-a3`."""
    return object_name.startswith(name) and _SUFFIX.fullmatch(object_name[len(name) :]) is not None


def _mapping(metadata: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = metadata.get(key)
    return found if isinstance(found, dict) else {}


def _is_issued_for(uid: str, namespace: str, owner: str) -> bool:
    return not job_uid.is_bound(uid) or job_uid.belongs_to(uid, namespace, owner)
