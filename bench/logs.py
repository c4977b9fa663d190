"""Logs: a hundred stored streams merged, against `sort -m`; a line's way from a hundred live ranks to the screen."""

from __future__ import annotations

import os
import random
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.line import Line, Unmeasured, at_most, compared
from bench.places import PROGRAMS, Options, Place, place, small_job
from bench.timing import Environ, command, median
from mpijob import Phase, Resources
from mpijob.backends.local.storage.paths import Home
from mpijob.observation.logs import cri

STREAMS = 100
LINES = 100_000
LIMIT_MB = 100
FIRST_LINE_MS = 200
LIVE_MS = 500
TEXT = b"step %d of rank %d: loss 0.%06d throughput 1234.5 samples/s, learning rate 0.0003"


def measure(options: Options) -> Iterator[Line]:
    """Yield the lines of the merge, then of the live view."""
    with place() as there:
        files = fill(there, LINES // 10 if options.quick else LINES)
        yield from _merge(there, files, options.rounds(5))
    with place() as there:
        yield _live(there, 8 if options.quick else 20)


def fill(there: Place, lines: int) -> list[Path]:
    """Run a job and put long logs of a hundred ranks into its place."""
    handle = there.client.run(small_job("big", 1, "true"), timeout=60)
    there.idle()
    directory = Home(there.client.settings.home).logs(handle.ref.uid, 1)
    for old in directory.iterdir():
        old.unlink()
    chance = random.Random(1)
    return [_file(directory / f"rank-{rank}.log", rank, lines, chance) for rank in range(STREAMS)]


def _file(path: Path, rank: int, lines: int, chance: random.Random) -> Path:
    moment = 1_790_000_000 * cri.SECOND_NS + chance.randrange(1_000_000)
    with path.open("wb") as file:
        for number in range(lines):
            moment += chance.randrange(20_000_000)
            text = TEXT % (number, rank, chance.randrange(1_000_000))
            file.write(cri.format_line(moment, "stdout", text, False))
    return path


def _merge(there: Place, files: Sequence[Path], rounds: int) -> Iterator[Line]:
    ours = ("mpijob", "logs", "big", "--merged", "--download", str(there.home / "ours"))
    theirs = ("sort", "-m", "-o", str(there.home / "theirs"), *map(str, files))
    plain = {**there.environ, "LC_ALL": "C"}
    found = [(command(ours, there.environ), command(theirs, plain)) for _ in range(rounds)]
    _same(there.home / "ours", there.home / "theirs")
    seconds = [median([pair[side].wall for pair in found]) for side in (0, 1)]
    processes = min(len(os.sched_getaffinity(0)), 8)
    cpu = [median([pair[side].cpu for pair in found]) for side in (0, 1)]
    lines = sum(1 for _ in files[0].open("rb"))
    note = f"{processes} processes; CPU {cpu[0]:.1f} and {cpu[1]:.1f} s"
    yield compared(
        f"logs: merge {STREAMS} × {lines} lines against sort -m", "s", seconds[0], seconds[1],
        at_most(1.3), at_most(2.5), note,
    )  # fmt: skip
    peak = processes * max(pair[0].peak_bytes for pair in found) / 1e6
    yield compared("logs: memory of that merge", "MB", peak, LIMIT_MB, at_most(1), note="all its processes")
    for written in (there.home / "ours", there.home / "theirs"):
        written.unlink()
    os.sync()  # gigabytes were written a moment ago: what the disk still does with them is not the reader's
    for name, argv in (("merged download", (*ours[:-1], "-")), ("view", ours[:3])):
        first = median([_first_line(argv, there.environ) for _ in range(5)]) * 1e3
        yield compared(f"logs: first line of a {name}", "ms", first, FIRST_LINE_MS, at_most(1))


def _same(ours: Path, theirs: Path) -> None:
    """Make sure that both have merged the same lines into the same order of time."""
    with ours.open("rb") as mine, theirs.open("rb") as other:
        if any(a[:30] != b[:30] for a, b in zip(mine, other, strict=True)):
            raise Unmeasured("the merged lines are not in the order of sort -m")


def _first_line(argv: Sequence[str], environ: Environ) -> float:
    start = time.perf_counter()
    child = subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdout is not None
    said = child.stdout.readline()
    seconds = time.perf_counter() - start
    child.kill()
    child.communicate()
    if not said:
        raise Unmeasured(f"{' '.join(argv)} said nothing")
    return seconds


def _live(there: Place, seconds: int) -> Line:
    program = ("python", "-S", "-E", str(PROGRAMS / "talk.py"), str(seconds))
    resources = Resources(cpu="1", memory="1Gi")
    job = small_job("live", 4, *program, slots=STREAMS // 4, resources=resources)
    handle = there.client.submit(job)
    handle.wait(120, {Phase.RUNNING})
    argv = ("mpijob", "logs", "-f", "live", "--role", "rank", "--no-prefix")
    child = subprocess.Popen(argv, env=there.environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdout is not None
    late = []
    begun = time.time_ns()
    for raw in child.stdout:
        now = time.time_ns()
        said = int(re.sub(rb"\D", b"", raw) or b"0")
        if said > begun + 1_000_000_000:  # what was said before is no live line
            late.append((now - said) / 1e6)
    child.wait()
    there.idle()
    if len(late) < STREAMS:
        raise Unmeasured(f"only {len(late)} live lines were seen")
    p99 = sorted(late)[int(len(late) * 0.99)]
    note = f"median {median(late):.0f} ms of {len(late)} lines"
    return compared(
        f"logs: line written → shown, {STREAMS} ranks, p99", "ms", p99, LIVE_MS, at_most(1), note=note
    )
