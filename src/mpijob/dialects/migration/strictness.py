"""Whether a script goes on behind a line that fails: `set -e` and its like, in the lines and in the first of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

from mpijob.dialects.migration.shellwords import Command

_FIRST = re.compile(r"#![^\n]*\b(?:ba|da|k|z)?sh\s+(-[^\n]*)")
_KEPT = "efux"  # the rest is for a login or a terminal, which ranks have not


def of_first_line(text: str) -> str:
    """Return the line that sets what the first line of a script gives to its shell: `#!/bin/bash -e`; "" for none."""
    match = _FIRST.match(text)
    words = match[1].split() if match else []
    letters = "".join(letter for word in words if _is_short(word) for letter in word[1:] if letter in _KEPT)
    names = [name for word, name in itertools.pairwise(words) if _is_short(word) and word[-1] == "o"]
    found = [f"-{letters}" if letters else "", *(f"-o {name}" for name in names)]
    return " ".join(["set", *filter(None, found)]) if any(found) else ""


def ends_at_failure(before: bool, commands: Iterable[Command]) -> bool:
    """Return whether a line that fails ends the script behind these commands, as it did or did not `before` them."""
    found = before
    for command in commands:
        if command.words[:1] == ("set",):
            found = _set(found, command.words[1:])
    return found


def _set(before: bool, words: tuple[str, ...]) -> bool:
    found = before
    for word, name in zip(words, (*words[1:], ""), strict=True):
        if word in ("-", "--"):
            break
        if word.startswith(("-", "+")) and ("e" in word or (word[-1] == "o" and name == "errexit")):
            found = word[0] == "-"
    return found


def _is_short(word: str) -> bool:
    return word.startswith("-") and not word.startswith("--")
