"""Which job an engine's object is of, and whose it is: what its labels say, as far as they are to be believed.

A label is a claim that anybody may write who may create an object. It is believed when the object's own name fits
it (the API server lets nobody take a name twice) and when the uid was issued for the object's owner
(`model.job_uid`). Any other object is a job of its own, known by its own name and by the uid that the API server
gave it.
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
    """A job's address, its attempt, and the user who created the object ("" where nobody noted it)."""

    ref: JobRef
    attempt: int
    owner: str


def of(metadata: Mapping[str, Any]) -> Claim:
    """Return what an object's metadata says of the job that it is an attempt of."""
    labels = _mapping(metadata, "labels")
    namespace, own, own_uid = (str(metadata.get(key) or "") for key in ("namespace", "name", "uid"))
    name, uid = (str(labels.get(key) or "") for key in (well_known.JOB_LABEL, well_known.UID_LABEL))
    owner = owner_of(metadata)
    if not name or not uid or not fits(own, name) or not _may_have(uid, namespace, owner):
        return Claim(JobRef(namespace, own, own_uid), 1, owner)
    number = str(labels.get(well_known.ATTEMPT_LABEL, "1"))
    return Claim(JobRef(namespace, name, uid), int(number) if number.isdecimal() else 1, owner)


def run_of(metadata: Mapping[str, Any]) -> int:
    """Return which of the jobs of its name an object says that it is; of earlier releases by the object's name."""
    labels = _mapping(metadata, "labels")
    told, name = str(labels.get(well_known.RUN_LABEL) or ""), str(labels.get(well_known.JOB_LABEL) or "")
    if not told and name and str(metadata.get("name") or "").startswith(name):
        found = _SUFFIX.fullmatch(str(metadata["name"])[len(name) :])
        told = (found["run"] if found is not None else "") or ""
    return max(1, int(told)) if told.isascii() and told.isdecimal() and len(told) <= _MOST_DIGITS else 1


def owner_of(metadata: Mapping[str, Any]) -> str:
    """Return whose a job is: the annotation has the name in full, the label as far as a label can hold it."""
    told = _mapping(metadata, "annotations").get(well_known.OWNER_LABEL)
    return str(told or _mapping(metadata, "labels").get(well_known.OWNER_LABEL) or "")


def outline(metadata: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """Return some keys of an object's metadata, and of its annotations the owner: what `of` needs."""
    kept = {key: metadata[key] for key in keys if key in metadata}
    owner = _mapping(metadata, "annotations").get(well_known.OWNER_LABEL)
    return kept | ({"annotations": {well_known.OWNER_LABEL: owner}} if owner else {})


def fits(object_name: str, name: str) -> bool:
    """Whether an object of this name may be one of a job: `bert`, `bert-r2` beside an earlier one, `bert-a3`."""
    return object_name.startswith(name) and _SUFFIX.fullmatch(object_name[len(name) :]) is not None


def _mapping(metadata: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = metadata.get(key)
    return found if isinstance(found, dict) else {}


def _may_have(uid: str, namespace: str, owner: str) -> bool:
    return not job_uid.is_bound(uid) or job_uid.belongs_to(uid, namespace, owner)
