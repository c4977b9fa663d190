"""Reads the metrics of a training from its output: loss, accuracy and steps, progress, and remaining time.

Lines of `mpijob.report` are exact. Other lines are searched for common words (`loss=0.3`, `step 5/100`), or
with patterns whose named groups are the metrics. Pure; the client reads the lines.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from mpijob.errors import InvalidJob
from mpijob.model import LogLine
from mpijob.model.status.metric_line import WORD, Progress
from mpijob.observation.logs import filters

POINTS = 720
# Names come from programs, so their number is limited.
MOST_SERIES = 100
_LONGEST_NAME = 80
_WORDS = (
    "loss", "accuracy", "acc", "top1", "top5", "perplexity", "ppl", "error", "lr", "learning_rate", "grad_norm",
    "reward", "throughput", "images/sec", "img/sec", "samples/sec", "tokens/sec",
    "samples/s", "tokens/s", "it/s", "mfu",
)  # fmt: skip
_PAIR = re.compile(
    rb"(?i)(?<![\w/-])((?:[a-z]{1,12}[_ ./-])?(?:"
    + b"|".join(re.escape(word).encode() for word in _WORDS)
    + rb"))"
    rb"['\"]?\s{0,3}[=:]?\s{0,3}([-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf))(?![\w.])"
)
_PROGRESS = re.compile(
    rb"(?i)\b(global[_ ]?step|step|iter(?:ation)?|batch|epoch)s?\b['\"]?[\s=:#\[(]{0,4}(\d{1,12})"
    rb"(?:\s?(?:/|of)\s?(\d{1,12}))?"
)
# Matches every line that the default reader could use: engines send only those.
PREFILTER = "(?i)" + WORD + "|loss|acc|perplexity|reward|/sec|/s|step|epoch|iter"


class Point(msgspec.Struct, frozen=True):
    """Metrics of one log line: time, rank, and values by name."""

    time: float
    rank: int
    values: Mapping[str, float]


class Series(msgspec.Struct, frozen=True):
    """One metric over time, downsampled; `count` is the number of reported values."""

    name: str
    rank: int
    times: tuple[float, ...]
    steps: tuple[float | None, ...]
    values: tuple[float | None, ...]
    count: int
    last: float | None
    least: float | None
    most: float | None


class Curves(msgspec.Struct, frozen=True, kw_only=True):
    """All metrics of a job and its progress: `progress` from 0 to 1, `eta` in seconds until its end, if known.

    A value that is not a number (a loss of NaN) is None.
    """

    series: tuple[Series, ...] = ()
    step: float | None = None
    steps: float | None = None
    epoch: float | None = None
    epochs: float | None = None
    progress: float | None = None
    rate: float | None = None
    eta: float | None = None
    updated: float | None = None


def complete(found: Curves, reported: Progress) -> Curves:
    """Return curves completed with what an engine reports; the job's own lines take precedence, because they
    have times.
    """
    known = {series.name for series in found.series}
    updated = reported.updated or 0.0
    added = tuple(
        Series(name, 0, (updated,), (None,), (_finite(value),), 1, *(3 * (_finite(value),)))
        for name, value in sorted(reported.metrics.items())
        if name not in known
    )
    if found.progress is not None:
        return msgspec.structs.replace(found, series=(*found.series, *added))
    return msgspec.structs.replace(
        found, series=(*found.series, *added), progress=reported.progress, eta=reported.eta,
        updated=found.updated or reported.updated,
    )  # fmt: skip


Reader = Callable[[bytes], Mapping[str, float]]


def reader(patterns: Sequence[str] = ()) -> Reader:
    """Return a function that finds numbers in a line: its report, else the patterns' groups, else common words."""
    own = [_pattern_reader(pattern) for pattern in patterns]

    def read(text: bytes) -> Mapping[str, float]:
        if WORD.encode() in text:
            return _reported(text)
        for find in own:
            if found := find(text):
                return found
        return {} if own else _recognized(text)

    return read


def points(lines: Iterable[LogLine], read: Reader) -> list[Point]:
    result = []
    for line in lines:
        if values := read(line.text):
            result.append(Point(line.time / 1e9, line.rank or 0, values))
    return result


def curves(
    reported: Sequence[Point], *, most: int = POINTS, rank: int | None = None, now: float | None = None
) -> Curves:
    """Return the metrics over time: of one rank, or each of the lowest rank that reports it.

    `now` is given while the job runs: only then is the remaining time estimated.
    """
    reported = sorted(
        (point for point in reported if rank is None or point.rank == rank), key=lambda point: point.time
    )
    groups: dict[str, dict[int, list[tuple[float, float | None, float]]]] = {}
    for point in reported:
        step = _step(point.values)
        for name, value in point.values.items():
            if name not in _COUNTERS and (name in groups or len(groups) < MOST_SERIES):
                groups.setdefault(name, {}).setdefault(point.rank, []).append((point.time, step, value))
    series = tuple(
        _series(name, min(ranks), ranks[min(ranks)], most) for name, ranks in sorted(groups.items())
    )
    return _with_progress(series, reported, now)


