"""A site's own diagnosis rule: what to search for, its cause, and its fixes.

`formats/jobfile/site_rules_file` reads the file, `diagnosis/site_rules` makes rules of the diagnosis from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpijob.model.spec.job import Value


class SiteFix(Value, frozen=True, kw_only=True):
    """One fix: a sentence, and the change to the spec if there is one."""

    text: str
    patch: Mapping[str, Any] = {}


class SiteRule(Value, frozen=True, kw_only=True):
    """One cause that a site knows.

    `pattern` is a regular expression, tried only where `literal` occurs; its named groups may be used in
    `cause` and in the fixes, with `{who}`, `{rank}`, `{worker}`, `{job}`. A blank in it stands for any white
    space. `examples` are texts that it must find, `innocent` ones that it must not.
    """

    id: str
    title: str
    literal: str
    pattern: str
    cause: str
    why: str = ""
    fixes: tuple[SiteFix, ...] = ()
    confidence: float = 0.8
    while_running: bool = False
    examples: tuple[str, ...] = ()
    innocent: tuple[str, ...] = ()


class SiteRules(Value, frozen=True, kw_only=True):
    """The rules of a file."""

    rules: tuple[SiteRule, ...]
