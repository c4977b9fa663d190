"""YAML and JSON as a tree of nodes with line and column.

`jobfile_reader` interprets the tree.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import msgspec
import yaml

from mpijob.errors import Finding, InvalidJob
from mpijob.model.spec.type_check import Path, written

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 50
MAX_NODES = 10_000
MAX_FINDINGS = 50
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNTAKEN = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_PAIR = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


class Node(msgspec.Struct, frozen=True):
    """A node with its position (from 1)."""

    line: int
    column: int


class Scalar(Node, frozen=True):
    """A text; `plain` without quotes, so that it may be a number."""

    text: str
    plain: bool = False


class Sequence(Node, frozen=True):
    """A list."""

    items: tuple[Node, ...]


class Mapping(Node, frozen=True):
    """A mapping with its entries in the file's order."""

    entries: tuple[tuple[Scalar, Node], ...]

    def get(self, name: str) -> Node | None:
        """Return the value of a key, None if it is missing."""
        return next((value for key, value in self.entries if key.text == name), None)


class Stop(Exception):
    """Raised inside the parser when it cannot continue; has the finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


class YamlDocuments(msgspec.Struct, frozen=True):
    """The trees of all documents that are not empty, and findings about refused constructs."""

    roots: tuple[Node, ...]
    findings: tuple[Finding, ...]


def parse(text: str | bytes, file: str = "") -> YamlDocuments:
    """Return the trees of a file; raise InvalidJob if it cannot be parsed."""
    builder = _Builder()
    try:
        roots = tuple(builder.documents(_events(_decoded(text))))
    except Stop as stop:
        raise refused([*builder.findings, stop.finding], file) from stop
    return YamlDocuments(tuple(root for root in roots if not _is_empty(root)), tuple(builder.findings))


def _is_empty(root: Node) -> bool:
    return isinstance(root, Scalar) and root.plain and not root.text


def refused(findings: list[Finding], file: str) -> InvalidJob:
    """Return the error with the findings in the file's order, limited in number."""
    ordered = sorted(findings, key=lambda finding: (finding.line, finding.column))[:MAX_FINDINGS]
    placed = tuple(msgspec.structs.replace(finding, file=file) for finding in ordered)
    return InvalidJob.of(placed, file or "the job file")


def finding(code: str, node: Node, message: str, hint: str = "", path: Path = ()) -> Finding:
    """Return a finding at a node's position."""
    return Finding(
        code=code, message=message, hint=hint, field=written(path), line=node.line, column=node.column
    )


def _decoded(text: str | bytes) -> str:
    size = len(text)
    # The exact size of a longer one does not matter.
    if isinstance(text, str) and size <= MAX_BYTES:
        size = len(text.encode(errors="surrogatepass"))
    if size > MAX_BYTES:
        message = f"the file has {size} bytes or more; at most {MAX_BYTES} are read"
        raise Stop(Finding(code="TOO_LARGE", message=message, hint="keep data in files beside the job"))
    try:
        decoded = text.decode() if isinstance(text, bytes) else text.encode().decode()
    except UnicodeError as error:
        place = error.start if isinstance(error, (UnicodeDecodeError, UnicodeEncodeError)) else 0
        raise Stop(_not_text("is not valid UTF-8", _line(text[:place]))) from error
    decoded = decoded.removeprefix("\ufeff")
    if "\0" in decoded:
        raise Stop(_not_text("holds a NUL byte", _line(decoded[: decoded.index("\0")])))
    return _as_yaml(decoded) if decoded.lstrip()[:1] in ("{", "[") else decoded


def _line(before: str | bytes) -> int:
    return 1 + (before.count(b"\n") if isinstance(before, bytes) else before.count("\n"))


def _not_text(reason: str, line: int) -> Finding:
    return Finding(code="NOT_TEXT", message=f"the file {reason}", hint="save it as UTF-8 text", line=line)


def _as_yaml(json: str) -> str:
    """Return JSON with the characters escaped that YAML does not allow unescaped."""
    return _UNTAKEN.sub(lambda match: f"\\u{ord(match[0]):04x}", _PAIR.sub(_joined, json))


def _joined(match: re.Match[str]) -> str:
    """Return the character of a surrogate pair in JSON, which YAML does not have."""
    halves = bytes.fromhex(match[2] + match[3])
    return match[1] + halves.decode("utf-16-be")


