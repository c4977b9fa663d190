"""A shell script taken apart into statements and words, without running or expanding anything.

Quotes, continuations, heredocs, substitutions and compound commands are found by their form alone. Words keep
the text that the author wrote; `constants` tells which of them mean the same in every shell.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

import msgspec

OPENERS = {"if": "fi", "for": "done", "while": "done", "until": "done", "select": "done", "case": "esac"}
CLOSERS = frozenset({"fi", "done", "esac", "}"})
JOINERS = frozenset({"then", "do", "else", "elif", "!", "{", "time"})
_OPERATORS = ("&&", "||", ";;&", ";;", ";&", ";", "|&", "|", "&", "(", ")")
_REDIRECT = re.compile(r"[0-9]{0,4}(?:&>>|&>|>>|>\||>&|<<<|<<-|<<|<&|<>|>|<)")
FUNCTION = re.compile(r"[A-Za-z_][-\w]*\(\)")
_STOP = frozenset(" \t\n;&|()<>")
_REDIRECTING, _OPERATING = frozenset("0123456789&<>"), frozenset(";&|()")
_PLAIN, _QUOTED = re.compile(r"[^\s;&|()<>\\'\"`$]+"), re.compile(r'[^"\\$]+')
ASKING = frozenset({"if", "while", "until"})
_DEEPEST = 40


class Token(msgspec.Struct, frozen=True):
    """A word, an operator or a redirection, as it is written, and where."""

    kind: str
    text: str
    start: int
    end: int
    line: int


class Command(msgspec.Struct, frozen=True):
    """One simple command: its words as written, its redirections, and the operator behind it."""

    words: tuple[str, ...]
    redirects: tuple[str, ...] = ()
    after: str = ""


class Statement(msgspec.Struct, frozen=True):
    """One statement: its text, with its heredocs; its commands unless it is compound.

    `origin` is the text as it stands in the script, where that was written anew.
    """

    text: str
    line: int
    commands: tuple[Command, ...] = ()
    compound: bool = False
    heredoc: bool = False
    background: bool = False
    origin: str = ""


def tokens(text: str) -> Iterator[Token]:
    """Yield the words, operators and redirections of a text, as they are written."""
    return _Lexer(text).tokens()


def statements(text: str) -> list[Statement]:
    """Return the statements of a script in order; comments and blank lines are no statements."""
    lexer = _Lexer(text)
    groups = _grouped(list(lexer.tokens()))
    return [_statement(text, group) for group in groups]


def inside(one: Statement) -> tuple[Command, ...]:
    """Return the simple commands within a compound statement, in their order; none of a case or a function."""
    return _inside(one.text)


def forget() -> None:
    """Let go of what was read: it may be as large as a script."""
    _inside.cache_clear()


@functools.lru_cache(maxsize=256)
def _inside(text: str) -> tuple[Command, ...]:
    words: list[str] = []
    redirects: list[str] = []
    found: list[Command] = []
    for token in [*_Lexer(text).tokens(), Token("newline", "\n", 0, 0, 0)]:
        if (
            token.kind == "word"
            and not words
            and (token.text in ("case", "function") or FUNCTION.fullmatch(token.text))
        ):
            return ()
        if token.kind == "word" and (words or token.text not in JOINERS | CLOSERS | ASKING):
            words.append(token.text)
        elif token.kind == "redirect":
            redirects.append(token.text)
        elif token.kind in ("operator", "newline") and not _is_test(words, token.text):
            heads = words[:1] in (["for"], ["select"])  # its words are no command
            found += [Command(tuple(words), tuple(redirects), token.text)] if words and not heads else []
            words, redirects = [], []
    return tuple(found)


def split_group(one: Statement) -> tuple[str, str, str] | None:
    """Return what stands before `|| { … }` or `&& { … }` at a statement's end, the operator, and what is in it."""
    tokens = [token for token in _Lexer(one.text).tokens() if token.kind != "heredoc"]
    while tokens and tokens[-1].kind in ("redirect", "newline"):
        tokens.pop()
    stack: list[str] = []
    for at, token in enumerate(tokens):
        opens = tokens[at + 1 : at + 2] if token.text in ("||", "&&") and not stack else []
        if opens and opens[0].text in ("{", "(") and _is_group(tokens[at + 1 :]):
            return (
                one.text[: token.start].strip(),
                token.text,
                one.text[opens[0].end : tokens[-1].start].strip(),
            )
        _track(token, stack, not at or tokens[at - 1].kind in ("operator", "newline"))
    return None


