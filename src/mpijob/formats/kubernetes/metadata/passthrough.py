"""What other people's documents say beyond our words: kept beside the job, and put back when it is written.

A reader takes out what it understands; what remains and differs from what we would write ourselves is
foreign. Lists whose items have names (containers, volumes, variables) are compared item by item, so an
extra container or a field nobody here has heard of survives, wherever it stands.

The other way round, what a job says and no field of a document can goes into one annotation, so that
every document of ours reads back as the very job it was written from. Users may write that annotation, so it
is never authority: it can add what the document does not tell and spell out what it does (`2` or `2000m`), but
whatever says something else than the document's own fields is not believed, and admission refuses it.
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
    told_labels,
)
from mpijob.model import Elastic, Family, MPIJob, Resources, Secret
from mpijob.model.spec.quantity import parse

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
# Amounts that belong together: requests and limits of two sources contradict each other.
_WHOLE = "resources"
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


def whole(native: MPIJob, annotations: Mapping[str, str], line: Sequence[str] = ()) -> MPIJob:
    """Return the job that a document was written from: its own fields, and what the annotation may add to them.

    `line` are the words that the document's launcher runs.
    """
    told, refused = _told(native, annotations, line)
    added = {name: getattr(told, name) for name in _ORDER if name not in refused}
    return native.replace(**added, owner=annotations.get(OWNER_LABEL) or native.owner)


def contradictions(
    native: MPIJob, annotations: Mapping[str, str], line: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the fields of which the annotation says something else than the document's own fields do."""
    try:
        return _told(native, annotations, line)[1]
    except InvalidJob:
        return ("cannot be read",)


def _told(
    native: MPIJob, annotations: Mapping[str, str], line: Sequence[str]
) -> tuple[MPIJob, tuple[str, ...]]:
    """Return the job with everything that the annotation says, and the fields in which it must not be believed."""
    try:
        said = json.loads(annotations.get(REST_ANNOTATION) or "{}")
        known = {name: value for name, value in said.items() if name in MPIJob.__struct_fields__}
        job = codec.convert(msgspec.to_builtins(native) | known, MPIJob)
    except (msgspec.ValidationError, ValueError, TypeError, AttributeError, RecursionError) as error:
        message = f"the annotation {REST_ANNOTATION} cannot be read: {error}"
        raise InvalidJob(message, hint="remove the annotation; the job is then read without it") from error
    return job, tuple(name for name in known if not _agrees(name, native, job, line))


def _agrees(name: str, native: MPIJob, told: MPIJob, line: Sequence[str]) -> bool:
    """Return whether a field of the annotation may stand beside what the document itself says."""
    if getattr(native, name) == getattr(told, name) or name in _UNTOLD:
        return True
    if name == "programs" or (told.programs and name in ("command", "args")):
        return not told.argv and _runs_programs(line, told)
    check = _SPELLED.get(name)
    try:
        return check is not None and check(native, told)
    except ValueError:
        # An amount that is no number.
        return False


# What no field of a TrainJob or MPIJob tells. Whatever is added here must give a job no power over others.
_UNTOLD = frozenset(
    {"description", "ranks", "cores_per_rank", "elastic", "launch", "presets", "code", "network", "after"}
    | {"gang_timeout_seconds", "retry", "signal", "requeue_on_lost_worker", "keep_on_failure_seconds"}
    | {"retention", "model", "census", "profile_mpi", "priority", "concurrency", "ttl_seconds", "notify"}
)


def _runs_programs(line: Sequence[str], told: MPIJob) -> bool:
    """Whether the launch line starts these programs, one behind the other, and no others."""
    rest = [*line]
    for program in told.programs:
        if SHIM not in rest:
            return False
        words = [*program.command, *program.args]
        rest = rest[rest.index(SHIM) + 1 :]
        if rest[: len(words)] != words or rest[len(words) : len(words) + 1] not in ([], [":"]):
            return False
        rest = rest[len(words) :]
    return not rest


def _same_secrets(native: MPIJob, told: MPIJob) -> bool:
    pairs = [*zip(native.secrets, told.secrets, strict=False)]
    return len(native.secrets) == len(told.secrets) and all(_same_secret(*pair) for pair in pairs)


def _same_secret(native: Secret, told: Secret) -> bool:
    """A value that was taken from the submitter's machine is in the Secret that was made for the job."""
    name, _, key = native.source.partition("/")
    ours = name.endswith(SECRETS_SUFFIX) and key == told.env and told.source.startswith(("env:", "file:"))
    return native.env == told.env and (ours or native.source == told.source)


