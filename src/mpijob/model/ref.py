"""Which job: its namespace and name, and which of the jobs that ever had that name."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from mpijob.errors import InvalidJob

# Of a number that every database takes.
_DIGITS = 18


class JobKey(NamedTuple):
    """What identifies one job: a uid is unique in its namespace only, because anybody may write it onto an object."""

    namespace: str
    uid: str


class JobRef(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """Identifies one job. Without a uid, the newest job of that name."""

    namespace: str
    name: str
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def key(self) -> JobKey:
        """What identifies the job, whatever its name."""
        return JobKey(self.namespace, self.uid)


class Scope(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Which jobs a list or a watch is about.

    `namespace` "" means all. `selector` is a label selector as kubectl takes it
    (`team=cv,tier!=test`). `text` is looked for in names, which have no capitals. `kinds` are kinds of objects
    (`MPIJob`, `TrainJob`, in capitals or not), `since` and `until` bound when jobs were submitted.
    `limit` and `after` page through a long list, newest first. `runs` adds the earlier jobs of each name.
    """

    namespace: str = "default"
    names: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    selector: str = ""
    owner: str = ""
    queue: str = ""
    text: str = ""
    kinds: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None
    limit: int = 100
    after: str = ""
    runs: bool = False

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "text", self.text.lower())
        msgspec.structs.force_setattr(self, "kinds", tuple(kind.lower() for kind in self.kinds))

    @property
    def place(self) -> int:
        """The number that the page before gave as its `after`, 0 for the first page; raise InvalidJob for another."""
        if not self.after:
            return 0
        if not (self.after.isascii() and self.after.isdecimal() and len(self.after) <= _DIGITS):
            raise no_place(self.after)
        return int(self.after)


def no_place(cursor: str) -> InvalidJob:
    """Return the error for what does not say where a page begins."""
    return InvalidJob(
        f"'{cursor}' is not a valid continue token", hint="use the one that the page before gave"
    )