def progress_text(lines: Iterable[bytes]) -> str:
    """Return the progress in a training's last lines: `epoch 45/100`; "" if they have none."""
    read, last = reader(), dict[str, float]()
    for line in lines:
        last |= {_COUNTERS[name]: value for name, value in read(line).items() if name in _COUNTERS}
    for word in ("epoch", "step"):
        if word in last:
            whole = last.get(f"{word}s")
            return f"{word} {last[word]:g}" + (f"/{whole:g}" if whole else "")
    return ""


_COUNTERS = {
    "step": "step", "global_step": "step", "iteration": "step", "iter": "step", "batch": "step", "steps": "steps",
    "epoch": "epoch", "epochs": "epochs",
}  # fmt: skip


def _step(values: Mapping[str, float]) -> float | None:
    steps = (values[name] for name, meaning in _COUNTERS.items() if meaning == "step" and name in values)
    return next(steps, values.get("epoch"))


def _series(name: str, rank: int, found: list[tuple[float, float | None, float]], most: int) -> Series:
    finite = [value for _, _, value in found if math.isfinite(value)]
    kept = found[:: max(1, math.ceil(len(found) / max(1, most)))]
    kept += [] if kept[-1] is found[-1] else [found[-1]]
    return Series(
        name,
        rank,
        tuple(time for time, _, _ in kept),
        tuple(step for _, step, _ in kept),
        tuple(_finite(value) for _, _, value in kept),
        len(found),
        _finite(found[-1][2]),
        min(finite, default=None),
        max(finite, default=None),
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _with_progress(series: tuple[Series, ...], reported: Sequence[Point], now: float | None) -> Curves:
    last: dict[str, float] = {}
    shares: list[tuple[float, float]] = []
    for point in reported:
        last |= {_COUNTERS[name]: value for name, value in point.values.items() if name in _COUNTERS}
        if (share := _share(last)) is not None:
            shares.append((point.time, share))
    progress = shares[-1][1] if shares else None
    rate = _rate(shares)
    since_last = 0.0 if now is None or not shares else max(0.0, now - shares[-1][0])
    eta = (
        None if now is None or progress is None or not rate else max(0.0, (1 - progress) / rate - since_last)
    )
    return Curves(
        series=series, step=last.get("step"), steps=last.get("steps"), epoch=last.get("epoch"),
        epochs=last.get("epochs"), progress=progress, rate=rate, eta=eta,
        updated=reported[-1].time if reported else None,
    )  # fmt: skip


def _share(last: Mapping[str, float]) -> float | None:
    # By epochs, else by steps: the steps may restart with each epoch.
    within = last["step"] / last["steps"] if last.get("steps") and "step" in last else None
    if last.get("epochs") and "epoch" in last:
        return min(1.0, last["epoch"] / last["epochs"])
    return None if within is None else min(1.0, within)


def _rate(shares: Sequence[tuple[float, float]]) -> float | None:
    # By the later half of the points, because trainings start slowly. In shares per second.
    if len(shares) < 2:
        return None
    (begin, done), (end, share) = shares[len(shares) // 2 if len(shares) > 3 else 0], shares[-1]
    return (share - done) / (end - begin) if end > begin and share > done else None


# -- one line ---------------------------------------------------------------------------------------
def _reported(text: bytes) -> dict[str, float]:
    _, _, rest = text.partition(WORD.encode())
    try:
        found: Any = json.loads(rest)
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name[:_LONGEST_NAME]: float(value) for name, value in found.items() if _is_number(value)}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _recognized(text: bytes) -> dict[str, float]:
    """Return the numbers after common words; {} for a line that only counts, such as `step 5`."""
    found = {_name(name): float(number) for name, number in _PAIR.findall(text)}
    progress: dict[str, float] = {}
    for word, number, total in _PROGRESS.findall(text):
        name = _COUNTERS.get(_name(word), "step")
        progress.setdefault(name, float(number))
        if total:
            progress.setdefault(f"{name}s", float(total))
    return {**progress, **found} if found or len(progress) > 1 else {}


def _name(word: bytes) -> str:
    return re.sub(r"[ ./-]+", "_", word.decode("ascii", "replace").lower())


def _pattern_reader(pattern: str) -> Callable[[bytes], dict[str, float]]:
    names = re.findall(r"\(\?P<(\w+)>", pattern)
    if not names:
        raise InvalidJob(
            f"{pattern!r} has no named group for a metric",
            hint="name its groups, for example step (?P<step>\\d+) loss (?P<loss>\\S+)",
        )
    find = filters.compile_groups(pattern)

    def read(text: bytes) -> dict[str, float]:
        groups = find(text)
        return (
            {} if groups is None else {n: v for n, raw in groups.items() if (v := _as_float(raw)) is not None}
        )

    return read


def _as_float(raw: bytes | None) -> float | None:
    try:
        return None if raw is None else float(raw)
    except ValueError:
        return None


def sparkline(values: Sequence[float | None], width: int = 40) -> str:
    """Return values as a small curve of characters."""
    kept = [value for value in values if value is not None]
    if not kept:
        return ""
    step = len(kept) / min(width, len(kept))
    chosen = [kept[min(len(kept) - 1, int(at * step))] for at in range(min(width, len(kept)))]
    low, span = min(chosen), max(chosen) - min(chosen)
    return "".join("▁▂▃▄▅▆▇█"[round((value - low) / span * 7) if span else 0] for value in chosen)
