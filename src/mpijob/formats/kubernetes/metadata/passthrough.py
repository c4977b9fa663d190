"""Fields of documents that a job does not have, and fields of a job that documents do not have.

Foreign fields are those that no reader has taken out and that differ from what we write; they are kept beside the job
and put back when it is written. Fields of the job that no field of a document can express go into one annotation,
from which the same job is read again.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from mpijob import codec
from mpijob.errors import InvalidJob
from mpijob.formats.kubernetes.metadata.well_known import (
    LARGEST_REST,
    OWNER_LABEL,
    REST_ANNOTATION,
    SECRETS_SUFFIX,
    SHIM,
    Document,
    refuse,
    user_labels,
)
from mpijob.model import Elastic, Family, MPIJob, Resources, Secret
from mpijob.model.spec.quantity import parse

# Lists whose items have a key are compared by item, so that an additional container or an unknown field of one
# survives.
_LIST_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "env": "name",
    "ports": "containerPort",
    "replicatedJobs": "name",
    "runtimePatches": "manager",
}
# Not merged by key: requests and limits of two sources may contradict each other.
_UNMERGED = "resources"
_NOTHING: Any = object()


class Foreign(msgspec.Struct, frozen=True):
    """Documents with only the fields that a job does not have; `kind` is kept in each."""

    documents: tuple[Mapping[str, Any], ...] = ()


def beyond(theirs: Sequence[Mapping[str, Any]], ours: Sequence[Mapping[str, Any]]) -> Foreign:
    """Return the fields of documents that our own documents of the same kind do not have."""
    by_kind = {document["kind"]: document for document in ours}
    found = []
    for document in theirs:
        rest = _beyond(document, by_kind.get(document["kind"], {"kind": document["kind"]}), "")
        if rest is not _NOTHING:
            found.append({"kind": document["kind"]} | rest)
    return Foreign(tuple(found))


def merged(ours: Sequence[Document], foreign: Foreign) -> tuple[Document, ...]:
    """Return our documents with the foreign fields, which win where both have a value."""
    rest = {document["kind"]: document for document in foreign.documents}
    return tuple(_merged(one, rest.get(one["kind"], {}), "") for one in ours)


def annotate(document: Document, job: MPIJob, native: MPIJob) -> None:
    """Add an annotation with the fields in which a job differs from what its document expresses (`native`)."""
    different = [name for name in _ORDER if getattr(job, name) != getattr(native, name)]
    rest = {name: msgspec.to_builtins(getattr(job, name)) for name in different}
    text = json.dumps(rest, ensure_ascii=False, separators=(",", ":"))
    if len(text.encode(errors="surrogatepass")) > LARGEST_REST:
        largest = max(rest, key=lambda name: len(str(rest[name])))
        message = (
            f"{largest} makes the job too large for one object: {len(text)} characters; limit: {LARGEST_REST}"
        )
        raise refuse(largest, message, "put long texts into uploaded files, or on a volume")
    notes = document["metadata"].setdefault("annotations", {})
    if rest:
        notes[REST_ANNOTATION] = text
    if job.owner:
        # In full; admission replaces it with the authenticated user.
        notes[OWNER_LABEL] = job.owner
    if not notes:
        del document["metadata"]["annotations"]


def annotated_job(native: MPIJob, annotations: Mapping[str, str], line: Sequence[str] = ()) -> MPIJob:
    """Return the job of a document: what its fields express (`native`), and what the annotation may add.

    `line` is the launcher's arguments in the document.
    """
    annotated, refused = _read_annotation(native, annotations, line)
    added = {name: getattr(annotated, name) for name in _ORDER if name not in refused}
    return native.replace(**added, owner=annotations.get(OWNER_LABEL) or native.owner)


def contradictions(
    native: MPIJob, annotations: Mapping[str, str], line: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the fields in which the annotation contradicts the document's own fields."""
    try:
        return _read_annotation(native, annotations, line)[1]
    except InvalidJob:
        return ("cannot be read",)


