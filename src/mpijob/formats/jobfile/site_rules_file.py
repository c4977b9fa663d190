"""A site's diagnosis rules: YAML or JSON, with all errors reported by line and column.

`diagnosis/site_rules` tests the rules; `Read.at` gives its findings their position in the file.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect

from mpijob import codec
from mpijob.errors import Finding, InvalidJob
from mpijob.formats.jobfile.yaml_tree import Mapping, Node, Scalar, Sequence, finding, meaning, parse, refused
from mpijob.model.platform.site_rule import SiteRule, SiteRules
from mpijob.model.spec.type_check import Path, problems_in

_HINT = "begin with `rules:` and a list of rules, each with id, title, literal, pattern and cause"


class Read:
    """The rules of a file, and the position of each of their fields."""

    def __init__(self, rules: tuple[SiteRule, ...], places: dict[Path, Node], file: str) -> None:
        self.rules = rules
        self._places = places
        self._file = file

    def at(self, path: Path, message: str, hint: str = "") -> Finding:
        """Return a finding about a field, with its position."""
        here = path
        while here and here not in self._places:
            here = here[:-1]
        located = finding("BAD_RULE", self._places[here], message, hint, path)
        return msgspec.structs.replace(located, file=self._file)


def read(text: str | bytes, *, file: str = "") -> Read:
    """Return the rules of a file; raise InvalidJob with all of its errors."""
    forest = parse(text, file)
    if len(forest.roots) != 1 or not isinstance(forest.roots[0], Mapping):
        message = "a file of rules is one mapping"
        node = forest.roots[0] if forest.roots else Node(1, 1)
        raise refused([finding("BAD_RULE", node, message, _HINT)], file)
    places: dict[Path, Node] = {}
    names: dict[Path, Node] = {}
    tree = _plain(forest.roots[0], (), places, names)
    wrong = [
        finding(
            problem.code,
            _nearest(problem.path, names if problem.code == "UNKNOWN_FIELD" else places),
            problem.message,
            problem.hint,
            problem.path,
        )
        for problem in problems_in(tree, inspect.type_info(SiteRules))
    ]
    if wrong or forest.findings:
        raise refused([*forest.findings, *wrong], file)
    return Read(_converted(tree, file), places, file)


def _converted(tree: Any, file: str) -> tuple[SiteRule, ...]:
    try:
        return codec.convert(tree, SiteRules).rules
    except msgspec.ValidationError as error:
        raise InvalidJob(f"{file or 'the file'} is not a file of rules: {error}", hint=_HINT) from error


def _plain(node: Node, path: Path, places: dict[Path, Node], names: dict[Path, Node]) -> Any:
    places[path] = node
    names.setdefault(path, node)
    if isinstance(node, Mapping):
        names.update(((*path, key.text), key) for key, _ in node.entries)
        return {key.text: _plain(child, (*path, key.text), places, names) for key, child in node.entries}
    if isinstance(node, Sequence):
        return [_plain(child, (*path, at), places, names) for at, child in enumerate(node.items)]
    assert isinstance(node, Scalar)
    return meaning(node.text) if node.plain else node.text


def _nearest(path: Path, places: dict[Path, Node]) -> Node:
    while path and path not in places:
        path = path[:-1]
    return places[path]
