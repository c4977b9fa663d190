"""Finds every code that a user can be shown, in the source itself, so that none is forgotten.

A code is a word in the source: the first argument or the keyword `code` of the calls that make findings
and rules, or the `code` of an error class. `tests/unit/project/test_troubleshooting.py` wants a page for each.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

from mpijob import checks, errors
from mpijob.diagnosis.rules import RULES, UNKNOWN

SOURCE = Path(errors.__file__).parent
MAKERS = frozenset({"Finding", "finding", "Problem", "rule", "problem"})


def all_codes() -> frozenset[str]:
    """Return what the source says and what the registries hold."""
    return frozenset(written()) | checks.codes() | rule_codes() | error_codes()


@functools.cache
def written(source: Path = SOURCE) -> dict[str, str]:
    """Return every code in the source with the file that says it."""
    found: dict[str, str] = {}
    for path in sorted(source.rglob("*.py")):
        for code in in_module(path.read_text(encoding="utf-8")):
            found[code] = str(path.relative_to(source))
    return found


def in_module(text: str) -> Iterator[str]:
    """Yield the codes that one module says; an empty one is filled in elsewhere."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            yield from filter(None, _of_call(node))
        elif isinstance(node, ast.ClassDef):
            yield from filter(None, _of_class(node))


def _of_call(call: ast.Call) -> Iterator[str]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in MAKERS and call.args:
        yield _text(call.args[0])
    yield from (_text(word.value) for word in call.keywords if word.arg == "code")


def _of_class(kind: ast.ClassDef) -> Iterator[str]:
    for line in kind.body:
        target = line.targets[0] if isinstance(line, ast.Assign) else getattr(line, "target", None)
        if isinstance(target, ast.Name) and target.id == "code":
            yield _text(getattr(line, "value", None))


def _text(node: ast.AST | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def rule_codes() -> frozenset[str]:
    """Return the causes of failure that the diagnosis knows."""
    return frozenset(rule.id for rule in (*RULES, UNKNOWN))


def error_codes() -> frozenset[str]:
    """Return the codes of our errors."""
    found, todo = set(), [errors.MpiJobError]
    while todo:
        kind = todo.pop()
        found.add(kind.code)
        todo += [one for one in kind.__subclasses__() if one.__module__.startswith("mpijob.")]
    return frozenset(found)
