"""Recording: what it costs a run that its lines are kept, and what keeping them afterwards costs.

The same job of 64 ranks runs twice in turn: its ranks speak into their pipes, which are recorded, or into
nowhere. Between two lines each rank does so much work that, with all cores busy, it says up to 100 lines a
second: the worst case, for nobody else's core is free to record. The time is
the ranks' own, from the moment when all are there to the end of the last one.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.line import Line, Unmeasured, at_most, compared
from bench.places import PROGRAMS, Options, Place, place
from bench.timing import interleaved, median
from mpijob import MPIJob, Resources
from mpijob.history.archive import Archive
from mpijob.history.log_writer import Capture
from mpijob.history.records import LogSource
from mpijob.model import JobKey, JobRef, JobState, Phase
from mpijob.observation.logs import cri

RANKS, WORKERS = 64, 4
LINES = 400
LINES_PER_SECOND = 100
STORED_LINES = 200_000
_number = itertools.count()


def measure(options: Options) -> Iterator[Line]:
    """Yield what recording adds to a run, and how fast lines are put into the record."""
    with place() as there:
        units = _units()
        _run(there, units, "silent")  # once, so that nothing is cold
        found = interleaved(
            options.rounds(9),
            {
                "silent": lambda: _run(there, units, "silent"),
                "recorded": lambda: _run(there, units, "recorded"),
            },
        )
        ours, reference = median(found["recorded"]), median(found["silent"])
        cores, rate = os.cpu_count() or 1, LINES / ours
        each = (ours - reference) * cores / (RANKS * LINES) * 1e6
        note = f"{rate:.0f} lines/s and rank on {cores} busy cores; a line costs {each:.0f} µs of one core"
        yield compared(
            "recording: 64 ranks that work and speak", "s", ours, reference, at_most(1.02), note=note
        )
        yield _deleting(there)
        yield _ingesting(there)


def _units() -> int:
    """Return how much work takes a rank as long as it has between two lines when all share the cores."""
    begun, units = time.process_time(), 2_000_000
    total = 0
    for unit in range(units):
        total += unit
    each = (time.process_time() - begun) / units
    share = (os.cpu_count() or 1) / RANKS
    return max(1, int(share / LINES_PER_SECOND / each))


def _run(there: Place, units: int, how: str) -> float:
    """Return how long the ranks took."""
    job = MPIJob(
        name=f"speaks-{next(_number)}",
        workers=WORKERS,
        slots=RANKS // WORKERS,
        resources=Resources(cpu="1", memory="1Gi"),
        command=(
            sys.executable,
            "-S",
            "-E",
            str(PROGRAMS / "speaks.py"),
            str(RANKS),
            str(LINES),
            str(units),
            how,
        ),
    )
    handle = there.client.run(job, 300)
    work = Path(there.client.settings.home) / "jobs" / handle.ref.uid / "work"
    times = [tuple(map(float, path.read_text().split())) for path in work.glob("time-*")]
    if len(times) != RANKS:
        raise Unmeasured(f"{len(times)} of {RANKS} ranks said how long they took")
    said = sum(1 for _ in handle.logs())
    if said != (RANKS * LINES if how == "recorded" else 0):
        raise Unmeasured(f"{said} lines were recorded of {RANKS * LINES}")
    there.idle()
    return max(end for _, end in times) - min(begin for begin, _ in times)


def _deleting(there: Place) -> Line:
    """Return what `delete` takes for a job with 25,600 lines, which then go into the record."""
    home = Path(there.client.settings.home)
    sizes = {state.ref: _size(home / "jobs" / state.ref.uid) for state in there.client.list().items}
    ref, raw = max(sizes.items(), key=lambda item: item[1])
    begun = time.perf_counter()
    there.client.delete(ref)
    seconds = time.perf_counter() - begun
    stored = _size(home / "history")
    note = f"{raw / 1e6:.1f} MB of logs became {stored / 1e6:.2f} MB"
    return Line("recording: delete keeps the record", "s", seconds, note=note)


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*.log"))


def _ingesting(there: Place) -> Line:
    """Return how fast one voice's lines are stored, as a recorder stores them."""
    archive = Archive(str(Path(there.home) / "ingest"))
    archive.put_job(JobState(ref=JobRef("bench", "ingest", "u"), phase=Phase.RUNNING), now=1.0)
    lines = [
        cri.format_line(number * 1000, "stdout", b"step %d: loss=0.1234" % number, False)
        for number in range(STORED_LINES)
    ]
    begun = time.perf_counter()
    capture = Capture(archive, LogSource(key=JobKey("bench", "u")))
    for line in lines:
        capture.write(line)
    capture.end()
    rate = STORED_LINES / (time.perf_counter() - begun)
    return Line(
        "recording: lines stored a second", "lines/s", rate, note="goal of the history issue: 200,000"
    )