def _read_annotation(
    native: MPIJob, annotations: Mapping[str, str], line: Sequence[str]
) -> tuple[MPIJob, tuple[str, ...]]:
    """Return the job with all that the annotation says, and the fields in which it must not be trusted."""
    try:
        rest = json.loads(annotations.get(REST_ANNOTATION) or "{}")
        known = {name: value for name, value in rest.items() if name in MPIJob.__struct_fields__}
        job = codec.convert(msgspec.to_builtins(native) | known, MPIJob)
    except (msgspec.ValidationError, ValueError, TypeError, AttributeError, RecursionError) as error:
        message = f"the annotation {REST_ANNOTATION} cannot be read: {error}"
        raise InvalidJob(message, hint="remove the annotation; the job is then read without it") from error
    # Users may write the annotation, so it may add fields and spell out values (`2` or `2000m`), but not contradict
    # what the engine runs: checks and quotas would see another job. Admission refuses such objects.
    return job, tuple(name for name in known if not _agrees(name, native, job, line))


def _agrees(name: str, native: MPIJob, annotated: MPIJob, line: Sequence[str]) -> bool:
    """Whether the annotation's value of a field is compatible with the document."""
    if getattr(native, name) == getattr(annotated, name) or name in _ONLY_ANNOTATED:
        return True
    if name == "programs" or (annotated.programs and name in ("command", "args")):
        return not annotated.argv and _runs_programs(line, annotated)
    check = _EQUIVALENT.get(name)
    try:
        return check is not None and check(native, annotated)
    except ValueError:
        # An amount that is no number.
        return False


# Fields that no TrainJob or MPIJob has. A field that is added here must not give a job power over others.
_ONLY_ANNOTATED = frozenset(
    {"description", "ranks", "cores_per_rank", "elastic", "launch", "presets", "code", "network", "after"}
    | {"gang_timeout_seconds", "retry", "signal", "requeue_on_lost_worker", "keep_on_failure_seconds"}
    | {"retention", "model", "census", "profile_mpi", "priority", "concurrency", "ttl_seconds", "notify"}
)


def _runs_programs(line: Sequence[str], annotated: MPIJob) -> bool:
    """Whether a launch line starts these programs, in this order, and no others."""
    rest = [*line]
    for program in annotated.programs:
        if SHIM not in rest:
            return False
        words = [*program.command, *program.args]
        rest = rest[rest.index(SHIM) + 1 :]
        if rest[: len(words)] != words or rest[len(words) : len(words) + 1] not in ([], [":"]):
            return False
        rest = rest[len(words) :]
    return not rest


def _same_secrets(native: MPIJob, annotated: MPIJob) -> bool:
    pairs = [*zip(native.secrets, annotated.secrets, strict=False)]
    return len(native.secrets) == len(annotated.secrets) and all(_same_secret(*pair) for pair in pairs)


def _same_secret(native: Secret, annotated: Secret) -> bool:
    # A value from the submitter's machine is in the job's own Secret.
    name, _, key = native.source.partition("/")
    ours = (
        name.endswith(SECRETS_SUFFIX)
        and key == annotated.env
        and annotated.source.startswith(("env:", "file:"))
    )
    return native.env == annotated.env and (ours or native.source == annotated.source)


def _same_variables(native: MPIJob, annotated: MPIJob) -> bool:
    # A variable with the name of a secret's variable is not written: the secret wins.
    hidden = {secret.env for secret in native.secrets}
    return dict(native.env) == {name: value for name, value in annotated.env.items() if name not in hidden}


def _same_amounts(native: Resources, annotated: Resources) -> bool:
    kind = annotated.gpu == 0 or native.gpu_kind == annotated.gpu_kind
    pairs = [(native.cpu, annotated.cpu), (native.memory, annotated.memory)]
    others = [(native.others.get(name, ""), amount) for name, amount in annotated.others.items()]
    same = all(str(one) == str(other) or parse(one) == parse(other) for one, other in (*pairs, *others))
    return native.gpu == annotated.gpu and kind and len(native.others) == len(annotated.others) and same


def _same_groups(native: MPIJob, annotated: MPIJob) -> bool:
    # Groups are replicated jobs, so the number of workers and their resources are in the runtime.
    pairs = [*zip(native.parts, annotated.parts, strict=False)]
    return len(native.parts) == len(annotated.parts) and all(
        one.group == other.group
        and (one.job.workers, one.job.slots) == (other.job.workers, other.job.slots)
        and one.job.placement == other.job.placement
        and _same_amounts(one.job.resources, other.job.resources)
        for one, other in pairs
    )


