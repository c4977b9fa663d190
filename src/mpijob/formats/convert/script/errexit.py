"""Whether a script goes on behind a line that fails: `set -e` and its like, in the lines and in the first of them.

It is followed through functions. What a file sets that is only read (`source`) is not seen.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping

from mpijob.formats.convert.shell import subshells
from mpijob.formats.convert.shell.subshells import Runs

_FIRST = re.compile(r"#![^\n]*\b(?:ba|da|k|z)?sh[ \t]+(-[^\n]*)")
_DEEPEST = 20
_KEPT = "efux"  # the rest is for a login or a terminal, which ranks have not


def of_first_line(text: str) -> str:
    """Return the line that sets what the first line of a script gives to its shell: `#!/bin/bash -e`; "" for none."""
    match = _FIRST.match(text)
    words = match[1].split() if match else []
    letters = "".join(letter for word in words if _is_short(word) for letter in word[1:] if letter in _KEPT)
    names = [name for word, name in itertools.pairwise(words) if _is_short(word) and word[-1] == "o"]
    found = [f"-{letters}" if letters else "", *(f"-o {name}" for name in names)]
    return " ".join(["set", *filter(None, found)]) if any(found) else ""


class Strictness:
    """Follows through the lines of a script, and its functions, whether a line that fails ends it."""

    def __init__(self, functions: Mapping[str, str]) -> None:
        self._bodies = {name: text[text.find("{") + 1 : text.rfind("}")] for name, text in functions.items()}
        self._known: dict[tuple[str, bool], frozenset[bool]] = {}

    def behind(self, before: bool, text: str, depth: int = 0) -> frozenset[bool]:
        """Return how it may be behind a text, where it was so before it: both where that is known only when it runs."""
        found = frozenset({before})
        for words, runs in subshells.commands(text):
            changed = self._each(found, words, depth)
            found = changed if runs is Runs.SURELY else found | changed
        return found

    def _each(self, states: Iterable[bool], words: tuple[str, ...], depth: int) -> frozenset[bool]:
        if words[0] == "set":
            return frozenset(_set(one, words[1:]) for one in states)
        if words[0] not in self._bodies:
            return frozenset(states)
        return frozenset().union(*(self._called(words[0], one, depth) for one in states))

    def _called(self, name: str, before: bool, depth: int) -> frozenset[bool]:
        """Return how it may be behind a call; what is too deep to follow may be either."""
        if depth > _DEEPEST:
            return frozenset({True, False})
        if (name, before) not in self._known:
            self._known[name, before] = frozenset({before})  # until it is known: one that calls itself
            self._known[name, before] = self.behind(before, self._bodies[name], depth + 1)
        return self._known[name, before]


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
