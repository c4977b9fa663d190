"""Simulate simple shell commands, so that one test job behaves the same in this engine and in real ones.

Supported are `echo`, `sleep`, `exit`, `true`, `false` and `if [ "$VAR" = value ]; then …; fi`, in `sh -c` or as the
command itself. Any other program prints nothing and succeeds after a second. Nothing is executed.
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
    """What one rank does; times are in seconds since its start."""

    lines: tuple[tuple[float, str], ...] = ()
    # None: it hangs.
    ends: float | None = _SHORT_SECONDS
    exit_code: int = 0


def simulate(argv: Sequence[str], env: Mapping[str, str]) -> RankRun:
    if len(argv) >= 3 and argv[0] in _SHELLS and argv[1] in ("-c", "-ec"):
        return _Shell(env).run(argv[2])
    return _Shell(env).run(shlex.join(argv))


class _Shell:
    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._lines: list[tuple[float, str]] = []
        self._clock = 0.0
        self._skipping = False

    def run(self, text: str) -> RankRun:
        status = 0
        for statement in re.split(r"[;\n]", text):
            status, exits = self._statement(statement.strip())
            if exits:
                break
        return RankRun(lines=tuple(self._lines), ends=max(self._clock, _SHORT_SECONDS), exit_code=status)

    def _statement(self, text: str) -> tuple[int, bool]:
        """Return the exit status, and whether the program ends with it."""
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
                # As the kernel does: an exit status has eight bits.
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
