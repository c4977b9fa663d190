"""Scripts that run inside a batch system's allocation, and the journals that they write.

The scripts (`scripts/allocation*.sh`) are the same for every batch system. The generated batch script describes the
allocation in variables (`MPIJOB_NUMBER`, `MPIJOB_RESTART`, `MPIJOB_NODES`, `MPIJOB_SAID`) and defines
`mpijob_launch`. A line of a journal has the seconds since the boot of the machine that wrote it, a verb and its
words.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import NamedTuple

from mpijob.model import MPIJob, Sample

# Exit statuses: the node does not see the job's directory, or cannot write there.
NOT_SHARED, NOT_WRITABLE = 97, 98
# One for each architecture, by the name that `uname -m` prints.
PROFILER = "mpi_profile-{}.so"
_FOLDER = os.path.join(os.path.dirname(__file__), "scripts")
_TEXTS = ("allocation.sh", "allocation_rank.sh", "allocation_common.sh", "stamp.awk", "watch_world.sh")


def texts() -> dict[str, str]:
    found = {}
    for name in _TEXTS:
        with open(os.path.join(_FOLDER, name), encoding="utf-8") as file:
            found[name] = file.read()
    return found


def programs(job: MPIJob) -> str:
    """Return the `case` statement that selects a rank's program, "" if all ranks run the same."""
    lines, first = ["case $rank in"], 0
    for program in job.programs:
        ranks = "|".join(str(rank) for rank in range(first, first + program.ranks))
        first += program.ranks
        exports = "".join(f"export {name}={shlex.quote(value)}; " for name, value in program.env.items())
        lines.append(f"  {ranks}) {exports}set -- {shlex.join((*program.command, *program.args))} ;;")
    return "\n".join([*lines, "esac", ""]) if job.programs else ""


def exports(values: Mapping[str, str]) -> str:
    """Return the text of a shell script that exports the variables."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())


def limits(job: MPIJob) -> dict[str, str]:
    """Return the variables for deadline, signals and retries that the launcher's script reads."""
    deadline, before = job.deadline_seconds, min(job.signal.seconds_before, job.deadline_seconds or 0.0)
    return {
        "MPIJOB_DEADLINE": "" if deadline is None else f"{deadline:g}",
        "MPIJOB_WARN_AFTER": "" if deadline is None else f"{deadline - before:g}",
        "MPIJOB_WARN_FOR": f"{before:g}",
        "MPIJOB_SIGNAL": job.signal.name.removeprefix("SIG"),
        "MPIJOB_GRACE": f"{job.grace_seconds:g}",
        "MPIJOB_RETRIES": str(job.retry.limit),
        "MPIJOB_BACKOFF": f"{job.retry.backoff_seconds:g}",
        "MPIJOB_FACTOR": f"{job.retry.factor:g}",
        "MPIJOB_LONGEST": f"{job.retry.max_backoff_seconds:g}",
        "MPIJOB_KEEP": f"{job.keep_on_failure_seconds:.0f}",
    }


class Entry(NamedTuple):
    """A line of a journal. `host` is "" for the launcher's, `time` is in seconds since the epoch."""

    time: float
    host: str
    verb: str
    words: Mapping[str, str]
    text: str


def entries(text: str, host: str = "") -> list[Entry]:
    """Return the lines of one journal; incomplete and malformed lines are left out."""
    found: list[Entry] = []
    ahead = 0.0
    # The file is read while it is written: after the last line feed there may be a part of a line.
    for line in text.split("\n")[:-1]:
        stamp, _, rest = line.partition(" ")
        verb, _, words = rest.partition(" ")
        try:
            boot = float(stamp)
        except ValueError:
            continue
        pairs = {
            name: value
            for name, equals, value in (word.partition("=") for word in words.split(" "))
            if equals
        }
        # Lines have the monotonic clock, for a clock that is set must not change durations. The first line has its
        # offset from the wall clock, in hundredths of a second.
        if verb == "clock" and pairs.get("ahead", "").lstrip("-").isdigit():
            ahead = int(pairs["ahead"]) / 100
        found.append(Entry(boot + ahead, host, verb, pairs, words))
    return found


def samples(text: str, number: int) -> list[Sample]:
    """Return what the workers of one node used over time, from the node's usage file."""
    found: list[Sample] = []
    # The usual values of Linux, for a file whose first line is missing.
    page, tick, ahead = 4096, 100, 0.0
    last: dict[int, tuple[float, int]] = {}
    for line in text.splitlines():
        cells = line.split(" ")
        if line.startswith("page="):
            header = dict(cell.partition("=")[::2] for cell in cells)
            page, tick = int(header.get("page") or 4096), int(header.get("tick") or 100)
            ahead = int(header.get("ahead") or 0) / 100
        elif len(cells) == 4 and all(cell.replace(".", "", 1).isdigit() for cell in cells):
            at, worker, pages, ticks = float(cells[0]), int(cells[1]), int(cells[2]), int(cells[3])
            before, used = last.get(worker, (at, ticks))
            # Ticks go backwards when a process of the worker has ended.
            busy = (ticks - used) / tick / (at - before) if at > before and ticks >= used else 0.0
            last[worker] = (at, ticks)
            found.append(Sample(at + ahead, worker, round(busy, 3), pages * page, number))
    return found
