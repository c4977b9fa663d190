"""The report on requests and limits: a job has one amount for both, which is the limit."""

from __future__ import annotations

from typing import Any

from mpijob.formats.convert.kubernetes.flat_fields import Leaf
from mpijob.formats.convert.report import Notes
from mpijob.model import Resources
from mpijob.model.spec.quantity import parse


def report_amount(
    notes: Notes, leaf: Leaf, part: Resources, ours: str, form: str, key: str, *, limited: bool
) -> None:
    """Report one amount of `part`, which the job calls `ours`; `limited` says that it also has a limit."""
    field = f"{ours}.{key if key in ('cpu', 'memory') else 'gpu' if key == part.gpu_kind else 'others'}"
    taken = _amount_of(part, key)
    if form == "requests" and not limited and key in ("cpu", "memory"):
        note = "only a request, no limit; mpijob sets both to this amount"
        notes.changed(leaf.path, leaf.shown, field, note, f"nothing, or set {field}")
    elif _same(leaf.value, taken):
        notes.exact(leaf.path, leaf.shown, field)
    elif form == "requests":
        notes.changed(leaf.path, leaf.shown, field, f"mpijob requests as much as the limit: {taken}")
    else:
        notes.dropped(leaf.path, leaf.shown, f"a different amount is used: {taken or 'none'}", f"set {field}")


def _amount_of(part: Resources, name: str) -> str:
    if name in ("cpu", "memory"):
        return str(getattr(part, name))
    return str(part.gpu) if name == part.gpu_kind and part.gpu else str(part.others.get(name, ""))


def _same(one: Any, other: Any) -> bool:
    try:
        return str(one) == str(other) or parse(one) == parse(other)
    except ValueError:
        return False
