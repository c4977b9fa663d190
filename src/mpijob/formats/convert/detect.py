"""Detects the kind of a file by its content, and converts it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mpijob.errors import InvalidJob
from mpijob.formats.convert import batch_script, own_exports
from mpijob.formats.convert.kubernetes import mpijob_manifests, trainjob_manifests, undocumented
from mpijob.formats.convert.other import arena, cloud
from mpijob.formats.convert.report import Converted, FieldEntry, FieldOutcome
from mpijob.formats.jobfile import yaml_tree
from mpijob.formats.kubernetes import manifests, trainjob
from mpijob.formats.kubernetes.pod_reader import understandable

_STRUCTURED = re.compile(r"\A\s*[{\[]|^\s*(?:- )?[\"']?[A-Za-z_][\w./-]*[\"']?\s*:(?:\s|$)", re.MULTILINE)
_FORMS = (
    "a script (starts with #!, or has #SBATCH, #PBS or #BSUB lines), an arena command, a job file, an MPIJob or a "
    "TrainJob in YAML or JSON, settings of SageMaker or Azure ML"
)
_RUNTIMES = ("TrainingRuntime", "ClusterTrainingRuntime")


def read(text: str, *, to: str = "job", file: str = "") -> tuple[Converted, ...]:
    """Return the jobs of a file, each with its report; `to` is the form that will be written."""
    if batch_script.kind(text):
        return (batch_script.read(text, file),)
    if arena.is_arena(text):
        return arena.read(text, file)
    if text.startswith("#!"):
        return (batch_script.read(text, file),)
    if not _STRUCTURED.search(text):
        raise InvalidJob(f"{file or 'the text'} has an unknown format", hint=f"supported formats: {_FORMS}")
    return _structured(text, to, file)


def _structured(text: str, to: str, file: str) -> tuple[Converted, ...]:
    values = _values(text, file)
    if any(isinstance(value, Mapping) and ("apiVersion" in value or "kind" in value) for value in values):
        return documents(manifests.read(text, file), to=to, file=file)
    if values and isinstance(values[0], Mapping) and cloud.kind(values[0]):
        return tuple(cloud.read(value, file) for value in values)
    return own_exports.read(text, file)


def _values(text: str, file: str) -> list[Any]:
    return [manifests._value(root) for root in yaml_tree.parse(text, file).roots]


@understandable
def documents(
    found: Sequence[Mapping[str, Any]], *, to: str = "job", file: str = ""
) -> tuple[Converted, ...]:
    """Return the jobs among Kubernetes objects; a TrainJob gets the runtime that it names."""
    runtimes = [one for one in found if one.get("kind") in _RUNTIMES]
    strange = [one for one in found if undocumented.is_imagined(one)]
    if strange:
        return (undocumented.read(strange, file),)
    converted = []
    used: list[Mapping[str, Any]] = []
    for one in found:
        if one.get("kind") == "MPIJob":
            converted.append(mpijob_manifests.read(one, keep=to == "mpijob", file=file))
        elif one.get("kind") == trainjob.JOB:
            named = ((one.get("spec") or {}).get("runtimeRef") or {}).get("name")
            own_runtimes = [
                runtime for runtime in runtimes if (runtime.get("metadata") or {}).get("name") == named
            ]
            used += own_runtimes[:1]
            converted.append(
                trainjob_manifests.read([one, *own_runtimes[:1]], keep=to == "trainjob", file=file)
            )
    if not converted:
        kinds = ", ".join(sorted({str(one.get("kind")) for one in found}))
        raise InvalidJob(
            f"{file or 'the file'} contains no job, only {kinds}", hint="supported kinds: MPIJob and TrainJob"
        )
    others = [one for one in found if one.get("kind") not in ("MPIJob", trainjob.JOB) and one not in used]
    return (_with_others(converted[0], others), *converted[1:])


def _with_others(first: Converted, others: Sequence[Mapping[str, Any]]) -> Converted:
    """Return the result with a line on objects of the file that are not jobs."""
    if not others:
        return first
    names = [
        f"{other.get('kind')} {(other.get('metadata') or {}).get('name', '')}".strip() for other in others
    ]
    note = "these objects are not jobs and are ignored"
    todo = "if the job needs them, apply them with kubectl"
    entry = FieldEntry("other documents", FieldOutcome.DROPPED, ", ".join(names), "", note, todo)
    return msgspec.structs.replace(first, entries=(*first.entries, entry))
