"""The user of a request."""

from __future__ import annotations

import msgspec


class Identity(msgspec.Struct, frozen=True, omit_defaults=True):
    """The user on whose behalf something is done."""

    user: str
    groups: tuple[str, ...] = ()
    administrator: bool = False
