"""The report on converted fields: the values that every converter fills in and every interface shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from mpijob.formats.kubernetes.metadata.passthrough import Foreign
from mpijob.model import Family, MPIJob

_SHOWN = 200
# The value of a field that the source does not have and that has a default in the job.
UNASKED = "(not requested)"


class FieldOutcome(StrEnum):
    """The outcome of a field."""

    # The same meaning.
    EXACT = "exact"
    # Kept, but with another meaning: see `note`.
    CHANGED = "changed"
    # Not converted: see `todo`.
    DROPPED = "dropped"


class Stage(StrEnum):
    """Whether a converted file can be used."""

    # It can run unchanged.
    READY = "ready"
    # Somebody must check what the report says first.
    CHECK = "check"
    # It does not run without a change.
    BLOCKED = "blocked"


class FieldEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One field of the source: its value, the outcome, the target field, and what to do."""

    field: str
    fate: FieldOutcome
    value: str = ""
    ours: str = ""
    note: str = ""
    todo: str = ""
    line: int = 0
    blocks: bool = False

    @property
    def matters(self) -> bool:
        """Whether there is something to do."""
        return bool(self.todo) and not self.todo.startswith("nothing")


class Converted(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of one source, in the order in which they run, and the report.

    `values` are those of an array, in the form of `mpijob array --values`. `after` is the placeholder of a job that
    is known by another system's number only. `foreign` has fields of a manifest that a job does not have: they are
    kept when the same kind is written again.
    """

    source: str
    jobs: tuple[MPIJob, ...] = ()
    entries: tuple[FieldEntry, ...] = ()
    file: str = ""
    values: Mapping[str, tuple[str, ...]] = {}
    after: str = ""
    foreign: Foreign = Foreign()
    family: Family = Family.AUTO

    @property
    def stage(self) -> Stage:
        if not self.jobs or any(entry.blocks for entry in self.entries):
            return Stage.BLOCKED
        return Stage.CHECK if any(entry.matters for entry in self.entries) else Stage.READY

    @property
    def blockers(self) -> tuple[FieldEntry, ...]:
        """Return the entries without which the job does not run."""
        return tuple(entry for entry in self.entries if entry.blocks)

    @property
    def automatic(self) -> float:
        """The share of fields that were converted, with the same or with another meaning."""
        return 1.0 - self.count(FieldOutcome.DROPPED) / len(self.entries) if self.entries else 1.0

    def count(self, fate: FieldOutcome) -> int:
        return sum(entry.fate is fate for entry in self.entries)


def to_do_first(entries: Iterable[FieldEntry]) -> tuple[FieldEntry, ...]:
    """Return the entries by urgency: blocking ones, ones with something to do, all others."""
    return tuple(sorted(entries, key=lambda entry: (not entry.blocks, not entry.matters)))


class Notes:
    """Collects entries while a source is read; `line` is the reader's position."""

    def __init__(self) -> None:
        self.entries: list[FieldEntry] = []
        self.line = 0

    def at(self, line: int) -> Notes:
        """Return notes for another line that add to the same entries."""
        other = Notes()
        other.entries, other.line = self.entries, line
        return other

    def exact(self, field: str, value: object = "", ours: str = "", note: str = "") -> None:
        self._add(FieldEntry(field, FieldOutcome.EXACT, _text(value), ours, note))

    def changed(self, field: str, value: object, ours: str, note: str, todo: str = "") -> None:
        self._add(FieldEntry(field, FieldOutcome.CHANGED, _text(value), ours, note, todo))

    def dropped(self, field: str, value: object, note: str, todo: str, *, blocks: bool = False) -> None:
        self._add(FieldEntry(field, FieldOutcome.DROPPED, _text(value), "", note, todo, 0, blocks))

    def extend(self, entries: Iterable[FieldEntry]) -> None:
        self.entries.extend(entries)

    def _add(self, entry: FieldEntry) -> None:
        self.entries.append(msgspec.structs.replace(entry, line=self.line) if self.line else entry)


def _text(value: object) -> str:
    text = str(value).replace("\n", "⏎")
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