def _is_group(tokens: list[Token]) -> bool:
    """Return whether tokens are one group: its first opens it, and only its last closes it."""
    stack: list[str] = []
    for before, token, at in zip([None, *tokens], tokens, range(len(tokens)), strict=False):
        first = before is None or before.kind in ("operator", "newline") or before.text in JOINERS
        _track(token, stack, first)
        if not stack:
            return at == len(tokens) - 1
    return False


def _is_test(words: list[str], operator: str) -> bool:
    """Return whether an operator stands within [[ … ]]."""
    return words[:1] == ["[["] and "]]" not in words and operator != "\n"


class _Lexer:
    """Reads tokens from left to right, each letter once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.heredocs: list[tuple[str, bool]] = []
        self.depth = 0

    def tokens(self) -> Iterator[Token]:
        while self.at < len(self.text):
            start, line = self.at, self.line
            kind = self._next()
            if kind:
                yield Token(kind, self.text[start : self.at], start, self.at, line)
            if kind == "newline" and self.heredocs:
                yield from self._bodies()

    def _next(self) -> str:
        """Read one token and return its kind; "" for what only separates."""
        text, at = self.text, self.at
        letter = text[at]
        if letter in " \t\r" or text.startswith("\\\n", at):
            return self._skip(1 if letter != "\\" else 2)
        if letter == "#":
            end = text.find("\n", at)
            return self._skip((end if end >= 0 else len(text)) - at)
        if letter == "\n":
            self._skip(1)
            return "newline"
        if letter in _REDIRECTING and (match := _REDIRECT.match(text, at)):
            return self._redirect(match[0])
        if letter in _OPERATING:
            self._skip(len(next(operator for operator in _OPERATORS if text.startswith(operator, at))))
            return "operator"
        self._word()
        return "word"

    def _skip(self, count: int) -> str:
        self.line += self.text.count("\n", self.at, self.at + count)
        self.at += count
        return ""

    def _redirect(self, operator: str) -> str:
        self._skip(len(operator))
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self._skip(1)
        start = self.at
        self._word()
        if operator.endswith(("<<", "<<-")) and not operator.endswith("<<<"):
            word = re.sub(r"[\\'\"]", "", self.text[start : self.at])
            self.heredocs.append((word, operator.endswith("-")))
        return "redirect"

    def _bodies(self) -> Iterator[Token]:
        for word, indented in self.heredocs:
            start, line = self.at, self.line
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end + 1
                said = self.text[self.at : end].rstrip("\n")
                self._skip(end - self.at)
                if (said.lstrip("\t") if indented else said) == word:
                    break
            yield Token("heredoc", self.text[start : self.at], start, self.at, line)
        self.heredocs = []

    def _word(self) -> None:
        text = self.text
        while self.at < len(text) and text[self.at] not in _STOP:
            letter = text[self.at]
            if match := _PLAIN.match(text, self.at):
                self.at = match.end()
            elif letter == "\\":
                self._skip(min(2, len(text) - self.at))
            elif letter == "'":
                self._until("'", 1)
            elif letter == '"':
                self._double()
            elif letter == "`":
                self._until("`", 1)
            elif text.startswith(("$(", "${"), self.at):
                self._nested()
            elif letter == "$" and text.startswith("$'", self.at):
                self._until("'", 2)
            else:
                self._skip(1)
        if text.startswith("()", self.at) and self.at:
            self._skip(2)  # a function's name
        elif text.startswith("=(", self.at - 1):
            self._until(")", 1)  # an array

    def _until(self, quote: str, begin: int) -> None:
        end = self.text.find(quote, self.at + begin)
        self._skip((end + 1 if end >= 0 else len(self.text)) - self.at)

    def _double(self) -> None:
        self._skip(1)
        while self.at < len(self.text) and self.text[self.at] != '"':
            if self.text[self.at] == "\\":
                self._skip(min(2, len(self.text) - self.at))
            elif self.text.startswith(("$(", "${"), self.at):
                self._nested()
            elif match := _QUOTED.match(self.text, self.at):
                self._skip(len(match[0]))
            else:
                self._skip(1)
        self._skip(min(1, len(self.text) - self.at))

    def _nested(self) -> None:
        """Read `$(…)` or `${…}` to its end; quotes inside hide brackets."""
        opened = self.text[self.at + 1]
        closed = ")" if opened == "(" else "}"
        self._skip(2)
        depth = 1
        self.depth += 1
        while self.at < len(self.text) and depth:
            letter = self.text[self.at]
            if letter == '"' and self.depth < _DEEPEST:
                self._double()
                continue
            if letter == "\\":
                self._skip(min(2, len(self.text) - self.at))
                continue
            if letter == "'" and opened == "(":
                self._until("'", 1)
                continue
            depth += (letter == opened) - (letter == closed)
            self._skip(1)
        self.depth -= 1


def _grouped(tokens: list[Token]) -> list[list[Token]]:
    """Return the tokens of each statement; a compound command is one, however many lines it has."""
    groups: list[list[Token]] = [[]]
    stack: list[str] = []
    first = True
    for token in tokens:
        if token.kind == "heredoc":
            (groups[-1] or (groups[-2] if len(groups) > 1 else groups[-1])).append(token)
            continue
        _track(token, stack, first)
        groups[-1].append(token)
        ends = token.kind == "newline" or token.text in (";", "&")
        joined = token.kind == "newline" and _joins(groups[-1])
        if ends and not stack and not joined:
            groups.append([])
        named = len(groups[-1]) == 2 and groups[-1][0].text == "function"
        first = token.kind in ("operator", "newline") or named or (first and _goes_on(token.text))
    return [group for group in groups if any(one.kind == "word" for one in group)]


def _goes_on(word: str) -> bool:
    """Return whether a command may begin behind a word."""
    return word in JOINERS or word == "function" or bool(FUNCTION.fullmatch(word))


def _joins(group: list[Token]) -> bool:
    """Return whether a line goes on in the next one: it ends with && or a pipe."""
    before = [one for one in group if one.kind != "newline"]
    return bool(before) and before[-1].text in ("&&", "||", "|", "|&")


def _track(token: Token, stack: list[str], first: bool) -> None:
    if token.kind == "operator" and token.text == "(" and (first or not stack):
        stack.append(")")
    elif token.kind == "operator" and token.text == ")" and stack and stack[-1] == ")":
        stack.pop()
    elif token.kind == "word" and first:
        if token.text in OPENERS:
            stack.append(OPENERS[token.text])
        elif token.text == "{":
            stack.append("}")
        elif token.text in CLOSERS and stack and stack[-1] == token.text:
            stack.pop()


def _statement(text: str, group: list[Token]) -> Statement:
    inner = list(group)
    while (
        inner
        and (inner[-1].kind == "newline" or inner[-1].text in (";", "&"))
        and inner[-1].kind != "heredoc"
    ):
        inner.pop()
    background = any(one.kind == "operator" and one.text == "&" for one in group[-2:])
    start, end = inner[0].start, inner[-1].end
    words = [one for one in inner if one.kind == "word"]
    line = words[0].line
    raw = text[start:end].rstrip("\n")
    heredoc = any(one.kind == "heredoc" for one in group)
    if any(one.text in ("(", ")", ";;") or one.kind == "newline" for one in _plain(inner)) or _opens(
        words[0]
    ):
        return Statement(raw, line, (), True, heredoc, background)
    return Statement(raw, line, tuple(_commands(inner)), False, heredoc, background)


def _plain(tokens: list[Token]) -> list[Token]:
    """Return the tokens without the newlines that follow an operator or stand before a heredoc."""
    found = []
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        joined = before is not None and before.text in ("&&", "||", "|", "|&")
        if token.kind == "newline" and (joined or (after is not None and after.kind == "heredoc")):
            continue
        found.append(token)
    return found


def _opens(word: Token) -> bool:
    return (
        word.text in OPENERS
        or word.text in ("{", "function", "!", "[[")
        or bool(FUNCTION.fullmatch(word.text))
    )


def _commands(tokens: list[Token]) -> Iterator[Command]:
    words: list[str] = []
    redirects: list[str] = []
    for token in tokens:
        if token.kind == "word":
            words.append(token.text)
        elif token.kind == "redirect":
            redirects.append(token.text)
        elif token.kind == "operator":
            yield Command(tuple(words), tuple(redirects), token.text)
            words, redirects = [], []
    if words or redirects:
        yield Command(tuple(words), tuple(redirects))
