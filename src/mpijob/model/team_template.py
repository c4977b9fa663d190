"""A job template that a namespace shares."""

from __future__ import annotations

import msgspec

# Bytes of a template's text: all templates of a namespace are in one config map.
LARGEST = 256 << 10


class TeamTemplate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A template of a namespace: a job file as text, who saved it last, and when (seconds since the epoch)."""

    namespace: str
    name: str
    text: str
    owner: str = ""
    changed: float = 0.0
