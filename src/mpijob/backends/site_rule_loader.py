"""Files of rules of a user's own site: found, read, checked, tried; for `why` and for the engines."""

from __future__ import annotations

import os
import stat
from functools import lru_cache
from pathlib import Path

from mpijob.diagnosis import site_rules
from mpijob.diagnosis.rule import Rule
from mpijob.errors import Finding, InvalidJob, MpiJobError, NotFound, UnsafePath
from mpijob.formats.jobfile import site_rules_file
from mpijob.model.platform.site_rule import SiteRule
from mpijob.observation.logs import filters


def load(path: str) -> tuple[Rule, ...]:
    """Return the rules of a file; raise InvalidJob with what is wrong in it, NotFound where there is none."""
    read, wrong = check(path, tried=False)
    if wrong:
        raise InvalidJob.of(wrong, path)
    return tuple(site_rules.made(rule) for rule in read)


def load_if_valid(path: str) -> tuple[Rule, ...]:
    """Return the rules of a file for an engine: none where there is no file or something is wrong with it.

    A failure is explained all the same; what is wrong, `mpijob rules test` and `why` say to whoever can mend it.
    """
    if not path:
        return ()
    try:
        return _kept(path, os.stat(os.path.expanduser(path)).st_mtime_ns)
    except (MpiJobError, OSError):
        return ()


@lru_cache(maxsize=4)
def _kept(path: str, changed_ns: int) -> tuple[Rule, ...]:
    return load(path)


def check(path: str, *, tried: bool = True) -> tuple[tuple[SiteRule, ...], tuple[Finding, ...]]:
    """Return the rules of a file, and everything that is wrong with them or, when they are tried, their examples."""
    read = site_rules_file.read(_text(path), file=path)
    wrong = [read.at(*fault) for fault in site_rules.faults(read.rules, tried=tried)]
    for at, rule in enumerate(read.rules):
        if slow := _slow(rule.pattern):
            wrong.append(read.at(("rules", at, "pattern"), slow, "simplify it"))
    return read.rules, tuple(wrong)


def _slow(pattern: str) -> str:
    """Return why a pattern could take very long on some text."""
    try:
        filters.guarded_search(pattern)
    except InvalidJob as error:
        return error.message if "could take very long" in error.message else ""
    return ""


def _text(path: str) -> bytes:
    try:
        with Path(path).expanduser().open("rb") as file:
            if os.fstat(file.fileno()).st_mode & stat.S_IWOTH:
                raise UnsafePath(
                    f"the rule file {path} is refused: it is world-writable",
                    hint=f"chmod o-w {path}",
                )
            return file.read()
    except FileNotFoundError as error:
        raise NotFound(f"rule file {path} does not exist", hint="see `rules` in the settings") from error
    except OSError as error:
        raise InvalidJob(f"the rule file {path} cannot be read: {error.strerror}") from error