def _events(text: str) -> Iterator[yaml.Event]:
    try:
        yield from yaml.parse(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        raise Stop(_syntax(error, text)) from error
    except yaml.reader.ReaderError as error:
        place = error.position if isinstance(error.position, int) else 0
        raise Stop(_not_text("holds a control character", _line(text[:place]))) from error


def _syntax(error: yaml.MarkedYAMLError, text: str) -> Finding:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    lines = text.rstrip().split("\n")
    # The error is the end of the file: show its last line.
    if line > len(lines):
        line, column = len(lines), len(lines[-1]) + 1
    here = lines[line - 1]
    if "\t" in here[: len(here) - len(here.lstrip())] or "'\\t'" in str(error.problem):
        message, hint = "a tab is used for indentation", "indent with spaces"
    else:
        message, hint = (
            f"the file is not YAML or JSON here: {error.problem}",
            _syntax_hint(str(error.problem)),
        )
    return Finding(code="SYNTAX", message=message, hint=hint, line=line, column=column)


def _syntax_hint(problem: str) -> str:
    if "mapping values are not allowed" in problem:
        return "quote values that contain ': ', and check the indentation"
    return "check quotes, brackets and indentation just before this place"


# From events and never from constructed objects: a file can only produce text. Tags, anchors, aliases, duplicate
# keys, deep nesting and too many nodes are refused during parsing, before they cost memory.
class _Builder:
    """Builds trees from parser events, and collects findings."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self._nodes = 0

    def documents(self, events: Iterator[yaml.Event]) -> Iterator[Node]:
        for event in events:
            if isinstance(event, yaml.NodeEvent):
                yield self._node(event, events, 1)

    def _node(self, event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> Node:
        mark = event.start_mark
        place = Node(mark.line + 1, mark.column + 1) if mark else Node(1, 1)
        self._count(place, depth)
        self._refuse_tricks(event, place)
        if isinstance(event, yaml.SequenceStartEvent):
            return Sequence(place.line, place.column, tuple(self._items(events, depth)))
        if isinstance(event, yaml.MappingStartEvent):
            return Mapping(place.line, place.column, tuple(self._entries(events, depth)))
        if isinstance(event, yaml.ScalarEvent):
            return Scalar(place.line, place.column, event.value, not event.style)
        return Scalar(place.line, place.column, "")

    def _count(self, place: Node, depth: int) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise Stop(finding("TOO_LARGE", place, f"the file has more than {MAX_NODES} values", "split it"))
        if depth > MAX_DEPTH:
            raise Stop(finding("TOO_DEEP", place, f"nested more than {MAX_DEPTH} deep", "flatten it"))

    def _refuse_tricks(self, event: yaml.Event, place: Node) -> None:
        if isinstance(event, yaml.AliasEvent):
            self._add(
                finding("ALIAS", place, f"the alias *{event.anchor} is not allowed", "write the value out")
            )
        elif isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            self._add(finding("ALIAS", place, f"the anchor &{event.anchor} is not allowed", "remove it"))
        if isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)) and event.tag is not None:
            self._add(finding("TAG", place, f"the tag {event.tag[:60]} is not allowed", "remove it"))

    def _items(self, events: Iterator[yaml.Event], depth: int) -> Iterator[Node]:
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                return
            yield self._node(event, events, depth + 1)

    def _entries(self, events: Iterator[yaml.Event], depth: int) -> Iterator[tuple[Scalar, Node]]:
        lines: dict[str, int] = {}
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                return
            key = self._node(event, events, depth + 1)
            value = self._node(next(events), events, depth + 1)
            if not isinstance(key, Scalar):
                self._add(finding("SYNTAX", key, "a list or mapping cannot be a key", "use a plain key"))
            elif key.text in lines:
                message = f"'{key.text[:60]}' is given twice, first in line {lines[key.text]}"
                self._add(finding("DUPLICATE_KEY", key, message, "keep one of the two"))
            else:
                lines[key.text] = key.line
                yield key, value

    def _add(self, found: Finding) -> None:
        self.findings.append(found)
        if len(self.findings) >= MAX_FINDINGS:
            raise Stop(_too_many(self.findings.pop()))


def _too_many(last: Finding) -> Finding:
    message = f"{MAX_FINDINGS} errors and more: the rest of the file was not read"
    return msgspec.structs.replace(last, code="TOO_MANY_ERRORS", message=message, hint="")


_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("null", "Null", "NULL", "~", ""), None),
}
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]{0,39})")
_NUMBER = re.compile(r"[-+]?([0-9]{1,40}\.[0-9]{0,40}|\.[0-9]{1,40}|[0-9]{1,40})([eE][-+]?[0-9]{1,4})?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")


def meaning(text: str) -> bool | int | float | str | None:
    """Return the value of a plain scalar; the text itself if it is only text."""
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text) and not _LEADING_ZERO.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text


def is_text(text: str) -> bool:
    """Return whether a plain scalar is read as text."""
    return isinstance(meaning(text), str)
