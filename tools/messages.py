"""Every string that a user can read, one in a line with its place, so that all can be read in one go.

`python -m tools.messages` prints the help of the command line, errors with their hints, findings, events, output,
the REST interface's summaries and the web UI's texts; `--kind help` and words choose among them. The strings are found
in the source (Python's syntax tree, and JSX by pattern), so that what no test reaches is listed too.
`tests/unit/project/test_words.py` holds them to plain words.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE, PAGE = ROOT / "src" / "mpijob", ROOT / "frontend" / "src"

_WORD = re.compile(r"[A-Za-z][a-z']+")
_LETTERS = re.compile(r"^[^\W\d_]|^[`'\"{(<-]|^%s")
# What looks like a sentence and is none: SQL, shell, patterns, templates of files.
_CODE = re.compile(
    r"^(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|PRAGMA|WITH|BEGIN|WHERE|AND|ORDER|FROM|#!|set -|#SBATCH)\b"
    r"|\(\?[:P=!<]|\\[bsdSw]|\[\^|^\s*(if|for|while|case|exec|export|trap) "
)
_QUIET_CALLS = frozenset(
    {
        "compile",
        "match",
        "search",
        "sub",
        "fullmatch",
        "finditer",
        "findall",
        "split",
        "execute",
        "executemany",
        "executescript",
        "getLogger",
        "TypeVar",
        "NewType",
        "namedtuple",
        "import_module",
        "strptime",
        "strftime",
    }
)
_MANY_LINES = 3
_FEW_WORDS = 2
_PAGE_TEXT = re.compile(
    r">\s*([A-Z][^<>{}\n]*[a-z][^<>{}\n]*?)\s*<"
    r"|(?:title|label|aria-label|placeholder|description|helperText|text|message)[=:]\s*\{?[\"'`]([^\"'`]+)[\"'`]"
    r"|[\"'`]([A-Z][^\"'`\n]*\s[^\"'`\n]*\s[^\"'`\n]*)[\"'`]"
)


class Message(NamedTuple):
    """One string that a user can read, and where it is written."""

    file: str
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: [{self.kind}] {self.text}"


def messages() -> list[Message]:
    """Return every message of the package and of the web UI, by file and line."""
    found = [message for path in sorted(SOURCE.rglob("*.py")) for message in of_python(path)]
    pages = (
        path for path in sorted(PAGE.rglob("*.ts*")) if ".test." not in path.name and path.name != "schema.ts"
    )
    return [*found, *(message for path in pages for message in of_page(path))]


def of_python(path: Path) -> Iterator[Message]:
    """Yield the messages of one module, in order."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    finder = _Finder(path.relative_to(ROOT).as_posix())
    finder.visit(tree)
    yield from sorted(finder.found, key=lambda message: message.line)


def of_page(path: Path) -> Iterator[Message]:
    """Yield the texts of one file of the web UI; comments are left out."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith(("//", "*", "/*", "import ")):
            continue
        for match in _PAGE_TEXT.finditer(line):
            text = next(part for part in match.groups() if part)
            if len(_WORD.findall(text)) >= _FEW_WORDS and "=>" not in text:
                yield Message(path.relative_to(ROOT).as_posix(), number, "page", text)


class _Finder(ast.NodeVisitor):
    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Message] = []
        self._kinds = ["text"]

    def visit_Module(self, node: ast.Module) -> None:
        self._body(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if _is_struct(node):
            for statement in node.body:
                if (
                    isinstance(statement, ast.Expr)
                    and (text := _text(statement.value))
                    and _is_published(text)
                ):
                    self._add(statement.value, text, "field")
        self._body(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        is_command = any(re.search(r"command\(|group\(", ast.unparse(one)) for one in node.decorator_list)
        if is_command and (text := ast.get_docstring(node)):
            self._add(node.body[0], text, "help")
        self._body(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._body(node)

    def _body(self, node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Visit everything but docstrings: they are for developers, unless a visitor above has taken them."""
        for child in ast.iter_child_nodes(node):
            if not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
                self.visit(child)

    def visit_Call(self, node: ast.Call) -> None:
        name = _called(node.func)
        if name in _QUIET_CALLS:
            return
        self._kinds.append(_kind(name, self._kinds[-1]))
        for child in (*node.args, *node.keywords):
            self.visit(child)
        self._kinds.pop()

    def visit_keyword(self, node: ast.keyword) -> None:
        self._kinds.append(
            {"help": "help", "hint": "hint", "summary": "api"}.get(node.arg or "", self._kinds[-1])
        )
        self.visit(node.value)
        self._kinds.pop()

    def visit_Raise(self, node: ast.Raise) -> None:
        self._kinds.append("error")
        self.generic_visit(node)
        self._kinds.pop()

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self._maybe(node, node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._maybe(node, _text(node))
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.visit(part.value)

    def _maybe(self, node: ast.expr, text: str) -> None:
        if _is_sentence(text):
            self._add(node, text, self._kinds[-1])

    def _add(self, node: ast.AST, text: str, kind: str) -> None:
        line = getattr(node, "lineno", 0)
        self.found.append(Message(self.file, line, kind, " ".join(text.split())))


def _is_published(text: str) -> bool:
    """Whether a docstring is on a reference page; that of an internal value is for developers."""
    return " ".join(text.split("\n\n")[0].split()) in _reference()


@cache
def _reference() -> str:
    pages = sorted((ROOT / "docs" / "reference").glob("*.md"))
    return " ".join(" ".join(page.read_text(encoding="utf-8").split()) for page in pages)


def _is_struct(node: ast.ClassDef) -> bool:
    return any("Struct" in ast.unparse(base) for base in node.bases)


def _text(node: ast.AST) -> str:
    """Return a string as it is written: `{name}` where a value goes."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value)
            if isinstance(part, ast.Constant)
            else f"{{{ast.unparse(part.value)}}}"
            if isinstance(part, ast.FormattedValue)
            else ""
            for part in node.values
        )
    return ""


def _is_sentence(text: str) -> bool:
    plain = re.sub(r"\{[^{}]*\}|`[^`]*`", " ", text)
    if text.count("\n") > _MANY_LINES or _CODE.search(text):
        return False
    return (
        " " in text.strip() and len(_WORD.findall(plain)) >= _FEW_WORDS and bool(_LETTERS.match(text.strip()))
    )


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _kind(name: str, outer: str) -> str:
    kinds = {
        "help": {"option", "argument", "Flag", "Switch", "CommandEntry"},
        "output": {"note", "line", "lines", "progress", "table", "echo"},
        "finding": {"Finding", "Rule", "Fix", "rule", "Cause"},
        "event": {"Event", "event"},
        "log": {"debug", "info", "warning", "error", "exception"},
        "api": {"Route", "get", "post", "delete"} if outer == "api" else {"Route"},
    }
    return next((kind for kind, names in kinds.items() if name in names), outer)


def main(arguments: list[str] | None = None) -> None:
    """Print the messages, one in a line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kind", action="append", help="only this kind: help, error, hint, finding, page …")
    parser.add_argument("words", nargs="*", help="only messages or places that contain one of these")
    given = parser.parse_args(arguments)
    for message in messages():
        wanted = not given.kind or message.kind in given.kind
        if wanted and (not given.words or any(word in str(message) for word in given.words)):
            sys.stdout.write(f"{message}\n")


if __name__ == "__main__":
    main()
