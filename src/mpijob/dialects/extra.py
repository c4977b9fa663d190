"""What other people's documents say beyond our words: kept beside the job, and put back when it is written.

A reader takes out what it understands; what remains and differs from what we would write ourselves is
foreign. Lists whose items have names (containers, volumes, variables) are compared item by item, so an
extra container or a field nobody here has heard of survives, wherever it stands.

The other way round, what a job says and no field of a document can goes into one annotation, so that
every document of ours reads back as the very job it was written from.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mpijob import shapes
from mpijob.dialects.terms import LARGEST_REST, OWNER_LABEL, REST_ANNOTATION, Document, refuse
from mpijob.errors import InvalidJob
from mpijob.model import Elastic, MPIJob

_NAMED = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "env": "name",
    "ports": "containerPort",
    "replicatedJobs": "name",
    "runtimePatches": "manager",
}
_NOTHING: Any = object()


class Foreign(msgspec.Struct, frozen=True):
    """Documents with only the fields that a job has no words for; `kind` says where each belongs."""

    documents: tuple[Mapping[str, Any], ...] = ()


def beyond(theirs: Sequence[Mapping[str, Any]], ours: Sequence[Mapping[str, Any]]) -> Foreign:
    """Return what documents say that our own of the same kind do not."""
    by_kind = {document["kind"]: document for document in ours}
    found = []
    for document in theirs:
        rest = _beyond(document, by_kind.get(document["kind"], {"kind": document["kind"]}), "")
        if rest is not _NOTHING:
            found.append({"kind": document["kind"]} | rest)
    return Foreign(tuple(found))


def merged(ours: Sequence[Document], foreign: Foreign) -> tuple[Document, ...]:
    """Return our documents with the foreign fields put back; where both speak, the foreign one stands."""
    rest = {document["kind"]: document for document in foreign.documents}
    return tuple(_merged(one, rest.get(one["kind"], {}), "") for one in ours)


def annotate(document: Document, job: MPIJob, native: MPIJob) -> None:
    """Add what the document's own fields do not tell of a job (they tell `native`), if there is anything."""
    names = [field.name for field in msgspec.structs.fields(job)]
    different = [name for name in names if getattr(job, name) != getattr(native, name)]
    rest = {name: msgspec.to_builtins(getattr(job, name)) for name in different}
    text = json.dumps(rest, ensure_ascii=False, separators=(",", ":"))
    if len(text.encode(errors="surrogatepass")) > LARGEST_REST:
        largest = max(rest, key=lambda name: len(str(rest[name])))
        message = (
            f"{largest} makes the job too large for one object: {len(text)} letters, {LARGEST_REST} are kept"
        )
        raise refuse(largest, message, "put long texts into files that go along, or on a volume")
    if rest:
        document["metadata"]["annotations"] = {REST_ANNOTATION: text}


def whole(native: MPIJob, annotations: Mapping[str, str]) -> MPIJob:
    """Return the job that a document was written from: its own fields, and what the annotation adds."""
    text = annotations.get(REST_ANNOTATION)
    proved = {"owner": annotations[OWNER_LABEL]} if annotations.get(OWNER_LABEL) else {}  # admission wrote it
    if text is None:
        return native.replace(**proved)
    try:
        return shapes.convert(msgspec.to_builtins(native) | json.loads(text) | proved, MPIJob)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        message = f"the annotation {REST_ANNOTATION} cannot be read: {error}"
        raise InvalidJob(message, hint="remove the annotation; the job is then read without it") from error


def elastic(annotations: Mapping[str, str]) -> Elastic | None:
    """Return between how many workers the annotation lets a job go on; None where it does not tell, or not readably."""
    try:
        return shapes.convert(json.loads(annotations.get(REST_ANNOTATION) or "{}").get("elastic"), Elastic)
    except (msgspec.ValidationError, ValueError, TypeError, AttributeError, RecursionError):
        return None


def _beyond(theirs: Any, ours: Any, field: str) -> Any:
    if theirs == ours:
        return _NOTHING
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        parts = {key: _beyond(value, ours.get(key, _NOTHING), key) for key, value in theirs.items()}
        return {key: part for key, part in parts.items() if part is not _NOTHING} or _NOTHING
    if (key := _key(theirs, ours, field)) is not None:
        return _items_beyond(theirs, ours, key)
    return copy.deepcopy(theirs)


def _items_beyond(theirs: Sequence[Any], ours: Sequence[Any], key: str) -> Any:
    known = {item[key]: item for item in ours}
    found = []
    for item in theirs:
        rest = _beyond(item, known.get(item[key], {}), "")
        if rest is not _NOTHING:
            found.append({key: item[key]} | rest)
    return found or _NOTHING


def _merged(ours: Any, rest: Any, field: str) -> Any:
    if isinstance(ours, Mapping) and isinstance(rest, Mapping):
        both = {key: _merged(value, rest[key], key) if key in rest else value for key, value in ours.items()}
        return both | {key: copy.deepcopy(value) for key, value in rest.items() if key not in ours}
    if (key := _key(rest, ours, field)) is not None:
        more = {item[key]: item for item in rest}
        known = [_merged(item, more.pop(item[key], {}), "") for item in ours]
        return known + [copy.deepcopy(item) for item in more.values()]
    return copy.deepcopy(rest)


def _key(one: Any, other: Any, field: str) -> str | None:
    """Return by what the items of two lists are told apart, or None when they are not."""
    key = _NAMED.get(field)
    if key is None or not isinstance(one, list) or not isinstance(other, list):
        return None
    return key if all(_unique(items, key) for items in (one, other)) else None


def _unique(items: list[Any], key: str) -> bool:
    names = [
        item[key] for item in items if isinstance(item, Mapping) and isinstance(item.get(key), (str, int))
    ]
    return len(names) == len(items) == len(set(names))
