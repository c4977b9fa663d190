"""Reads and writes job files: YAML or JSON with the fields of `MPIJob`.

All errors of a file are reported at once, with line and column. `model/spec/type_check` checks types, for files and
for jobs built in Python; `checks` validates values, and `locate` adds the positions in the file to its findings.
"""

from __future__ import annotations

import shlex
from typing import Any, Literal

import msgspec
from msgspec import inspect

from mpijob import codec
from mpijob.errors import Finding
from mpijob.formats.jobfile import jobfile_writer
from mpijob.formats.jobfile.yaml_tree import (
    Mapping,
    Node,
    Scalar,
    Sequence,
    YamlDocuments,
    finding,
    meaning,
    parse,
    refused,
)
from mpijob.model import MPIJob
from mpijob.model.spec.enums import did_you_mean
from mpijob.model.spec.type_check import Path, job_type, problems, written

_SPLIT = frozenset({"command", "args"})
Places = dict[Path, Node]


def read(text: str | bytes, *, file: str = "") -> MPIJob:
    """Return the one job of a file; raise InvalidJob with all of its errors."""
    forest = parse(text, file)
    if len(forest.roots) != 1:
        raise refused([_count(forest.roots)], file)
    return _jobs(forest, file)[0]


def read_all(text: str | bytes, *, file: str = "") -> tuple[MPIJob, ...]:
    """Return all jobs of a file with several documents; raise InvalidJob with the errors of all."""
    forest = parse(text, file)
    if not forest.roots:
        raise refused([_count(forest.roots)], file)
    return _jobs(forest, file)


def write(job: MPIJob, *, format: Literal["yaml", "json"] = "yaml") -> str:
    """Return the job as a file that reads back as the same job; defaults are left out."""
    return jobfile_writer.write(job, format)


def sketch(text: str | bytes) -> MPIJob | None:
    """Return the readable part of an invalid file, of any type, so that `checks` can examine the rest.

    A field with an unknown name counts as the most similar one.
    """
    roots = parse(text).roots
    if len(roots) != 1 or not isinstance(roots[0], Mapping) or is_manifest(roots[0]):
        return None
    tree, names = _Reader().convert(roots[0], job_type(), ()), MPIJob.__struct_fields__
    meant = {did_you_mean(name, names): value for name, value in tree.items() if name not in names}
    known = {name: value for name, value in (meant | tree).items() if name in names}
    return MPIJob(**({"name": "job"} | known))


def values(text: str | bytes) -> dict[str, Any]:
    """Return a file's content as plain values, with unknown fields; empty if it cannot be parsed."""
    roots = parse(text).roots
    if len(roots) != 1 or not isinstance(roots[0], Mapping) or is_manifest(roots[0]):
        return {}
    found: dict[str, Any] = _Reader().convert(roots[0], job_type(), ())
    return found


def locate(text: str | bytes, findings: tuple[Finding, ...], *, file: str = "") -> tuple[Finding, ...]:
    """Return the findings about a file's first job with the line and column of the field they name."""
    reader = _Reader()
    root = parse(text, file).roots[0]
    reader.convert(root, job_type(), ())
    places = {written(path): node for path, node in reader.places.items()}
    return tuple(_located(one, places, root, file) for one in findings)


def _located(one: Finding, places: dict[str, Node], root: Node, file: str) -> Finding:
    field = one.field
    while field and field not in places:
        field = field[: max(field.rfind("."), field.rfind("["), 0)]
    node = places.get(field, root)
    return msgspec.structs.replace(one, file=file, line=node.line, column=node.column)


def _count(roots: tuple[Node, ...]) -> Finding:
    if not roots:
        message, hint = "the file is empty", "a job needs a name and a command"
        return Finding(code="EMPTY", message=message, hint=hint, line=1, column=1)
    return several(roots[1], len(roots))


def several(second: Node, count: int = 2) -> Finding:
    """Return the error for a file with more than one job."""
    message = f"the file holds {count} jobs, and one is expected"
    return finding("SEVERAL_JOBS", second, message, "keep one, or read them all together")


def _jobs(forest: YamlDocuments, file: str) -> tuple[MPIJob, ...]:
    documents = [_plain_values(root) for root in forest.roots]
    refused_places = {(one.line, one.column) for one in forest.findings}
    wrong = [one for _, found in documents for one in found if (one.line, one.column) not in refused_places]
    if wrong or forest.findings:
        raise refused([*forest.findings, *wrong], file)
    return tuple(codec.convert(tree, MPIJob) for tree, _ in documents)


def _plain_values(root: Node) -> tuple[Any, list[Finding]]:
    """Return a document's plain values and its errors."""
    if not isinstance(root, Mapping):
        return None, [
            finding(
                "WRONG_TYPE",
                root,
                "a job is a mapping of fields",
                "for example: name: my-job; scripts of Slurm and PBS become one by mpijob convert FILE",
            )
        ]
    if is_manifest(root):
        return None, [explained(root)]
    reader = _Reader()
    tree = reader.convert(root, job_type(), ())
    return tree, [*reader.findings, *_wrong_types(tree, reader.places, root)]


def _wrong_types(tree: Any, places: Places, root: Node) -> list[Finding]:
    found = []
    for problem in problems(tree):
        path = problem.path
        while path and path not in places:
            path = path[:-1]
        node = places.get(path, root)
        found.append(finding(problem.code, node, problem.message, problem.hint, problem.path))
    return found


