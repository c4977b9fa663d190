"""Jobs that a batch system has wait for others: for which end of them, and what does the same here.

`after` waits for success alone (docs/pipelines.md). For any other end one calls `mpijob wait`, whose status tells how
a job has ended, and begins the next one oneself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from mpijob.formats.convert.header import slurm_options
from mpijob.formats.convert.header.request import OWN_NUMBER
from mpijob.formats.convert.shell.constants import mentioned

FIRST = "FIRST"  # stands for the job that is waited for, whose name nobody knows here
_NAMED = (
    "FIRST is the name of the job that it waits for; for all of an array: mpijob wait -l mpijob/array=FIRST"
)
_FLAGS = frozenset("VzhXIfx")  # options of qsub without a value
_KIND = re.compile(r"(?<![\w${])(after\w*?|before\w*?|singleton|on)(?:array)?(?!\w)")
_OF_SUCCESS = ("afterok", "aftercorr")


class Otherwise(NamedTuple):
    """What `after` does not wait for: when a job begins, and the line that has it begin then."""

    when: str
    line: str


_STARTED = Otherwise("{first} has started", "mpijob wait {first} --for Running; {run}")
_OTHERWISE = {
    "afterany": Otherwise("{first} has ended, in whatever way", "mpijob wait {first}; {run}"),
    "afternotok": Otherwise("{first} has failed", "mpijob wait {first} || {run}"),
    "after": _STARTED,
    "afterstart": _STARTED,
    "singleton": Otherwise("the job of its name before it has ended", "mpijob wait NAME; {run}"),
}


class Submitted(NamedTuple):
    """What a line has a batch system run: its script, "" where it names none, and what that waits for."""

    script: str
    dependency: str

    @property
    def first(self) -> str:
        """The job that is waited for: NAME is the one of the script that has the line."""
        numbers = [one for one in re.split("[:,?=]", self.dependency) if one and not _KIND.fullmatch(one)]
        own = not numbers or any(mentioned(one) & {*OWN_NUMBER} for one in numbers)
        return "NAME" if own else FIRST


def for_success(dependency: str) -> bool:
    """Return whether a dependency, or a part of it, waits for success: `after` does the same."""
    kinds = _KIND.findall(dependency)
    return not kinds or any(kind in _OF_SUCCESS for kind in kinds)


def otherwise(dependency: str, first: str, run: str) -> list[Otherwise]:
    """Return what else a dependency waits for, with the line that runs a job then; `run` is the command alone."""
    kinds = [kind for kind in dict.fromkeys(_KIND.findall(dependency)) if kind not in _OF_SUCCESS]
    found = [_OTHERWISE.get(kind, Otherwise(f"{kind} wants it", "{run}")) for kind in kinds]
    return [Otherwise(*(part.format(first=first, run=run) for part in each)) for each in found]


def explained(todo: str) -> str:
    """Return what is to do, with what FIRST stands for where it says so."""
    return f"{todo} ({_NAMED})" if FIRST in todo else todo


def submitted(line: str) -> Submitted:
    """Return what a line of sbatch or qsub submits: the first word that is no option is its script."""
    words = [word.strip("`") for word in slurm_options.directives(line.replace("\\\n", " "))]
    rest = words[1:]
    found, at = slurm_options.pairs(rest) if words[:1] == ["sbatch"] else _of_qsub(rest)
    dependency = [value for name, value, _ in found if name == "dependency"]
    dependency += [value.removeprefix("depend=") for _, value, _ in found if value.startswith("depend=")]
    return Submitted(_script(rest[at:]), ",".join(dependency))


def _script(words: Sequence[str]) -> str:
    """Return the script that words begin with; "" where only a shell knows it, or a text of the line is it."""
    first = "".join(words[:1])
    if first.startswith("<") and not first.startswith("<<"):
        first = first[1:] or "".join(words[1:2])
    return "" if re.match(r"[0-9]*[<>]|.*\$", first) else first


def _of_qsub(words: Sequence[str]) -> tuple[list[tuple[str, str, str]], int]:
    """Return the options of qsub as those of sbatch are returned."""
    found: list[tuple[str, str, str]] = []
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-", "--"):
        apart = len(words[at]) == 2 and words[at][1] not in _FLAGS
        value = "".join(words[at + 1 : at + 2]) if apart else words[at][2:]
        found.append((words[at][1], value, words[at]))
        at += 2 if apart else 1
    return found, at + (words[at : at + 1] == ["--"])