def _of_no_worker(native: MPIJob, annotated: MPIJob) -> bool:
    # If all workers are in groups, the job's own resources and placement apply to none.
    return bool(native.groups) and native.parts[0].group != ""


def _same_deadline(native: MPIJob, annotated: MPIJob) -> bool:
    seconds = annotated.deadline_seconds
    return seconds is not None and native.deadline_seconds == max(1, math.ceil(seconds))


# Fields that a document may express with another value: trusted if the meaning is the same.
_EQUIVALENT: Mapping[str, Callable[[MPIJob, MPIJob], bool]] = {
    "command": lambda native, annotated: annotated.argv == native.argv,
    "args": lambda native, annotated: annotated.argv == native.argv,
    "labels": lambda native, annotated: user_labels(native) == user_labels(annotated),
    "cost": lambda native, annotated: user_labels(native) == user_labels(annotated),
    "mpi": lambda native, annotated: annotated.mpi is Family.AUTO or native.mpi is Family.AUTO,
    "env": _same_variables,
    "secrets": _same_secrets,
    "resources": lambda native, annotated: (
        _of_no_worker(native, annotated) or _same_amounts(native.resources, annotated.resources)
    ),
    "placement": _of_no_worker,
    "groups": _same_groups,
    "launcher": lambda native, annotated: _same_amounts(native.launcher, annotated.launcher),
    "grace_seconds": lambda native, annotated: 0 <= annotated.grace_seconds <= native.grace_seconds,
    "deadline_seconds": _same_deadline,
}
_ORDER = tuple(
    field for field in MPIJob.__struct_fields__ if field in {*_ONLY_ANNOTATED, *_EQUIVALENT, "programs"}
)


def elastic(annotations: Mapping[str, str]) -> Elastic | None:
    """Return the elastic limits in the annotation, None if it has none or is malformed."""
    try:
        return codec.convert(json.loads(annotations.get(REST_ANNOTATION) or "{}").get("elastic"), Elastic)
    except (msgspec.ValidationError, ValueError, TypeError, AttributeError, RecursionError):
        return None


def _beyond(theirs: Any, ours: Any, field: str) -> Any:
    if theirs == ours:
        return _NOTHING
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping) and field != _UNMERGED:
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
    if field == "securityContext" and isinstance(ours, Mapping) and isinstance(rest, Mapping):
        ours = _compatible(ours, rest)
    if isinstance(ours, Mapping) and isinstance(rest, Mapping) and field != _UNMERGED:
        both = {key: _merged(value, rest[key], key) if key in rest else value for key, value in ours.items()}
        return both | {key: copy.deepcopy(value) for key, value in rest.items() if key not in ours}
    if (key := _key(rest, ours, field)) is not None:
        more = {item[key]: item for item in rest}
        known = [_merged(item, more.pop(item[key], {}), "") for item in ours]
        return known + [copy.deepcopy(item) for item in more.values()]
    return copy.deepcopy(rest)


def _compatible(ours: Mapping[str, Any], rest: Mapping[str, Any]) -> dict[str, Any]:
    """Return our security context without fields that Kubernetes refuses beside the foreign ones."""
    added = (rest.get("capabilities") or {}).get("add") or ()
    powerful = rest.get("privileged") is True or {"SYS_ADMIN", "CAP_SYS_ADMIN"} & set(added)
    without = {"allowPrivilegeEscalation"} if powerful else set()
    kept = {key: value for key, value in ours.items() if key not in without}
    return kept | ({"runAsNonRoot": False} if rest.get("runAsUser") == 0 else {})


def _key(one: Any, other: Any, field: str) -> str | None:
    """Return the key that identifies items of two lists, None if they have none."""
    key = _LIST_KEYS.get(field)
    if key is None or not isinstance(one, list) or not isinstance(other, list):
        return None
    return key if all(_unique(items, key) for items in (one, other)) else None


def _unique(items: list[Any], key: str) -> bool:
    names = [
        item[key] for item in items if isinstance(item, Mapping) and isinstance(item.get(key), (str, int))
    ]
    return len(names) == len(items) == len(set(names))
