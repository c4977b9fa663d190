"""The form of the page's wizard: where each field of the model stands in it, and with which input.

`python -m tools.form` writes frontend/src/wizard/form.ts; tests/unit/project/test_form.py fails while it is behind, or
when the model has a field without a place here. Kind of input, first value and words to choose come from the model;
only the place and the label are said here. What a field is for comes from `mpijob.model.spec.field_docs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from mpijob.model import MPIJob
from tools.form_places import GROUPS, PLACES, Place

COMMAND = "python -m tools.form"
FILE = Path(__file__).resolve().parent.parent / "frontend" / "src" / "wizard" / "form.ts"
STEPS = {"workload": "Workload", "resources": "Resources", "options": "Options"}


class Entry(NamedTuple):
    """One field of the form."""

    path: str
    place: Place
    kind: str
    initial: str
    options: tuple[str, ...]
    required: bool

    @property
    def where(self) -> str:
        """The step, and in it the group, in the page's words."""
        return STEPS[self.place.step] + (f" › {self.place.group}" if self.place.group else "")


def entries() -> list[Entry]:
    """Return the whole form in its order; a field of the model without a place raises KeyError."""
    model = dict(_leaves(inspect.type_info(MPIJob), MPIJob(name="")))
    made = {path: _entry(path, kind, value) for path, (kind, value) in model.items()}
    rank = {path: at for at, path in enumerate(PLACES)}
    return sorted(made.values(), key=lambda one: (_step(one), _group(one), rank[one.path]))


def _step(entry: Entry) -> int:
    return [*STEPS].index(entry.place.step)


def _group(entry: Entry) -> int:
    return GROUPS.index(entry.place.group) if entry.place.group else -1


def _leaves(kind: inspect.Type, value: Any, path: str = "") -> Iterator[tuple[str, tuple[inspect.Type, Any]]]:
    """Yield every field that holds no further structure of its own, with its default."""
    if (inner := _part(kind)) is None:
        yield path, (kind, value)
        return
    for field in inner.fields:
        below = getattr(value, field.name) if value is not None else _default(field)
        yield from _leaves(field.type, below, f"{path}.{field.name}".lstrip("."))


def _part(kind: inspect.Type) -> inspect.StructType | None:
    if isinstance(kind, inspect.StructType):
        return kind
    if isinstance(kind, inspect.UnionType):
        return next((one for one in kind.types if isinstance(one, inspect.StructType)), None)
    return None


def _default(field: inspect.Field) -> Any:
    return None if field.required or field.default is msgspec.NODEFAULT else field.default


def _entry(path: str, kind: inspect.Type, value: Any) -> Entry:
    place = PLACES[path]
    options = (
        tuple(str(one.value) for one in kind.cls) if isinstance(kind, inspect.EnumType) else place.options
    )
    return Entry(
        path=path,
        place=place,
        kind=place.kind or ("choice" if options else _kind(kind)),
        initial=_initial(value),
        options=options,
        required=path in ("name", "command"),
    )


def _kind(kind: inspect.Type) -> str:
    """Return the input that suits a type; what has parts of its own is written as YAML."""
    if isinstance(kind, inspect.UnionType):
        some = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
        return _kind(some[0]) if len(some) == 1 else "word"
    if isinstance(kind, inspect.BoolType):
        return "switch"
    if isinstance(kind, (inspect.IntType, inspect.FloatType)):
        return "number"
    if isinstance(kind, inspect.VarTupleType):
        return "list" if isinstance(kind.item_type, inspect.StrType) else "yaml"
    if isinstance(kind, inspect.DictType):
        return "yaml" if isinstance(kind.value_type, inspect.AnyType) else "pairs"
    return "text"


def _initial(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or isinstance(value, (tuple, Mapping)):
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _written(entry: Entry) -> dict[str, Any]:
    place = entry.place
    entry_fields: dict[str, Any] = {
        "path": entry.path,
        "step": place.step,
        "group": place.group,
        "label": place.label,
        "kind": entry.kind,
        "initial": entry.initial,
        "help": place.help,
        "options": entry.options,
        "offered": place.offered,
        "cluster": place.cluster,
        "required": entry.required,
    }
    return {key: value for key, value in entry_fields.items() if value or key in ("path", "initial")}


def text() -> str:
    """Return the file as it is kept in the repository."""
    head = (
        f"// Written by `{COMMAND}` from the model and tools/form_places.py: change those, not this file.\n"
        'import type { Field } from "./fields";\n\n'
        "export const FORM: readonly Field[] = [\n"
    )
    lines = (f"  {msgspec.json.encode(_written(one)).decode()},\n" for one in entries())
    return head + "".join(lines) + "];\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
