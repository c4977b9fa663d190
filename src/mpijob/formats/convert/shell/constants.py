"""What a word of a shell script means without a shell: constants, and variables whose values are known."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SAFE = re.compile(r"[-\w./:,@%+=]*")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")

_NEEDED = re.compile(r"\$(?:([A-Za-z_]\w*)|\{#?([A-Za-z_]\w*)\b(?!:?[-=+]))")
_DEFAULTED = re.compile(r"\$\{([A-Za-z_]\w*):?[-=]")


def constant(word: str) -> str | None:
    """Return what a word means in every shell, or None when a shell would expand it."""
    found: list[str] = []
    at = 0
    while at < len(word):
        letter = word[at]
        if letter == "'":
            end = word.find("'", at + 1)
            if end < 0:
                return None
            found.append(word[at + 1 : end])
            at = end + 1
        elif letter == '"':
            read = _double_quoted(word, at + 1)
            if read is None:
                return None
            found.append(read[0])
            at = read[1]
        elif letter == "\\":
            if word[at + 1 : at + 2] != "\n":
                found.append(word[at + 1 : at + 2])
            at += 2
        elif letter in "$`*?[()" or (letter == "~" and at == 0) or (letter == "{" and "," in word):
            return None
        else:
            found.append(letter)
            at += 1
    return "".join(found)


def _double_quoted(word: str, at: int) -> tuple[str, int] | None:
    found: list[str] = []
    while at < len(word):
        letter = word[at]
        if letter == '"':
            return "".join(found), at + 1
        if letter in "$`":
            return None
        if letter == "\\" and word[at + 1 : at + 2] in ('"', "\\", "$", "`", "\n"):
            found.append(word[at + 1] if word[at + 1] != "\n" else "")
            at += 2
            continue
        found.append(letter)
        at += 1
    return None


def filled(text: str, known: Mapping[str, str]) -> str:
    """Return the text with the variables whose values are known, and plain, written out; not in single quotes."""

    def value(match: re.Match[str]) -> str:
        found = known.get(match[1] or match[2])
        return match[0] if found is None or not _SAFE.fullmatch(found) else found

    if "'" not in text:
        return _VARIABLE.sub(value, text)
    parts = re.split(r"('[^']*')", text)
    return "".join(part if part.startswith("'") else _VARIABLE.sub(value, part) for part in parts)


def mentioned(text: str) -> frozenset[str]:
    """Return the names of the variables that a text uses."""
    return frozenset(match[1] or match[2] for match in _VARIABLE.finditer(text)) | frozenset(
        re.findall(r"\$\{#?([A-Za-z_]\w*)", text)
    )


def needed(text: str) -> frozenset[str]:
    """Return the names of the variables that a text uses without a value of its own for one that is not set."""
    return frozenset(match[1] or match[2] for match in _NEEDED.finditer(text))


def defaulted(text: str) -> frozenset[str]:
    """Return the names of the variables for which a text has a value of its own where they are not set."""
    return frozenset(_DEFAULTED.findall(text))
