"""Checks the types of a job's values, and reports all errors with their paths.

msgspec stops at the first error. Files (`formats/jobfile`) and jobs built in Python (`checks`) get the same messages.
`checks` validates well-typed values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from mpijob.model.spec.enums import choice_hint, did_you_mean, shown
from mpijob.model.spec.job import MPIJob

Path = tuple[str | int, ...]
_DEEPEST = 50
_AMOUNT = {inspect.StrType, inspect.IntType, inspect.FloatType}


class Problem(msgspec.Struct, frozen=True):
    """One value with a wrong type."""

    code: str
    path: Path
    message: str
    hint: str = ""

    @property
    def field(self) -> str:
        """The path as people write it: `launch.flags[2]`."""
        return written(self.path)


@cache
def job_type() -> inspect.StructType:
    """Return msgspec's description of the spec's type."""
    described = inspect.type_info(MPIJob)
    assert isinstance(described, inspect.StructType)
    return described


def written(path: Path) -> str:
    """Return a path as people write it: `launch.flags[2]`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{_name(part)}" for part in path)
    return text.removeprefix(".")


def problems(value: object) -> tuple[Problem, ...]:
    """Return every value of a job, or of a file's content, that has a wrong type."""
    return problems_in(value, job_type())


def problems_in(value: object, wanted: inspect.Type) -> tuple[Problem, ...]:
    """Return every value that does not match a type, as described by msgspec."""
    return tuple(_walk(value, wanted, ()))


def _name(part: object) -> str:
    text = shown(part)
    return part if isinstance(part, str) and repr(part) == text else text


def _walk(value: Any, wanted: inspect.Type, path: Path) -> Iterator[Problem]:
    match wanted:
        case inspect.StructType():
            yield from _walk_struct(value, wanted, path)
        case inspect.DictType():
            yield from _walk_mapping(value, wanted, path)
        case inspect.VarTupleType() | inspect.ListType():
            yield from _walk_list(value, wanted, path)
        case inspect.UnionType():
            yield from _walk_union(value, wanted, path)
        case inspect.EnumType():
            yield from _walk_word(value, wanted, path)
        case inspect.AnyType():
            yield from _walk_any(value, path, _DEEPEST)
        case _ if not _plain(value, wanted):
            yield _wrong(value, wanted, path)


def _walk_struct(value: Any, wanted: inspect.StructType, path: Path) -> Iterator[Problem]:
    if isinstance(value, wanted.cls):
        entries = {field.name: getattr(value, field.name) for field in wanted.fields}
    elif isinstance(value, Mapping):
        entries = dict(value)
    else:
        yield _wrong(value, wanted, path)
        return
    names = [field.name for field in wanted.fields]
    yield from (_unknown(key, names, path) for key in entries if key not in names)
    for field in wanted.fields:
        if field.name in entries:
            yield from _walk(entries[field.name], field.type, (*path, field.name))
        elif field.required:
            yield _missing(field.name, path)


def _walk_mapping(value: Any, wanted: inspect.DictType, path: Path) -> Iterator[Problem]:
    if not isinstance(value, Mapping):
        yield _wrong(value, wanted, path)
        return
    for key, item in value.items():
        if not isinstance(key, str):
            yield _odd_key(key, path)
        else:
            yield from _walk(item, wanted.value_type, (*path, key))


def _walk_list(value: Any, wanted: inspect.VarTupleType | inspect.ListType, path: Path) -> Iterator[Problem]:
    if not isinstance(value, (list, tuple)):
        yield _wrong(value, wanted, path)
        return
    for index, item in enumerate(value):
        yield from _walk(item, wanted.item_type, (*path, index))


def _walk_union(value: Any, wanted: inspect.UnionType, path: Path) -> Iterator[Problem]:
    parts = [part for part in wanted.types if isinstance(part, inspect.StructType)]
    if parts and value is not None:
        yield from _walk(value, parts[0], path)
    elif not any(_plain(value, part) for part in wanted.types):
        yield _wrong(value, wanted, path)


def _walk_word(value: Any, wanted: inspect.EnumType, path: Path) -> Iterator[Problem]:
    words = _words(wanted)
    if isinstance(value, wanted.cls) or (isinstance(value, str) and value in words):
        return
    if isinstance(value, str):
        yield Problem("UNKNOWN_WORD", path, f"{shown(value)} is not a valid value", choice_hint(value, words))
    else:
        yield _wrong(value, wanted, path)


