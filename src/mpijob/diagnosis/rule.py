"""What a rule is: data that identifies a cause by its signs, explains it and proposes changes that fix it.

A sign is a pattern in the output, or the name of a fact that `signals` reads from exits and memory. Each
entry of `rules` is one of these; `ranking` applies them; `rule_docs` writes their troubleshooting page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from functools import lru_cache
from typing import Any

import msgspec


class Trust(IntEnum):
    """How much a sign is trusted, the most first; within one level the earlier sign wins.

    DECISION: someone asked for it. FACT: measured. CAUSE: a first exit or a specific line; no line is trusted
    more. LIMIT: a time limit that ended a job with another fault. GENERIC: banners that follow any failure.
    """

    DECISION = 0
    FACT = 1
    CAUSE = 2
    LIMIT = 3
    GENERIC = 4


class Sign(msgspec.Struct, frozen=True):
    """A pattern in the output; it is tried only where its literal occurs, so it costs nothing elsewhere.

    A blank in the pattern matches any white space, because banners wrap; `[ ]` is one blank. With a `code`, a
    rank that is known to have ended with another code survived it. A group `here` is the sign's place, for
    patterns that must match earlier text. A `weak` sign is also written for ranks that the launcher itself
    ended because another one had failed: a reported error is better.
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
    """One change that may fix it. Fields in braces are filled in; if one is unknown, the remedy is not offered."""

    text: str
    patch: Mapping[str, Any] = {}


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One cause. `causes` are sentences; the first whose fields are all known is used.

    `uncaught` requires the sign to be among the last lines of its rank. `yields_to` names rules that explain
    it better if both match. `even_on_success` may match although everything ended with 0, `while_running`
    although the job has not ended. `warning` also occurs in successful runs, so it is never a cause by
    itself. `only_how` describes how a rank ended and not why: its own error is better. `crash` is a signal
    that a rank got for what it did: an error that it reported before is the cause. `of_launcher` concerns no
    rank. `example` is for its page, if the sentence is the engine's.
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
        """The path of its page, below docs/troubleshooting."""
        return f"{self.id.lower()}.md"


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[bytes]:
    loose = re.sub(r"(?<!\[) (?!\])", r"\\s+", pattern)
    return re.compile(loose.encode(), re.MULTILINE)
