"""srun's messages about failed tasks: which failed first, which ran out of memory, and what only follows."""

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
    """The tasks that failed first (empty if srun did not end the step), and those that ran out of memory."""

    first: frozenset[int]
    out_of_memory: frozenset[int]


def read(lines: Iterable[bytes]) -> Reports:
    """Return the reports in the lines of a launcher's log."""
    first: set[int] = set()
    out_of_memory: set[int] = set()
    # With --kill-on-bad-exit srun ends all tasks when one has failed: those named before that are the cause.
    ended = False
    for line in lines:
        if line.startswith(_ENDS_ALL):
            ended = True
        elif match := _TASKS.match(line):
            tasks = {int(task) for task in units.tasks(match["tasks"].decode()) or ()}
            out_of_memory |= tasks if _OOM in match["how"] else set()
            first |= set() if ended else tasks
    return Reports(frozenset(first if ended else ()), frozenset(out_of_memory))


def follows(line: bytes) -> bool:
    """Whether a line only reports that srun ended all tasks."""
    return _FOLLOWS.match(line) is not None and _OOM not in line
