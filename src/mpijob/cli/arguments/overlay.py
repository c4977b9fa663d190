"""Merge flags into the tree of a job file. Pure.

`flags` defines how each flag is merged; the job file's own reader parses the resulting tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click

from mpijob.cli.arguments import flag_values
from mpijob.cli.arguments.flags import FLAGS, SWITCHES, Flag, Merge

Tree = dict[str, Any]


class Change(NamedTuple):
    """A change of one field: its value, and how it is merged with that of the file."""

    path: str
    value: Any
    merge: Merge = Merge.SET
    key: str = ""


def changes_of(given: Mapping[str, Any]) -> list[Change]:
    """Return the changes that the flags of a command line make."""
    changes = [_change(flag, given[flag.parameter]) for flag in FLAGS if given.get(flag.parameter)]
    changes += [Change(switch.path, switch.value) for switch in SWITCHES if given.get(switch.parameter)]
    return changes + [_anywhere(text) for text in given.get("set_field", ())]


def _change(flag: Flag, said: str | Sequence[str]) -> Change:
    try:
        if isinstance(said, str):
            return Change(flag.path, flag.read(said), flag.merge, flag.key)
        read = [flag.read(one) for one in said]
    except click.BadParameter as error:
        error.param_hint = flag.option
        raise
    if flag.merge is Merge.KEYS:
        return Change(flag.path, {key: value for one in read for key, value in one.items()}, flag.merge)
    return Change(flag.path, read, flag.merge, flag.key)


def _anywhere(text: str) -> Change:
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise click.BadParameter(f"{text!r} is not of the form PATH=VALUE", param_hint="--set-field")
    return Change(path, flag_values.anything(value))


def overlay(tree: Tree, changes: Sequence[Change]) -> Tree:
    """Return a changed copy of the tree."""
    for change in changes:
        tree = _changed(tree, change.path.split("."), change)
    return tree


def _changed(tree: Tree, path: list[str], change: Change) -> Tree:
    first, *rest = path
    below = tree.get(first)
    if rest:
        return {**tree, first: _changed(below if isinstance(below, dict) else {}, rest, change)}
    return {**tree, first: _met(below, change)}


def _met(there: Any, change: Change) -> Any:
    if change.merge is Merge.KEYS and isinstance(there, dict):
        return {**there, **change.value}
    if change.merge is Merge.BY_KEY and isinstance(there, (list, tuple)):
        new = {item[change.key] for item in change.value}
        return [item for item in there if _key(item, change.key) not in new] + change.value
    return change.value


def _key(item: Any, key: str) -> Any:
    return item.get(key) if isinstance(item, dict) else None
