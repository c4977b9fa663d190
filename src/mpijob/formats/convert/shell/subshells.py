"""Which commands of a text run in the script's own shell, and whether they surely do.

What a shell of its own sets (a bracket, a part of a pipe, something in the background) is gone with it. A condition, a
loop and what stands behind && or || may run or not. The lines of a function run where it is called.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from mpijob.formats.convert.shell.parser import ASKING, CLOSERS, FUNCTION, JOINERS, OPENERS, Token, tokens

_ENDS = (";", ";;", ";&", ";;&", "\n")


class Runs(IntEnum):
    """Whether a command runs in the script's own shell."""

    SURELY = 0
    PERHAPS = 1
    ELSEWHERE = 2


class _Level(msgspec.Struct):
    """What is open, and where in what was found its list and its pipe began; `joined` is behind && or ||."""

    closer: str
    runs: Runs
    listed: int = 0
    piped: int = 0
    joined: bool = False
    in_pipe: bool = False

    @property
    def now(self) -> Runs:
        if self.in_pipe:
            return Runs.ELSEWHERE
        return max(self.runs, Runs.PERHAPS) if self.joined else self.runs

    def begin(self, at: int) -> None:
        """Begin a new list of commands."""
        self.listed = self.piped = at
        self.joined = self.in_pipe = False


def commands(text: str) -> list[tuple[tuple[str, ...], Runs]]:
    """Return the words of each simple command that the script's own shell runs, and whether it surely does."""
    reader = _Reader()
    for token in (*tokens(text), Token("newline", "\n", 0, 0, 0)):
        reader.take(token)
    return reader.found


class _Reader:
    """Reads one token after the other; what was found is let go of when a pipe or an & follows it."""

    def __init__(self) -> None:
        self.found: list[tuple[tuple[str, ...], Runs]] = []
        self.levels = [_Level("", Runs.SURELY)]
        self.words: list[str] = []
        self.defining = False  # what opens next is the body of a function
        self.before = ""

    def take(self, token: Token) -> None:
        """Take one token."""
        if token.kind == "word":
            self._word(token.text)
        elif token.kind in ("operator", "newline"):
            self._operator(token.text)
        if token.kind != "heredoc":
            self.before = token.text

    def _word(self, word: str) -> None:
        if self.words:
            self.words.append(word)
        elif self.before == "function" or FUNCTION.fullmatch(word):
            self.defining = True
        elif word in OPENERS:
            self._open(OPENERS[word], Runs.PERHAPS)
        elif word == "{":
            self._open("}", Runs.SURELY)
        elif word in CLOSERS:
            self._close(word)
        elif word not in JOINERS | ASKING | {"function"}:
            self.words.append(word)

    def _operator(self, text: str) -> None:
        if self.words[:1] == ["[["] and "]]" not in self.words and text != "\n":
            return  # within a test
        if text == "(":
            self._bracket()
            return
        if text == ")" and self.before == "(" and self.defining:
            return  # name (): what follows is its body
        goes_on = text == "\n" and not self.words and self.before in ("&&", "||", "|", "|&")
        self._flush()
        if text == ")":
            self._close(")")
        elif not goes_on and not (text == "\n" and self.defining):
            self._joined(text)

    def _bracket(self) -> None:
        """Begin a shell of its own, or see that a word before it is a function's name."""
        if len(self.words) == 1:
            self.defining, self.words = True, []
        else:
            self._open(")", Runs.ELSEWHERE)

    def _joined(self, text: str) -> None:
        level = self.levels[-1]
        if text in ("|", "|&"):
            del self.found[level.piped :]
            level.in_pipe = True
        elif text in ("&&", "||"):
            level.joined, level.in_pipe, level.piped = True, False, len(self.found)
        elif text == "&":
            del self.found[level.listed :]
            level.begin(len(self.found))
        elif text in _ENDS:
            level.begin(len(self.found))

    def _open(self, closer: str, runs: Runs) -> None:
        inner = Runs.ELSEWHERE if self.defining else max(runs, self.levels[-1].now)
        self.levels.append(_Level(closer, inner, len(self.found), len(self.found)))
        self.defining = False

    def _close(self, closer: str) -> None:
        if self.levels[-1].closer == closer:
            self.levels.pop()

    def _flush(self) -> None:
        runs = self.levels[-1].now
        if self.words and runs is not Runs.ELSEWHERE:
            self.found.append((tuple(self.words), runs))
        self.words = []
