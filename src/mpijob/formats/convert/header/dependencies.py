"""Dependencies between batch jobs, and their equivalents here.

`after` waits for a job's success, failure or end (docs/how-to/users/pipelines.md). Waiting for a job's start has no
field: `mpijob wait` does that.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# Placeholder for the job to wait for: its name here is unknown.
FIRST = "FIRST"
_NAMED = "FIRST is the name of the job to wait for; to wait for an array: mpijob wait -l mpijob/array=FIRST"
_KIND = re.compile(r"(?<![\w${])(after\w*?|before\w*?|singleton|on)(?:array)?(?!\w)")
_OF_SUCCESS = ("afterok", "aftercorr")


class Otherwise(NamedTuple):
    """When a job starts that does not wait for success, and the command that starts it then."""

    when: str
    line: str


_STARTED = Otherwise("{first} has started", "mpijob wait {first} --for Running; {run}")
_OTHERWISE = {
    "afterany": Otherwise("{first} has ended, successful or not", "{run} --after any:{first}"),
    "afternotok": Otherwise("{first} has failed", "{run} --after failed:{first}"),
    "after": _STARTED,
    "afterstart": _STARTED,
    "singleton": Otherwise("the earlier job of the same name has ended", "mpijob wait NAME; {run}"),
}


def for_success(dependency: str) -> bool:
    """Return whether a dependency, or a part of it, waits for success: `after` does the same."""
    kinds = _KIND.findall(dependency)
    return not kinds or any(kind in _OF_SUCCESS for kind in kinds)


def otherwise(dependency: str, first: str, run: str) -> list[Otherwise]:
    """Return a dependency on anything else, with the line that starts the job then; `run` is the job's command."""
    kinds = [kind for kind in dict.fromkeys(_KIND.findall(dependency)) if kind not in _OF_SUCCESS]
    found = [_OTHERWISE.get(kind, Otherwise(f"the condition {kind} is met", "{run}")) for kind in kinds]
    return [Otherwise(*(part.format(first=first, run=run) for part in each)) for each in found]


def explained(todo: str) -> str:
    """Return what to do, with an explanation of FIRST if it is mentioned."""
    return f"{todo} ({_NAMED})" if FIRST in todo else todo
