"""The curves of a training: what its lines tell about loss, accuracy and steps, how far it is, when it will end.

Lines of `mpijob.report` are exact. Others are searched for the words that trainings use (`loss=0.3`, `step 5/100`),
or by patterns whose named groups are the metrics. Pure; reading the lines is the client's business.
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
MOST_SERIES = 100  # names come from programs: there is a bound
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
_FAR = re.compile(
    rb"(?i)\b(global[_ ]?step|step|iter(?:ation)?|batch|epoch)s?\b['\"]?[\s=:#\[(]{0,4}(\d{1,12})"
    rb"(?:\s?(?:/|of)\s?(\d{1,12}))?"
)
LOOKED_FOR = "(?i)" + WORD + "|loss|acc|perplexity|reward|/sec|/s|step|epoch|iter"


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


def completed(found: Curves, told: Progress) -> Curves:
    """Return curves with what an engine knows beyond them: lines come first, for they tell when."""
    known = {one.name for one in found.series}
    at = told.updated or 0.0
    more = tuple(
        Series(name, 0, (at,), (None,), (_finite(value),), 1, *(3 * (_finite(value),)))
        for name, value in sorted(told.metrics.items())
        if name not in known
    )
    if found.progress is not None:
        return msgspec.structs.replace(found, series=(*found.series, *more))
    return msgspec.structs.replace(
        found, series=(*found.series, *more), progress=told.progress, eta=told.eta,
        updated=found.updated or told.updated,
    )  # fmt: skip


Reader = Callable[[bytes], Mapping[str, float]]


def reader(patterns: Sequence[str] = ()) -> Reader:
    """Return what finds numbers in a line: its own report, else the patterns' groups, else the usual words."""
    own = [_grouped(pattern) for pattern in patterns]

    def read(text: bytes) -> Mapping[str, float]:
        if WORD.encode() in text:
            return _reported(text)
        for find in own:
            if found := find(text):
                return found
        return {} if own else _guessed(text)

    return read


def points(lines: Iterable[LogLine], read: Reader) -> list[Point]:
    """Return what the lines tell."""
    found = []
    for line in lines:
        if values := read(line.text):
            found.append(Point(line.time / 1e9, line.rank or 0, values))
    return found


def curves(
    told: Sequence[Point], *, most: int = POINTS, rank: int | None = None, now: float | None = None
) -> Curves:
    """Return the metrics over time: of one rank, or each of the lowest rank that tells it.

    `now` is given while the job runs: only then is there an end to wait for.
    """
    told = sorted((one for one in told if rank is None or one.rank == rank), key=lambda one: one.time)
    groups: dict[str, dict[int, list[tuple[float, float | None, float]]]] = {}
    for one in told:
        step = _step(one.values)
        for name, value in one.values.items():
            if name not in _PLACES and (name in groups or len(groups) < MOST_SERIES):
                groups.setdefault(name, {}).setdefault(one.rank, []).append((one.time, step, value))
    series = tuple(
        _series(name, min(ranks), ranks[min(ranks)], most) for name, ranks in sorted(groups.items())
    )
    return _with_progress(series, told, now)


def reached(lines: Iterable[bytes]) -> str:
    """Return how far a training had come by its last lines, as people say it: `epoch 45/100`; "" where none tells."""
    read, last = reader(), dict[str, float]()
    for line in lines:
        last |= {_PLACES[name]: value for name, value in read(line).items() if name in _PLACES}
    for word in ("epoch", "step"):
        if word in last:
            whole = last.get(f"{word}s")
            return f"{word} {last[word]:g}" + (f"/{whole:g}" if whole else "")
    return ""


_PLACES = {
    "step": "step", "global_step": "step", "iteration": "step", "iter": "step", "batch": "step", "steps": "steps",
    "epoch": "epoch", "epochs": "epochs",
}  # fmt: skip


def _step(values: Mapping[str, float]) -> float | None:
    return next(
        (values[name] for name in _PLACES if _PLACES[name] == "step" and name in values), values.get("epoch")
    )


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


def _with_progress(series: tuple[Series, ...], told: Sequence[Point], now: float | None) -> Curves:
    last: dict[str, float] = {}
    way: list[tuple[float, float]] = []  # when, and which share was done
    for one in told:
        last |= {_PLACES[name]: value for name, value in one.values.items() if name in _PLACES}
        if (share := _share(last)) is not None:
            way.append((one.time, share))
    progress = way[-1][1] if way else None
    pace = _pace(way)
    behind = 0.0 if now is None or not way else max(0.0, now - way[-1][0])
    eta = None if now is None or progress is None or not pace else max(0.0, (1 - progress) / pace - behind)
    return Curves(
        series=series, step=last.get("step"), steps=last.get("steps"), epoch=last.get("epoch"),
        epochs=last.get("epochs"), progress=progress, rate=pace, eta=eta, updated=told[-1].time if told else None,
    )  # fmt: skip


def _share(last: Mapping[str, float]) -> float | None:
    """Return how much is done: by epochs, with the steps of the present one where they begin anew, else by steps."""
    within = last["step"] / last["steps"] if last.get("steps") and "step" in last else None
    if last.get("epochs") and "epoch" in last:
        return min(1.0, last["epoch"] / last["epochs"])
    return None if within is None else min(1.0, within)


def _pace(way: Sequence[tuple[float, float]]) -> float | None:
    """Return the share done each second, by the younger half of what was told: trainings start slowly."""
    if len(way) < 2:
        return None
    (begin, done), (end, share) = way[len(way) // 2 if len(way) > 3 else 0], way[-1]
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


def _guessed(text: bytes) -> dict[str, float]:
    """Return the numbers behind the usual words; a line that tells none of them tells nothing."""
    found = {_name(name): float(number) for name, number in _PAIR.findall(text)}
    far: dict[str, float] = {}
    for word, number, total in _FAR.findall(text):
        place = _PLACES.get(_name(word), "step")
        far.setdefault(place, float(number))
        if total:
            far.setdefault(f"{place}s", float(total))
    return {**far, **found} if found or len(far) > 1 else {}


def _name(word: bytes) -> str:
    return re.sub(r"[ ./-]+", "_", word.decode("ascii", "replace").lower())


def _grouped(pattern: str) -> Callable[[bytes], dict[str, float]]:
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
