"""Reads the plain YAML that kubectl and oc write, without loading a YAML library.

A kubeconfig is read at each start, and `import yaml` costs more than all of the rest of reading it.
This reader knows block mappings, block lists and one-line scalars, and gives up (None) on anything
else; `kubeconfig` then asks PyYAML. Where it answers, it answers as PyYAML does.
"""

from __future__ import annotations

from typing import Any

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DIGITS = frozenset("0123456789")
_KEY = _LETTERS | _DIGITS | frozenset("-_./")
_FIRST = _LETTERS | frozenset("/_")
_PLAIN = _LETTERS | _DIGITS | frozenset("-_./:@=+~%,;()$ ")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "{}": {}, "[]": []}
_OTHER_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


class _Unplain(Exception):
    """Something that this reader does not know."""


Line = tuple[int, str]


def read(text: str) -> Any:
    """Return the document, or None when it takes a whole YAML reader to read it."""
    try:
        lines = _lines(text)
        if not lines:
            return None
        value, end = _block(lines, 0, lines[0][0])
        return value if end == len(lines) else None
    except _Unplain:
        return None


def _lines(text: str) -> list[Line]:
    if not text.isascii() or "\t" in text or "\r" in text:
        raise _Unplain
    found: list[Line] = []
    for raw in text.split("\n"):
        line = raw.strip(" ")
        if not line or line.startswith("#"):
            continue
        if line.startswith(("---", "...", "%")):
            if found or line != "---":
                raise _Unplain
            continue
        found.append((len(raw) - len(raw.lstrip(" ")), line))
    return found


def _block(lines: list[Line], at: int, indent: int) -> tuple[Any, int]:
    if lines[at][1].startswith("- ") or lines[at][1] == "-":
        return _list(lines, at, indent)
    return _mapping(lines, at, indent)


def _list(lines: list[Line], at: int, indent: int) -> tuple[list[Any], int]:
    items: list[Any] = []
    while at < len(lines) and lines[at][0] == indent and lines[at][1].startswith("- "):
        rest = lines[at][1][2:].lstrip(" ")
        inner = indent + len(lines[at][1]) - len(rest)
        if rest.startswith("- "):
            raise _Unplain
        if _split(rest) is None:
            items.append(_scalar(rest))
            at += 1
        else:
            lines[at] = (inner, rest)
            value, at = _mapping(lines, at, inner)
            items.append(value)
    return items, at


def _mapping(lines: list[Line], at: int, indent: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    while at < len(lines) and lines[at][0] == indent:
        pair = _split(lines[at][1])
        if pair is None or pair[0] in found:
            if lines[at][1].startswith("- "):
                break  # the list that this mapping is an item of goes on
            raise _Unplain
        at += 1
        key, rest = pair
        if rest:
            found[key] = _scalar(rest)
        elif at < len(lines) and _belongs(lines[at], indent):
            found[key], at = _block(lines, at, lines[at][0])
        else:
            found[key] = None
    if at < len(lines) and lines[at][0] > indent:
        raise _Unplain
    return found, at


def _belongs(line: Line, indent: int) -> bool:
    return line[0] > indent or (line[0] == indent and line[1].startswith("- "))


def _split(line: str) -> tuple[str, str] | None:
    """Return the key and what stands after it on the same line."""
    key, colon, rest = line.partition(":")
    if not colon or not key or (rest and rest[0] != " ") or line[0] in "\"'":
        return None
    if key[0] not in _LETTERS or not _KEY.issuperset(key) or key.lower() in _OTHER_WORDS:
        raise _Unplain
    return key, rest.strip(" ")


def _scalar(text: str) -> Any:
    if text in _WORDS:
        word = _WORDS[text]
        return type(word)() if isinstance(word, dict | list) else word
    if text[0] in "\"'":
        inner = text[1:-1]
        if len(text) < 2 or text[-1] != text[0] or '"' in inner or "'" in inner or "\\" in inner:
            raise _Unplain
        return inner
    if text[0] not in _FIRST or not _PLAIN.issuperset(text) or text.lower() in _OTHER_WORDS:
        raise _Unplain
    if ": " in text or text.endswith(":"):
        raise _Unplain
    return text