class _Reader:
    """Converts a tree to plain values, by the types of the spec at each position."""

    def __init__(self) -> None:
        self.places: Places = {}
        self.findings: list[Finding] = []

    def convert(self, node: Node, wanted: inspect.Type, path: Path) -> Any:
        self.places.setdefault(path, node)
        wanted = _without_none(wanted)
        if isinstance(node, Mapping):
            return self._mapping(node, wanted, path)
        if isinstance(node, Sequence):
            item = wanted.item_type if isinstance(wanted, inspect.VarTupleType) else inspect.AnyType()
            return [self.convert(child, item, (*path, at)) for at, child in enumerate(node.items)]
        assert isinstance(node, Scalar)
        if isinstance(wanted, inspect.VarTupleType) and path[-1] in _SPLIT:
            return self._words(node, path)
        return _value(node, wanted, inside=_is_inside(path))

    def _mapping(self, node: Mapping, wanted: inspect.Type, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, child in node.entries:
            here = (*path, key.text)
            self.places[here] = key if _unknown(key.text, wanted) else child
            values[key.text] = self.convert(child, _field_type(key.text, wanted), here)
        return values

    def _words(self, node: Scalar, path: Path) -> Any:
        """Return the words of a command in one line; it is never passed to a shell."""
        if node.plain and meaning(node.text) is None:
            return None
        try:
            return shlex.split(node.text)
        except ValueError:
            message = "unbalanced quote in the command"
            self.findings.append(finding("SYNTAX", node, message, "write a list: [python, train.py]", path))
            return []


def _without_none(wanted: inspect.Type) -> inspect.Type:
    """Return the structure inside an optional type; other types unchanged."""
    if isinstance(wanted, inspect.UnionType):
        return next((part for part in wanted.types if isinstance(part, inspect.StructType)), wanted)
    return wanted


def _unknown(name: str, wanted: inspect.Type) -> bool:
    return isinstance(wanted, inspect.StructType) and all(field.name != name for field in wanted.fields)


def _field_type(name: str, wanted: inspect.Type) -> inspect.Type:
    if isinstance(wanted, inspect.StructType):
        return next((field.type for field in wanted.fields if field.name == name), inspect.AnyType())
    return wanted.value_type if isinstance(wanted, inspect.DictType) else inspect.AnyType()


def _is_inside(path: Path) -> bool:
    """Return whether a scalar is in a list or in a mapping with the user's own keys (env, labels)."""
    if not path or isinstance(path[-1], int):
        return True
    wanted: inspect.Type = job_type()
    for part in path[:-1]:
        wanted = _without_none(wanted)
        if isinstance(part, int) and isinstance(wanted, inspect.VarTupleType):
            wanted = wanted.item_type
        else:
            wanted = _field_type(str(part), wanted)
    return isinstance(_without_none(wanted), inspect.DictType)


def _value(node: Scalar, wanted: inspect.Type, *, inside: bool) -> Any:
    """Return a scalar's value. Where text is expected, numbers are taken literally, and in env and lists also true
    and false.
    """
    if not node.plain:
        return node.text
    found = meaning(node.text)
    if isinstance(wanted, inspect.StrType) and found is not None and (inside or not isinstance(found, bool)):
        return node.text
    return found


_TRAINJOB = "trainer.kubeflow.org/v1alpha1"
_MPIJOB = "kubeflow.org/v2beta1"
_REAL = {("TrainJob", _TRAINJOB), ("MPIJob", _MPIJOB)}
_CONVERT = "`mpijob convert FILE > job.yaml` converts it as far as its meaning is clear"
_OURS = "a job file has no apiVersion and no kind; it begins with name, workers and command"


def is_manifest(root: Mapping) -> bool:
    """Return whether a file is a Kubernetes manifest."""
    return root.get("apiVersion") is not None or root.get("kind") is not None


def explained(root: Mapping) -> Finding:
    """Return what to do with a manifest, and whether any release has its form."""
    kind, version = _text(root.get("kind")), _text(root.get("apiVersion"))
    place = root.get("apiVersion") or root.get("kind") or root
    called = f"{kind or 'a manifest'} of {version or 'an unnamed version'}"
    if (kind, version) in _REAL:
        hint = f"`mpijob convert FILE > job.yaml` converts it to a job file; {_OURS}"
        return finding("MANIFEST", place, f"{called} is a Kubernetes manifest, not a job file", hint)
    if _in_no_release(root, kind, version):
        message = f"{called} is not in any release of Kubeflow"
        hint = f"the real forms are kind TrainJob of {_TRAINJOB} and kind MPIJob of {_MPIJOB}; {_CONVERT}"
        return finding("NO_SUCH_API", place, message, hint)
    return finding("MANIFEST", place, f"{called} is a Kubernetes manifest, not a job file", _OURS)


def _in_no_release(root: Mapping, kind: str, version: str) -> bool:
    spec = root.get("spec")
    fields = {key.text for key, _ in spec.entries} if isinstance(spec, Mapping) else set()
    wrong_version = (
        kind in ("TrainJob", "MPIJob") and "kubeflow.org" in version and (kind, version) not in _REAL
    )
    return wrong_version or bool(fields & {"trainingFramework", "mpiImplementation"})


def _text(node: Node | None) -> str:
    return node.text[:60] if isinstance(node, Scalar) else ""
