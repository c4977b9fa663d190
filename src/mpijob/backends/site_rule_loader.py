"""Load the rule file of a site, for `mpijob why` and for the engines.

Its format is in `formats/jobfile/site_rules_file`, the checks and the use of rules in `diagnosis/site_rules`.
"""

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
    """Return the rules of a file; raise InvalidJob with all its errors, NotFound if it does not exist."""
    rules, errors = check(path, run_examples=False)
    if errors:
        raise InvalidJob.of(errors, path)
    return tuple(site_rules.build(rule) for rule in rules)


def load_if_valid(path: str) -> tuple[Rule, ...]:
    """Return the rules of a file; none if it is missing or invalid."""
    # An engine must explain a failure even if the file is invalid. `mpijob rules test` and `mpijob why` report its
    # errors to users who can fix them.
    if not path:
        return ()
    try:
        return _load_cached(path, os.stat(os.path.expanduser(path)).st_mtime_ns)
    except (MpiJobError, OSError):
        return ()


@lru_cache(maxsize=4)
def _load_cached(path: str, modified_ns: int) -> tuple[Rule, ...]:
    return load(path)


def check(path: str, *, run_examples: bool = True) -> tuple[tuple[SiteRule, ...], tuple[Finding, ...]]:
    """Return the rules of a file and their errors; with `run_examples`, rules that miss their own examples, too."""
    read = site_rules_file.read(_read(path), file=path)
    errors = [read.at(*fault) for fault in site_rules.faults(read.rules, tried=run_examples)]
    for index, rule in enumerate(read.rules):
        if slow := _slow(rule.pattern):
            errors.append(read.at(("rules", index, "pattern"), slow, "simplify it"))
    return read.rules, tuple(errors)


def _slow(pattern: str) -> str:
    """Return why a pattern could take very long on some text, "" if it cannot; other errors are found elsewhere."""
    try:
        filters.guarded_search(pattern)
    except InvalidJob as error:
        return error.message if "could take very long" in error.message else ""
    return ""


def _read(path: str) -> bytes:
    try:
        with Path(path).expanduser().open("rb") as file:
            # The mode of the open file, not of the path, which could be replaced in between. The owner may be
            # another user: the path was chosen in the settings, and a rule runs nothing (docs/decisions/0046).
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
