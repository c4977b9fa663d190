"""References to jobs, and selections of them."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from mpijob.errors import InvalidJob

# Digits of a number that every database accepts (64 bits).
_DIGITS = 18


class JobKey(NamedTuple):
    """Identifies one job. A uid is unique in its namespace only, because users can write it onto objects."""

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
        """Identifies the job whatever its name."""
        return JobKey(self.namespace, self.uid)


class Scope(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The jobs of a list or a watch.

    `namespace` "" means all. `selector` is a label selector in kubectl's form (`team=cv,tier!=test`). `text` is
    searched in names, which are in lower case. `kinds` are kinds of objects (`MPIJob`, `TrainJob`, in any case);
    `since` and `until` limit the time of submission. `limit` and `after` page through a long list, newest first.
    `runs` adds the earlier jobs of each name.
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
        """The position in the previous page's `after`, 0 for the first page; raise InvalidJob if it is malformed."""
        if not self.after:
            return 0
        if not (self.after.isascii() and self.after.isdecimal() and len(self.after) <= _DIGITS):
            raise invalid_continue_token(self.after)
        return int(self.after)


def invalid_continue_token(cursor: str) -> InvalidJob:
    """Return the error for an invalid continue token."""
    return InvalidJob(
        f"'{cursor}' is not a valid continue token", hint="use the one that the page before gave"
    )
