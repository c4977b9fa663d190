"""What srun says of tasks that ended badly: which it saw first, which ran out of memory, and what only follows.

With --kill-on-bad-exit it ends all tasks when one has failed. Those that it named before it did so are the cause; what
it and the nodes say of the others afterwards follows from that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from mpijob.formats.convert.header import units

_TASKS = re.compile(rb"srun: error: \S+: tasks? (?P<tasks>[\d,-]{1,2000}): (?P<how>[^\n]+)")
_ENDS_ALL = (b"srun: launch/slurm: _step_signal: Terminating StepId", b"srun: Terminating StepId")
_FOLLOWS = re.compile(
    rb"srun: |slurmstepd-\S+: error: +(?:\*\*\* STEP \S+ ON \S+ CANCELLED AT \S+ \*\*\*|mpi/pmix)"
)
_OOM = b"Out Of Memory"


class Reports(NamedTuple):
    """The tasks that were named first (none: srun ended nothing), and those that ran out of memory."""

    first: frozenset[int]
    out_of_memory: frozenset[int]


def read(lines: Iterable[bytes]) -> Reports:
    """Return what the lines of a launcher's log report."""
    first: set[int] = set()
    starved: set[int] = set()
    ended = False
    for line in lines:
        if line.startswith(_ENDS_ALL):
            ended = True
        elif match := _TASKS.match(line):
            tasks = {int(task) for task in units.tasks(match["tasks"].decode()) or ()}
            starved |= tasks if _OOM in match["how"] else set()
            first |= set() if ended else tasks
    return Reports(frozenset(first if ended else ()), frozenset(starved))


def follows(line: bytes) -> bool:
    """Whether a line only tells what srun did when it ended all tasks, or was asked to."""
    return _FOLLOWS.match(line) is not None and _OOM not in line
