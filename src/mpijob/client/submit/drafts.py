"""Drafts: job files that are still being edited, with all their errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from mpijob import codec
from mpijob.client.submit.validate import read_job
from mpijob.errors import Finding, InvalidJob
from mpijob.model import MPIJob
from mpijob.model.spec.field_docs import FIELDS as _DESCRIBED
from mpijob.model.spec.field_docs import Description

if TYPE_CHECKING:
    from mpijob.client.base import Format

_PARTS = {"Resources": ("resources", "launcher"), "Launch": ("launch",), "CustomLaunch": ("launch.custom",),
          "Code": ("code",), "GitSource": ("code.git",), "Retry": ("retry",), "Placement": ("placement",),
          "Network": ("network",),
          "Elastic": ("elastic",), "Signal": ("signal",), "Retention": ("retention",), "Model": ("model",),
          "Program": ("programs",), "Concurrency": ("concurrency",), "Notify": ("notify",),
          "Secret": ("secrets",), "Volume": ("volumes",)}  # fmt: skip


def _paths(key: str) -> list[str]:
    kind, _, field = key.partition(".")
    return [field] if kind == "MPIJob" else [f"{part}.{field}" for part in _PARTS.get(kind, ())]


FIELDS: dict[str, Description] = {path: said for key, said in _DESCRIBED.items() for path in _paths(key)}


def write(job: MPIJob, format: Format = "yaml") -> str:
    from mpijob.formats.jobfile import jobfile_reader

    return jobfile_reader.write(job, format=format)


def shown(job: MPIJob, format: Format = "yaml") -> str:
    """Return the job as a job file with secrets masked."""
    from mpijob.observation.redaction import masking

    return write(masking.masked_job(job), format)


class DraftResult(msgspec.Struct, frozen=True, kw_only=True):
    """A text and the job in it, as far as it can be read; with errors and unknown fields."""

    text: str
    job: MPIJob | None = None
    findings: tuple[Finding, ...] = ()
    unknown: tuple[str, ...] = ()


def parse(text: str, *, max_workers: int = 100) -> DraftResult:
    """Parse a text; errors are returned, not raised."""
    try:
        job = read_job(text)
        return DraftResult(text=text, job=job, findings=_checked(text, job, max_workers))
    except InvalidJob as error:
        unknown = tuple(one.field for one in error.findings if one.code == "UNKNOWN_FIELD")
        return DraftResult(text=text, job=_readable(text), findings=error.findings, unknown=unknown)


def _checked(text: str, job: MPIJob, max_workers: int) -> tuple[Finding, ...]:
    from mpijob import checks
    from mpijob.formats.jobfile import jobfile_reader

    return jobfile_reader.locate(text, checks.run(job, max_workers=max_workers))


def change(text: str, fields: Mapping[str, Any]) -> str:
    """Return the text with fields changed by path (`env.LR`; None removes one). Comments and order are kept."""
    from mpijob.formats.jobfile import yaml_edit

    wanted = {_path(path): yaml_edit.GONE if value is None else value for path, value in fields.items()}
    return yaml_edit.edit(text, wanted)


def rewrite(text: str, job: Mapping[str, Any]) -> str:
    """Return the text with the values of a form; comments and fields that the form does not have are kept."""
    from mpijob.formats.jobfile import jobfile_reader, yaml_edit

    return yaml_edit.edit(text, dict(_differences(jobfile_reader.values(text), job, MPIJob, ())))


def _path(path: str) -> tuple[str, ...]:
    """Split a path; names in `env`, `labels` and `cost` may contain dots."""
    first, dot, rest = path.partition(".")
    if not dot:
        return (first,)
    return (first, rest) if first in ("env", "labels", "cost") else (first, *rest.split("."))


def _differences(
    has: Mapping[str, Any], wants: Mapping[str, Any], kind: Any, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the changes that make a text equal to a form; an omitted field equals its default."""
    from mpijob.formats.jobfile import yaml_edit

    defaults = _defaults(kind)
    for name in {**has, **wants} if kind is None else defaults:
        here, default = (*path, name), defaults.get(name, msgspec.NODEFAULT)
        old, new = has.get(name), wants.get(name)
        if _same(old, default if new is None else new) or (old is None and _same(new, default)):
            continue
        inner = type(default) if isinstance(default, msgspec.Struct) else None
        if isinstance(new, Mapping) and (isinstance(old, Mapping) or inner is not None):
            yield from _differences(old if isinstance(old, Mapping) else {}, new, inner, here)
        elif old is not None or new is not None:
            yield here, yaml_edit.GONE if new is None else new


def _defaults(kind: Any) -> dict[str, Any]:
    """Return the fields of a part of the spec with their defaults."""
    if kind is None:
        return {}
    made = {}
    for field in msgspec.structs.fields(kind):
        factory = field.default_factory
        made[field.name] = field.default if factory is msgspec.NODEFAULT else factory()
    return made


def _builtin(value: Any) -> Any:
    made = msgspec.to_builtins(value)
    return list(made) if isinstance(made, tuple) else made


def _same(one: Any, other: Any) -> bool:
    return msgspec.NODEFAULT not in (one, other) and _builtin(one) == _builtin(other)


def _readable(text: str) -> MPIJob | None:
    """Return the job without its invalid fields; None if the text is no job at all."""
    from mpijob.formats.jobfile import jobfile_reader
    from mpijob.model.spec import type_check

    try:
        tree = jobfile_reader.values(text)
    except InvalidJob:
        return None
    for problem in type_check.problems(tree):
        _drop(tree, problem.path)
    try:
        return codec.convert({"name": "", **tree}, MPIJob) if tree else None
    except msgspec.ValidationError:
        return None


def _drop(tree: Any, path: tuple[str | int, ...]) -> None:
    """Remove an invalid field; an item of a list removes the whole list."""
    for at, part in enumerate(path):
        if not isinstance(tree, dict):
            return
        nested = tree.get(part)
        if at == len(path) - 1 or not isinstance(nested, dict):
            tree.pop(part, None)
            return
        tree = nested
