"""Changes single fields in the text of a job file and keeps everything else: comments, order, unknown fields.

The result is parsed and compared; a text that cannot be changed safely is refused. `jobfile_writer` writes new files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from mpijob.errors import InvalidJob
from mpijob.formats.jobfile import jobfile_writer
from mpijob.formats.jobfile.jobfile_reader import several
from mpijob.formats.jobfile.yaml_tree import parse, refused

Path = tuple[str, ...]
MOST_CHANGES, MOST_LETTERS = 200, 256 << 10
# As a value: the field is removed.
GONE: Any = msgspec.UNSET
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLAIN = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def edit(text: str, changes: Mapping[Path, Any]) -> str:
    """Return the text with some fields set, or removed (GONE); raise InvalidJob."""
    text = text.removeprefix("\ufeff")
    if len(changes) > MOST_CHANGES or (changes and len(text) > MOST_LETTERS):
        raise InvalidJob(
            f"{len(changes)} changes in a text of {len(text)} characters are too many at once "
            f"(at most {MOST_CHANGES} and {MOST_LETTERS} characters)",
            hint="edit the text directly",
        )
    # Raises InvalidJob for malicious or malformed YAML.
    forest = parse(text)
    if forest.findings or len(forest.roots) > 1:
        raise refused([*forest.findings] or [several(forest.roots[1])], "")
    wanted = _plain(text) if changes else None
    for path, value in changes.items():
        wanted, text = _wanted(wanted, path, value), _changed(text, path, value)
        if _plain(text) != (wanted or None):
            raise InvalidJob(
                f"{'.'.join(path)} cannot be changed in this text without rewriting it",
                hint="edit the text directly",
            )
    return text


def _plain(text: str) -> Any:
    """Return the text's values as written, every scalar as text."""
    try:
        return yaml.load(text, Loader=_PLAIN) or None  # noqa: S506 the base loader makes text alone
    except yaml.YAMLError:
        return None


def _wanted(before: Any, path: Path, value: Any) -> Any:
    """Return the values that the text must have afterwards."""
    root = before if isinstance(before, dict) else {}
    name, rest = path[0], path[1:]
    others = {key: item for key, item in root.items() if key != name}
    if rest:
        inner = _wanted(root.get(name), rest, value)
        new: Any = inner if inner or value is not GONE else GONE
    else:
        new = value if value is GONE else _plain(_written("x", value, 0))["x"]
    return others if new is GONE else {**root, name: new}


def _changed(text: str, path: Path, value: Any) -> str:
    root = yaml.compose(text, Loader=_LOADER)
    if not isinstance(root, yaml.MappingNode):
        return (
            text
            if value is GONE
            else _end_with_newline(text) + _written(path[0], _nested(path[1:], value), 0)
        )
    return _within(text, root, path, value)


def _within(text: str, parent: yaml.MappingNode, path: Path, value: Any) -> str:
    found = next(((key, node) for key, node in parent.value if key.value == path[0]), None)
    if found is None:
        return text if value is GONE else _added(text, parent, path[0], _nested(path[1:], value))
    key, node = found
    if len(path) > 1 and isinstance(node, yaml.MappingNode) and node.value:
        if value is GONE and _is_only(node, path[1:]):
            return _removed(text, parent, key, node)
        return _within(text, node, path[1:], value)
    if value is GONE:
        return text if len(path) > 1 else _removed(text, parent, key, node)
    return _replaced(text, parent, key, node, _nested(path[1:], value))


def _is_only(node: yaml.MappingNode, path: Path) -> bool:
    """Return whether a mapping has only the field at the end of the path."""
    while len(node.value) == 1 and node.value[0][0].value == path[0]:
        if len(path) == 1:
            return True
        inner = node.value[0][1]
        if not isinstance(inner, yaml.MappingNode):
            return False
        node, path = inner, path[1:]
    return False


def _nested(path: Path, value: Any) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value


# -- the text itself ------------------------------------------------------------------------------
def _added(text: str, parent: yaml.MappingNode, name: str, value: Any) -> str:
    """Return the text with a new field after the last one of a mapping."""
    if parent.flow_style or not parent.value:
        return _rewritten(text, parent, {name: value})
    indent = parent.value[0][0].start_mark.column
    end = _end(text, parent.value[-1][1])
    line_end = text.find("\n", end)
    before, after = (text + "\n", "") if line_end < 0 else (text[: line_end + 1], text[line_end + 1 :])
    return before + _written(name, value, indent) + after


def _replaced(text: str, parent: yaml.MappingNode, key: yaml.Node, node: yaml.Node, value: Any) -> str:
    """Return the text with a changed value; a comment after it is kept."""
    if parent.flow_style:
        return _rewritten(text, parent, {key.value: value})
    start, end = key.start_mark.index, _end(text, node)
    line_end = text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end
    indent = key.start_mark.column
    fresh = _written(key.value, value, indent).strip("\n")[indent:]
    note = text[end:line_end].strip()
    if not note:
        return text[:start] + fresh + text[line_end:]
    if "\n" in fresh:
        return text[:start] + note + "\n" + " " * indent + fresh + text[line_end:]
    return text[:start] + fresh + text[end:]


def _removed(text: str, parent: yaml.MappingNode, key: yaml.Node, node: yaml.Node) -> str:
    """Return the text without a field; comments on lines of their own are kept."""
    if parent.flow_style:
        return _rewritten(text, parent, {key.value: GONE})
    start, end = key.start_mark.index - key.start_mark.column, _end(text, node)
    line_end = text.find("\n", end)
    return text[:start] + ("" if line_end < 0 else text[line_end + 1 :])


def _rewritten(text: str, parent: yaml.MappingNode, changes: dict[str, Any]) -> str:
    """Return the text with a mapping in braces written again: its entries have no lines of their own."""
    start, end = parent.start_mark.index, parent.end_mark.index
    entries = {key.value: text[node.start_mark.index : node.end_mark.index] for key, node in parent.value}
    fresh = {name: value if value is GONE else _inline(value) for name, value in changes.items()}
    kept = {name: value for name, value in {**entries, **fresh}.items() if value is not GONE}
    body = ", ".join(f"{_inline(name)}: {value}" for name, value in kept.items())
    return text[:start] + "{" + body + "}" + text[end:]


def _end(text: str, node: yaml.Node) -> int:
    """Return the real end of a value: PyYAML's end marks of blocks include the comments after them."""
    if isinstance(node, yaml.ScalarNode) and node.style not in ("|", ">"):
        return int(node.end_mark.index)
    if isinstance(node, yaml.ScalarNode) or getattr(node, "flow_style", False):
        return len(text[: node.end_mark.index].rstrip())
    if not node.value:
        return int(node.start_mark.index)
    last = node.value[-1]
    return _end(text, last[1] if isinstance(node, yaml.MappingNode) else last)


def _written(name: str, value: Any, indent: int) -> str:
    """Return a field as lines of YAML."""
    dumped = yaml.dump(
        {name: value}, Dumper=jobfile_writer.Dumper, sort_keys=False, allow_unicode=True, width=1_000_000
    )
    return "".join(f"{' ' * indent}{line}\n" if line else "\n" for line in dumped.rstrip("\n").split("\n"))


def _inline(value: Any) -> str:
    dumped = yaml.dump(
        value, Dumper=jobfile_writer.Dumper, sort_keys=False, allow_unicode=True, width=1_000_000,
        default_flow_style=True,
    )  # fmt: skip
    return dumped.strip().removesuffix("...").strip()


def _end_with_newline(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"