def _walk_any(value: Any, path: Path, depth: int) -> Iterator[Problem]:
    if depth == 0:
        yield Problem("WRONG_TYPE", path, f"nested more than {_DEEPEST} deep", "flatten it")
    elif isinstance(value, Mapping):
        yield from (_odd_key(key, path) for key in value if not isinstance(key, str))
        for key, item in value.items():
            if isinstance(key, str):
                yield from _walk_any(item, (*path, key), depth - 1)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _walk_any(item, (*path, index), depth - 1)
    elif not (value is None or isinstance(value, (bool, int, float, str))):
        yield Problem("WRONG_TYPE", path, f"expected a plain value, got {shown(value)}", _GENERAL_HINT)


_GENERAL_HINT = "use text, numbers, true or false, lists and mappings"


def _odd_key(key: object, path: Path) -> Problem:
    return Problem("WRONG_TYPE", path, f"a name must be text, got {shown(key)}", "put the name in quotes")


def _plain(value: Any, wanted: inspect.Type) -> bool:
    match wanted:
        case inspect.NoneType():
            return value is None
        case inspect.StrType():
            return isinstance(value, str)
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.IntType():
            return isinstance(value, int) and not isinstance(value, bool)
        case inspect.FloatType():
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case _:
            return False


def _wrong(value: object, wanted: inspect.Type, path: Path) -> Problem:
    hint = "omit the field to use its default" if value is None else _type_hint(value, wanted, path)
    return Problem("WRONG_TYPE", path, f"expected {called(wanted)}, got {shown(value)}", hint)


def _type_hint(value: object, wanted: inspect.Type, path: Path) -> str:
    name = str(path[-1]) if path else ""
    if name.endswith("_seconds") and isinstance(value, str):
        flag = name.removesuffix("_seconds").replace("_", "-")
        return (
            f"write seconds, for example {name}: 600; the flag also accepts minutes and hours: --{flag} 10m"
        )
    if isinstance(wanted, inspect.VarTupleType) and isinstance(value, str):
        return "write a list, one word each: [python, train.py]"
    if isinstance(wanted, inspect.BoolType) and isinstance(value, str):
        word = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(value.lower(), "")
        return f"write {word}" if word else "write true or false, without quotes"
    if isinstance(wanted, inspect.StrType) and isinstance(value, (bool, int, float)):
        return f'put it in quotes: "{shown(value)}"'
    return ""


def _unknown(key: object, names: list[str], path: Path) -> Problem:
    meant = did_you_mean(key, names) if isinstance(key, str) else ""
    place = f" in {written(path)}" if path else ""
    guess = f"; did you mean '{meant}'?" if meant else ""
    hint = f"write {meant}" if meant else f"the fields here are: {', '.join(names)}"
    here = (*path, key) if isinstance(key, str) else path
    return Problem("UNKNOWN_FIELD", here, f"unknown field {shown(key)}{place}{guess}", hint)


def _missing(name: str, path: Path) -> Problem:
    place = f" in {written(path)}" if path else ""
    return Problem(
        "MISSING_FIELD", (*path, name), f"required field '{name}' is missing{place}", f"add {name}"
    )


def _words(wanted: inspect.EnumType) -> tuple[str, ...]:
    return tuple(str(member.value) for member in wanted.cls)


def called(wanted: inspect.Type) -> str:
    """Return a type's name for messages: `a whole number`, `a list of text`."""
    match wanted:
        case inspect.UnionType():
            return _called_union(wanted)
        case inspect.EnumType():
            return f"one of {', '.join(_words(wanted))}"
        case inspect.VarTupleType():
            return f"a list of {_called_items(wanted.item_type)}"
        case inspect.DictType():
            return f"a mapping of names to {_called_items(wanted.value_type)}"
        case _:
            return _CALLED.get(type(wanted), "a value")


_CALLED: dict[type[inspect.Type], str] = {
    inspect.StrType: "text",
    inspect.IntType: "a whole number",
    inspect.FloatType: "a number",
    inspect.BoolType: "true or false",
    inspect.NoneType: "nothing",
    inspect.StructType: "a mapping",
}


def _called_union(wanted: inspect.UnionType) -> str:
    kinds = {type(part) for part in wanted.types}
    if kinds == _AMOUNT:
        return "an amount such as 2, 500m or 4Gi"
    return " or ".join(called(part) for part in wanted.types if not isinstance(part, inspect.NoneType))


def _called_items(wanted: inspect.Type) -> str:
    if isinstance(wanted, inspect.UnionType) and {type(part) for part in wanted.types} == _AMOUNT:
        return "amounts"
    return (
        "mappings"
        if isinstance(wanted, (inspect.StructType, inspect.DictType))
        else _CALLED.get(type(wanted), "values")
    )
