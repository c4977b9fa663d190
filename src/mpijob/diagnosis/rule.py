"""What a rule is: data that names a cause by its signs, in plain language, with the changes that mend it.

A sign is a pattern in what was said, or the name of a fact that `signals` reads from exits and memory.
Each entry of `rules` is one of these; `ranking` applies them; `rule_docs` writes their troubleshooting page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from functools import lru_cache
from typing import Any

import msgspec


class Trust(IntEnum):
    """How far a sign is believed, the most first; within one level the earlier sign wins.

    DECISION: somebody wanted it. FACT: measured. CAUSE: a first exit or a specific line; no line is believed
    more. LIMIT: a time limit that ended something else's fault. GENERIC: banners that follow any failure.
    """

    DECISION = 0
    FACT = 1
    CAUSE = 2
    LIMIT = 3
    GENERIC = 4


class Sign(msgspec.Struct, frozen=True):
    """A pattern in the text; it is tried only where its literal occurs, so it costs nothing elsewhere.

    A blank in the pattern stands for any white space, because banners wrap; `[ ]` is one blank. With a `code`, a rank
    that is known to have ended with another one went on after it. A group `here` says where the sign stands, where the
    pattern has to look at what is before it. A `weak` sign is also written of ranks that the
    launcher itself ended because another one had failed: an error that was reported tells more.
    """

    literal: str
    pattern: str
    code: int | None = None
    weak: bool = False

    @property
    def regex(self) -> re.Pattern[bytes]:
        """The compiled pattern."""
        return _compiled(self.pattern)


class Remedy(msgspec.Struct, frozen=True):
    """One change that may fix it. Fields in braces are filled in; without them it is not offered."""

    text: str
    patch: Mapping[str, Any] = {}


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One cause. `causes` are sentences, the first whose fields are all known is said.

    `uncaught` wants the sign to be among the last things that its rank said. `yields_to` names rules
    that say it better when both hold. `even_on_success` may fire although everything ended with 0,
    `while_running` although the job goes on. `warning` is said in runs that end well, too: it is never a cause
    by itself. `only_how` tells how a rank ended and not why: its own words tell more. `crash` is a signal that a
    rank got for what it did: an error that it reported before is the cause. `of_launcher` happened to no
    rank. `example` is for its page, where the sentence is the engine's own.
    """

    id: str
    title: str
    why: str
    causes: tuple[str, ...]
    remedies: tuple[Remedy, ...]
    trust: Trust = Trust.CAUSE
    signs: tuple[Sign, ...] = ()
    facts: tuple[str, ...] = ()
    confidence: float = 0.9
    uncaught: bool = False
    even_on_success: bool = False
    while_running: bool = False
    warning: bool = False
    only_how: bool = False
    crash: bool = False
    of_launcher: bool = False
    yields_to: tuple[str, ...] = ()
    field: str = ""
    example: str = ""

    @property
    def page(self) -> str:
        """Where its troubleshooting page is, below docs/troubleshooting."""
        return f"{self.id.lower()}.md"


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[bytes]:
    loose = re.sub(r"(?<!\[) (?!\])", r"\\s+", pattern)
    return re.compile(loose.encode(), re.MULTILINE)
