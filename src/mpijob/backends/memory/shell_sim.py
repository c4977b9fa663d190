"""A very small reader of shell one-liners, so that the same test job means the same thing here and for real.

It knows `sh -c` with `echo`, `printf`-free text, `sleep`, `exit`, `true`, `false` and
`if [ "$VAR" = value ]; then …; fi`, plus these words as commands of their own. Everything else is a
program that says nothing and succeeds after a second. Nothing is ever run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

import msgspec

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_SHELLS = ("sh", "bash", "/bin/sh", "/bin/bash")
_UNKNOWN_SECONDS = 1.0
_SHORT_SECONDS = 0.1


class RankRun(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank does: lines with their time since the start, its end (None: never), its exit code."""

    lines: tuple[tuple[float, str], ...] = ()
    ends: float | None = _SHORT_SECONDS
    exit_code: int = 0


def simulate(argv: Sequence[str], env: Mapping[str, str]) -> RankRun:
    """Return what a rank with this command and environment would do."""
    if len(argv) >= 3 and argv[0] in _SHELLS and argv[1] in ("-c", "-ec"):
        return _Shell(env).run(argv[2])
    return _Shell(env).run(shlex.join(argv))


class _Shell:
    """The state of one reading: what was said so far, and the time that passed."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._lines: list[tuple[float, str]] = []
        self._clock = 0.0
        self._skipping = False

    def run(self, text: str) -> RankRun:
        """Read the statements one by one until one of them ends the program."""
        status = 0
        for statement in re.split(r"[;\n]", text):
            status, ended = self._statement(statement.strip())
            if ended:
                break
        return RankRun(lines=tuple(self._lines), ends=max(self._clock, _SHORT_SECONDS), exit_code=status)

    def _statement(self, text: str) -> tuple[int, bool]:
        if text == "fi":
            self._skipping = False
            return 0, False
        text = text.removeprefix("then ").strip()
        if self._skipping or not text:
            return 0, False
        words = shlex.split(self._expand(text), posix=True)
        if words[:2] == ["if", "["]:
            self._skipping = words[2] != words[4]
            return 0, False
        return self._command(words)

    def _command(self, words: list[str]) -> tuple[int, bool]:
        match words:
            case ["echo", *rest]:
                self._lines.append((self._clock, " ".join(rest)))
            case ["sleep", seconds]:
                self._clock += float(seconds)
            case ["exit", code]:
                return int(code) & 0xFF, True
            case ["false"]:
                return 1, False
            case ["true"]:
                pass
            case _:
                self._clock += _UNKNOWN_SECONDS
        return 0, False

    def _expand(self, text: str) -> str:
        return _VARIABLE.sub(lambda match: self._env.get(match[1] or match[2], ""), text)
