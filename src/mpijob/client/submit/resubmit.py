"""Submit existing jobs again: retry, clone, replace; and bulk actions.

A created job is immutable; a change is a changed copy that is submitted. The copy takes the old name after
the old job has ended, or in one step (`replace`) before it has started.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from mpijob import codec
from mpijob.client import paging
from mpijob.client.audit.recorder import meaning
from mpijob.client.submit import pipeline
from mpijob.errors import Conflict, InvalidJob, MpiJobError, NotFound
from mpijob.model import JobRef, MPIJob, Phase, Scope
from mpijob.model.status.audit import Verb

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend
    from mpijob.settings import Settings

_NOT_STARTED = (Phase.QUEUED, Phase.SUSPENDED)


class Done(msgspec.Struct, frozen=True):
    """The result of a bulk action for one job; `error` is empty on success."""

    ref: JobRef
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether it worked."""
        return not self.error


def fixed_fields(ref: JobRef, with_fix: int | None, backend: Backend, settings: Settings) -> dict[str, Any]:
    """Return the fields that a numbered fix of the diagnosis changes, with their new values."""
    if with_fix is None:
        return {}
    # Imported here because the rules take long to load.
    from mpijob.client.observe import diagnose

    diagnosis = diagnose.of_job(ref, backend, settings)
    return diagnose.fixed_fields(backend.spec(ref), diagnosis, with_fix)


def retry(
    ref: JobRef, backend: Backend, *, max_workers: int, wanted: Mapping[str, Any] | None = None
) -> JobRef:
    """Submit the same or a changed configuration as a new job of the same name; the old record is kept."""
    state = backend.get(ref)
    if not state.phase.final:
        raise Conflict(
            f"{ref} is {state.phase.value}; only a job that has ended can be retried",
            hint=f"cancel it first: mpijob cancel {ref.name}",
        )
    spec = backend.spec(state.ref)
    changed = apply(spec, wanted) if wanted else spec
    with meaning(Verb.RETRY, state.ref, spec, changed):
        return pipeline.submit(changed, backend, max_workers=max_workers)


def clone(
    ref: JobRef, new_name: str | None, wanted: Mapping[str, Any], backend: Backend, *, max_workers: int
) -> JobRef:
    """Submit a changed copy under a new name; without one, the first free `name-2`, `name-3`, …"""
    spec = backend.spec(ref)
    name = new_name or _free_name(spec, backend)
    copy = apply(spec, {**wanted, "name": name})
    with meaning(Verb.CLONE, ref, spec, copy):
        return pipeline.submit(copy, backend, max_workers=max_workers)


def replace(ref: JobRef, wanted: Mapping[str, Any], backend: Backend, *, max_workers: int) -> JobRef:
    """Submit a changed copy under the same name, in place of a job that has not started."""
    state = backend.get(ref)
    if not (state.phase.final or state.phase in _NOT_STARTED):
        raise Conflict(
            f"{ref} is {state.phase.value}; only a job that has not started or has ended can be replaced",
            hint=f"clone it under a new name, or cancel it first: mpijob cancel {ref.name}",
        )
    spec = backend.spec(state.ref)
    copy = apply(spec, {**wanted, "name": state.ref.name})
    # The copy is checked, admitted and planned before the old job is cancelled.
    with meaning(Verb.CHANGE, state.ref, spec, copy):
        return pipeline.submit_prepared(copy, backend, max_workers=max_workers, replaces=state)


def refuse_new_name(ref: JobRef, new_name: str | None) -> None:
    if new_name not in (None, ref.name):
        raise InvalidJob(
            f"{ref} keeps its name when it is replaced", hint="leave out the new name, or clone it"
        )


def each(
    scope: Scope, backend: Backend, act: Callable[[JobRef], object], *, unlimited: bool = False
) -> tuple[Done, ...]:
    """Do something to every job of a scope; an error of one job does not stop the others."""
    if not (unlimited or scope.selector or scope.phases or scope.names or scope.owner or scope.text):
        raise InvalidJob("this would mean every job", hint="specify a selector or phases, or --all")
    done = []
    # Listed completely first: the action changes the list that would be paged.
    for state in list(paging.pages(scope, backend)):
        done.append(_run_action(state.ref, act))
    return tuple(done)


def _run_action(ref: JobRef, act: Callable[[JobRef], object]) -> Done:
    try:
        act(ref)
    except MpiJobError as error:
        return Done(ref, error.message)
    return Done(ref)


def _free_name(spec: MPIJob, backend: Backend) -> str:
    stem, _, number = spec.name.rpartition("-")
    first = int(number) + 1 if stem and number.isdecimal() else 2
    stem = stem if stem and number.isdecimal() else spec.name
    for index in count(first):
        name = f"{stem}-{index}"
        try:
            backend.get(JobRef(spec.namespace, name))
        except NotFound:
            return name
    raise AssertionError("count never ends")


# Values of these are text whatever was given, as a shell would have it.
_TEXT_MAPS = ("env", "labels", "cost")


def apply(job: MPIJob, changes: Mapping[str, Any]) -> MPIJob:
    """Return a copy with changed fields; raise InvalidJob for a field that does not exist."""
    data = msgspec.to_builtins(job)
    for path, value in changes.items():
        _set(data, path, value)
    try:
        return codec.convert(data, MPIJob)
    except msgspec.ValidationError as error:
        raise InvalidJob(f"cannot change {', '.join(changes)}: {error}") from error


def _set(data: dict[str, Any], path: str, value: Any) -> None:
    first, *rest = path.split(".", 1)
    _require(first, MPIJob, path)
    if not rest:
        data[first] = _texts(value) if first in _TEXT_MAPS else msgspec.to_builtins(value)
    elif first in _TEXT_MAPS:
        data[first] = {**data.get(first, {}), rest[0]: _text(value)}
    else:
        _set_within(data, path, msgspec.to_builtins(value))


def _set_within(data: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    kind: Any = MPIJob
    for parent in parents:
        _require(parent, kind, path)
        data[parent] = dict(data.get(parent) or {})
        data, kind = data[parent], _kind_of(kind, parent)
    _require(last, kind, path)
    data[last] = value


def _kind_of(kind: Any, field: str) -> Any:
    """Return the struct type of a field, or None for a mapping, which takes any name."""
    if kind is None:
        return None
    default = {item.name: item.default for item in msgspec.structs.fields(kind)}.get(field)
    return type(default) if isinstance(default, msgspec.Struct) else None


def _require(name: str, kind: Any, path: str) -> None:
    if kind is None or name in kind.__struct_fields__:
        return
    from mpijob.model.spec.enums import choice_hint

    raise InvalidJob(f"a job has no field '{path}'", hint=choice_hint(name, kind.__struct_fields__))


def _texts(value: Any) -> Any:
    return {key: _text(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else value