def _same_variables(native: MPIJob, told: MPIJob) -> bool:
    """A variable of a secret's name is not written: the secret's value stands in its place."""
    hidden = {secret.env for secret in native.secrets}
    return dict(native.env) == {name: value for name, value in told.env.items() if name not in hidden}


def _same_amounts(native: Resources, told: Resources) -> bool:
    kind = told.gpu == 0 or native.gpu_kind == told.gpu_kind
    pairs = [(native.cpu, told.cpu), (native.memory, told.memory)]
    others = [(native.others.get(name, ""), amount) for name, amount in told.others.items()]
    same = all(str(one) == str(other) or parse(one) == parse(other) for one, other in (*pairs, *others))
    return native.gpu == told.gpu and kind and len(native.others) == len(told.others) and same


def _same_groups(native: MPIJob, told: MPIJob) -> bool:
    """The groups of a job are its replicated jobs: as many workers, and what each of them may use."""
    pairs = [*zip(native.parts, told.parts, strict=False)]
    return len(native.parts) == len(told.parts) and all(
        one.group == other.group
        and (one.job.workers, one.job.slots) == (other.job.workers, other.job.slots)
        and one.job.placement == other.job.placement
        and _same_amounts(one.job.resources, other.job.resources)
        for one, other in pairs
    )


def _of_no_worker(native: MPIJob, told: MPIJob) -> bool:
    """What all workers have from their groups, the job itself may say in any way: it is nobody's."""
    return bool(native.groups) and native.parts[0].group != ""


def _same_deadline(native: MPIJob, told: MPIJob) -> bool:
    seconds = told.deadline_seconds
    return seconds is not None and native.deadline_seconds == max(1, math.ceil(seconds))


# What a field tells in other words than the job did: believed as long as it means the same.
_SPELLED: Mapping[str, Callable[[MPIJob, MPIJob], bool]] = {
    "command": lambda native, told: told.argv == native.argv,
    "args": lambda native, told: told.argv == native.argv,
    "labels": lambda native, told: told_labels(native) == told_labels(told),
    "cost": lambda native, told: told_labels(native) == told_labels(told),
    "mpi": lambda native, told: told.mpi is Family.AUTO or native.mpi is Family.AUTO,
    "env": _same_variables,
    "secrets": _same_secrets,
    "resources": lambda native, told: (
        _of_no_worker(native, told) or _same_amounts(native.resources, told.resources)
    ),
    "placement": _of_no_worker,
    "groups": _same_groups,
    "launcher": lambda native, told: _same_amounts(native.launcher, told.launcher),
    "grace_seconds": lambda native, told: 0 <= told.grace_seconds <= native.grace_seconds,
    "deadline_seconds": _same_deadline,
}
_ORDER = tuple(one for one in MPIJob.__struct_fields__ if one in {*_UNTOLD, *_SPELLED, "programs"})


def elastic(annotations: Mapping[str, str]) -> Elastic | None:
    """Return between how many workers the annotation lets a job go on; None where it does not tell, or not readably."""
    try:
        return codec.convert(json.loads(annotations.get(REST_ANNOTATION) or "{}").get("elastic"), Elastic)
    except (msgspec.ValidationError, ValueError, TypeError, AttributeError, RecursionError):
        return None


def _beyond(theirs: Any, ours: Any, field: str) -> Any:
    if theirs == ours:
        return _NOTHING
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping) and field != _WHOLE:
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
    if isinstance(ours, Mapping) and isinstance(rest, Mapping) and field != _WHOLE:
        both = {key: _merged(value, rest[key], key) if key in rest else value for key, value in ours.items()}
        return both | {key: copy.deepcopy(value) for key, value in rest.items() if key not in ours}
    if (key := _key(rest, ours, field)) is not None:
        more = {item[key]: item for item in rest}
        known = [_merged(item, more.pop(item[key], {}), "") for item in ours]
        return known + [copy.deepcopy(item) for item in more.values()]
    return copy.deepcopy(rest)


def _compatible(ours: Mapping[str, Any], rest: Mapping[str, Any]) -> dict[str, Any]:
    """Return our security context without what Kubernetes refuses beside the foreign one."""
    added = (rest.get("capabilities") or {}).get("add") or ()
    powerful = rest.get("privileged") is True or {"SYS_ADMIN", "CAP_SYS_ADMIN"} & set(added)
    without = {"allowPrivilegeEscalation"} if powerful else set()
    kept = {key: value for key, value in ours.items() if key not in without}
    return kept | ({"runAsNonRoot": False} if rest.get("runAsUser") == 0 else {})


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
