"""Merge a job file with flags, and parse the result with the job file's own reader.

The file is parsed into plain values in which unquoted scalars keep their text (`0.10` in env is a string, in
a number field a number), the flags are merged, and the result is parsed again. Positions of errors are then
mapped back to lines of the file, unless a flag caused them. Without a file `job_args` needs neither this
module nor a YAML parser.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from mpijob.cli.arguments.flags import Merge
from mpijob.cli.arguments.overlay import Change, overlay
from mpijob.client.submit.validate import read_job
from mpijob.errors import Finding, InvalidJob
from mpijob.formats.jobfile import jobfile_reader, yaml_tree
from mpijob.formats.jobfile.yaml_tree import meaning
from mpijob.model import MPIJob


class PlainScalar(NamedTuple):
    """An unquoted scalar that is not a string: a number, true, null."""

    text: str


def job(text: str, file: str, changes: Sequence[Change]) -> MPIJob:
    """Return the job of a file, changed by flags."""
    forest = yaml_tree.parse(text, file)
    plain = len(forest.roots) == 1 and isinstance(forest.roots[0], yaml_tree.Mapping) and not forest.findings
    if not plain or not changes:
        return read_job(text, file)
    try:
        return read_job(_emitted(overlay(_values(forest.roots[0]), changes)))
    except InvalidJob as error:
        raise located(error, text, file, changes) from error


def located(error: InvalidJob, text: str, file: str, changes: Sequence[Change]) -> InvalidJob:
    """Return the error with each finding at its line of the file, or at the flag that caused it."""
    said = [path for change in changes for path in _paths(change)]
    findings = tuple(
        _without_place(finding)
        if any(_covers(path, finding.field) for path in said)
        else jobfile_reader.locate(text, (finding,), file=file)[0]
        for finding in error.findings
    )
    return InvalidJob.of(findings, file)


def _paths(change: Change) -> list[str]:
    if change.merge is Merge.KEYS:
        return [f"{change.path}.{key}" for key in change.value]
    return [change.path]


def _covers(path: str, field: str) -> bool:
    return field == path or field.startswith((f"{path}.", f"{path}["))


def _without_place(finding: Finding) -> Finding:
    return msgspec.structs.replace(finding, file="", line=0, column=0)


def _values(node: yaml_tree.Node) -> Any:
    if isinstance(node, yaml_tree.Mapping):
        return {key.text: _values(value) for key, value in node.entries}
    if isinstance(node, yaml_tree.Sequence):
        return [_values(item) for item in node.items]
    assert isinstance(node, yaml_tree.Scalar)
    return PlainScalar(node.text) if node.plain and not isinstance(meaning(node.text), str) else node.text


def _emitted(value: Any) -> str:
    if isinstance(value, PlainScalar):
        return value.text or "null"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_emitted(key)}: {_emitted(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_emitted(item) for item in value) + "]"
    return msgspec.json.encode(value).decode()
