"""What became of each field: the values that every converter fills in and every face shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from mpijob.formats.kubernetes.metadata.passthrough import Foreign
from mpijob.model import Family, MPIJob

_SHOWN = 200
# The value of what the source leaves open and the job has a default for.
UNASKED = "(not requested)"


class FieldOutcome(StrEnum):
    """What became of a field."""

    # It means the same.
    EXACT = "exact"
    # It is there, and behaves differently: `note` says how and why.
    CHANGED = "changed"
    # It is gone: `todo` says what to do.
    DROPPED = "dropped"


class Stage(StrEnum):
    """How far a file is on its way."""

    # It runs as it is.
    READY = "ready"
    # It is ready when what is to do is done.
    CHECK = "check"
    # Somebody has to change something first.
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
        """Whether somebody has to look at it: there is something to do."""
        return bool(self.todo) and not self.todo.startswith("nothing")


class Converted(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of one source, in the order in which they run, and the report.

    `values` are those of an array, as `mpijob array --values` takes them. `after` stands for the job that they wait
    for, where the source knows it by another system's number. `foreign` is what a manifest says
    beyond a job: it is put back when the same kind is written again.
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
        """How far it is: ready, to be checked, or blocked."""
        if not self.jobs or any(entry.blocks for entry in self.entries):
            return Stage.BLOCKED
        return Stage.CHECK if any(entry.matters for entry in self.entries) else Stage.READY

    @property
    def blockers(self) -> tuple[FieldEntry, ...]:
        """What somebody has to change first."""
        return tuple(entry for entry in self.entries if entry.blocks)

    @property
    def automatic(self) -> float:
        """The share of fields that were brought along, exactly or changed."""
        return 1.0 - self.count(FieldOutcome.DROPPED) / len(self.entries) if self.entries else 1.0

    def count(self, fate: FieldOutcome) -> int:
        """Return how many fields met this fate."""
        return sum(entry.fate is fate for entry in self.entries)


def to_do_first(entries: Iterable[FieldEntry]) -> tuple[FieldEntry, ...]:
    """Return entries in the order in which somebody needs them: what blocks, what is to do, the rest."""
    return tuple(sorted(entries, key=lambda entry: (not entry.blocks, not entry.matters)))


class Notes:
    """Gathers entries while a source is read; `line` is where the reader stands."""

    def __init__(self) -> None:
        self.entries: list[FieldEntry] = []
        self.line = 0

    def at(self, line: int) -> Notes:
        """Return notes that are added to these, of another line."""
        other = Notes()
        other.entries, other.line = self.entries, line
        return other

    def exact(self, field: str, value: object = "", ours: str = "", note: str = "") -> None:
        """Take note of a field that means the same here."""
        self._add(FieldEntry(field, FieldOutcome.EXACT, _text(value), ours, note))

    def changed(self, field: str, value: object, ours: str, note: str, todo: str = "") -> None:
        """Take note of a field that behaves differently here, and why."""
        self._add(FieldEntry(field, FieldOutcome.CHANGED, _text(value), ours, note, todo))

    def dropped(self, field: str, value: object, note: str, todo: str, *, blocks: bool = False) -> None:
        """Take note of a field that is gone, and what to do about it."""
        self._add(FieldEntry(field, FieldOutcome.DROPPED, _text(value), "", note, todo, 0, blocks))

    def extend(self, entries: Iterable[FieldEntry]) -> None:
        """Add entries that were made elsewhere."""
        self.entries.extend(entries)

    def _add(self, entry: FieldEntry) -> None:
        self.entries.append(msgspec.structs.replace(entry, line=self.line) if self.line else entry)


def _text(value: object) -> str:
    text = str(value).replace("\n", "⏎")
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
