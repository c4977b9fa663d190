"""When jobs that wait will probably start: their queue is played out, by how long earlier jobs ran.

It is played three times, with jobs as short, as usual and as long as they were before, which gives a range; where
only deadlines are known it gives a bound, and where nothing is known no number at all. Each answer says what it
rests on. What jobs will be submitted later, and what they would change, is not guessed. Whether a job may wait at
all is decided by `admission`; what engines know of their queues is collected by `backends`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from mpijob.model.status.forecast import Forecast

LOW, MIDDLE, HIGH = 0.1, 0.5, 0.9
FREE_NOW = "the resources that it needs are free now"
MOST = 300  # so many of a queue are played out; for those behind them nobody could tell
_LITTLE = 1e-9
_SAME_SECONDS = 0.5  # a job that starts within it does not wait
_FEW_RUNS, _FEW_SHARE, _SHARE = (
    5,
    0.25,
    0.1,
)  # of the wait, by which a range is wider than the runs were different
_LEAST_SECONDS = 2.0  # between the end of one job and the start of the next

Amounts = Mapping[str, float]


class Timed(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What is known of how long a job runs: how long its program ran before, and when it is ended in any case."""

    durations: tuple[float, ...] = ()
    deadline_seconds: float | None = None


class Running(Timed, frozen=True, omit_defaults=True, kw_only=True):
    """A job that holds resources now."""

    elapsed_seconds: float
    holds: Amounts
    owner: str = ""


class Waiting(Timed, frozen=True, omit_defaults=True, kw_only=True):
    """A job in the queue; `delay_seconds` is when it may start at the earliest."""

    needs: Amounts
    priority: int = 0
    owner: str = ""
    delay_seconds: float = 0.0


class Queue(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A queue as it stands: what is free in it, who runs, who waits, the oldest first.

    `strict`: nobody overtakes the first that does not fit. `fair`: among equals the owner comes first who holds the
    least CPU. `private` names amounts that hold up only those who need them, such as one namespace's quota. A resource
    that `free` does not name is not counted. `usual` are durations of whatever ended in the queue, for jobs of
    which nothing else is known. `unseen` is how many wait before these that cannot be seen.
    """

    free: Amounts
    running: tuple[Running, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    usual: tuple[float, ...] = ()
    strict: bool = True
    fair: bool = False
    private: frozenset[str] = frozenset()
    unseen: int = 0


def forecasts(queue: Queue, most: int = MOST) -> tuple[Forecast, ...]:
    """Return for each job that waits, in the order given, its place and when it will start.

    Only the first `most` are played out: for those behind them there is no more than their place.
    """
    found = _forecasts(queue, most)
    return tuple(one for _, one in sorted(found, key=lambda each: each[0]))


def last_forecast(queue: Queue) -> Forecast:
    """Return the forecast of the last job alone: most of the others' is not worked out."""
    last = len(queue.waiting) - 1
    return next(one for index, one in _forecasts(queue, MOST, last) if index == last)


def far_back(place: int, most: int = MOST) -> Forecast:
    """Return the forecast of a job with so many before it that its start is not worked out."""
    return Forecast(place, basis=f"more than {_count(most, 'job')} before it")


def _forecasts(queue: Queue, most: int, only: int | None = None) -> Iterator[tuple[int, Forecast]]:
    """Yield the forecasts in the order in which the jobs would start, or of one of them only."""
    order = list(_in_order(queue, _lines(queue), _held(queue.running)))
    kept = sorted(order[:most])
    played = msgspec.structs.replace(queue, waiting=tuple(queue.waiting[index] for index in kept))
    starts = [dict(zip(kept, _play(played, share), strict=True)) for share in (LOW, MIDDLE, HIGH)]
    before = _Before()
    for one in queue.running:
        before.add(one, queue.usual)
    for place, index in enumerate(order, 1):
        if only is None or only == index:
            if place > most:
                yield index, far_back(place + queue.unseen, most)
            else:
                yield index, _forecast(queue, before, place, [one.get(index) for one in starts])
        before.add(queue.waiting[index], queue.usual)


class _Before:
    """What is known of the jobs that run or come before one, counted."""

    def __init__(self) -> None:
        self.jobs = self.runs = self.alike = self.deadlines = self.unknown = self.endless = 0

    def add(self, one: Timed, usual: Sequence[float]) -> None:
        """Count one more."""
        self.jobs += 1
        self.runs += len(one.durations)
        self.alike += bool(one.durations)
        self.deadlines += one.deadline_seconds is not None
        if not one.durations and not usual:
            self.unknown += 1
            self.endless += one.deadline_seconds is None


def bounded(found: Forecast, latest: float, basis: str) -> Forecast:
    """Return a forecast that goes no further than this many seconds from now; `basis` says who expects that."""
    latest = max(0.0, latest)
    if found.seconds is None:
        high = latest if found.span is None else min(latest, found.span[1])
        told = f"{found.basis}; {basis}" if found.basis else basis
        return msgspec.structs.replace(found, span=(0.0, high), basis=told)
    if found.span is None or latest >= found.span[1]:
        return found
    seconds = min(found.seconds, latest)
    return msgspec.structs.replace(found, seconds=seconds, span=(min(found.span[0], seconds), latest))


def _widened(low: float, high: float, runs: int) -> tuple[float, float]:
    """Return a range that is no narrower than what a few earlier runs can tell; a job that starts now does so."""
    if high < _SAME_SECONDS:
        return low, high
    share = _FEW_SHARE if runs < _FEW_RUNS else _SHARE
    return max(0.0, low - max(_LEAST_SECONDS, share * low)), high + max(_LEAST_SECONDS, share * high)


def _forecast(queue: Queue, before: _Before, place: int, starts: Sequence[float | None]) -> Forecast:
    low, middle, high = (None, None, None) if queue.unseen else starts
    if middle is not None:
        known = [start for start in (low, middle, high) if start is not None]
        runs = before.runs or len(queue.usual)
        span: tuple[float, float] | None = _widened(min(known), max(known), runs)
    else:
        span = None if high is None else (0.0, high)
    return Forecast(place + queue.unseen, middle, span, _basis(queue, before, middle, span))


# -- the play -------------------------------------------------------------------------------------
class _State:
    """A moment of the play."""

    def __init__(self, queue: Queue, share: float) -> None:
        self.queue, self.share = queue, share
        self.now = 0.0
        self.free = dict(queue.free)
        self.ends: list[tuple[float, int, Amounts, str]] = []
        self.lines = _lines(queue)
        self.left = len(queue.waiting)
        self.delays = sorted(
            (one.delay_seconds for one in queue.waiting if one.delay_seconds > 0), reverse=True
        )
        self.used: dict[str, float] = {}
        usual = sorted(queue.usual)
        self.usual = usual
        for at, one in enumerate(queue.running):
            self._hold(one.owner, one.holds)
            if (rest := _remaining(one, usual, share)) is not None:
                heapq.heappush(self.ends, (rest, at, one.holds, one.owner))

    def _hold(self, owner: str, amounts: Amounts, sign: float = 1.0) -> None:
        self.used[owner] = self.used.get(owner, 0.0) + sign * amounts.get("cpu", 0.0)

    def next(self) -> int | None:
        """Return who starts now."""
        for index in _in_order(self.queue, self.lines, self.used):
            job = self.queue.waiting[index]
            if job.delay_seconds > self.now + _LITTLE:
                continue
            lacking = [name for name, amount in job.needs.items() if self._short(name, amount)]
            if not lacking:
                return index
            if self.queue.strict and not self.queue.private.issuperset(lacking):
                return None
        return None

    def _short(self, name: str, amount: float) -> bool:
        return name in self.free and amount > self.free[name] + _LITTLE * max(1.0, amount)

    def start(self, index: int) -> None:
        """Let one start, and end when it probably will."""
        job = self.queue.waiting[index]
        self.left -= 1
        self.lines[_line(self.queue, job)].remove(index)
        self._take(job.needs, -1.0)
        self._hold(job.owner, job.needs)
        if (lasts := _lasts(job, self.usual, self.share)) is not None:
            entry = (self.now + lasts, len(self.queue.running) + index, job.needs, job.owner)
            heapq.heappush(self.ends, entry)

    def advance(self) -> bool:
        """Go on to the next end, or to when the next job may start; return whether there is one."""
        while self.delays and self.delays[-1] <= self.now + _LITTLE:
            self.delays.pop()
        times = [*(end[0] for end in self.ends[:1]), *self.delays[-1:]]
        if not times:
            return False
        self.now = max(self.now, min(times))
        while self.ends and self.ends[0][0] <= self.now + _LITTLE:
            _, _, released, owner = heapq.heappop(self.ends)
            self._take(released, 1.0)
            self._hold(owner, released, -1.0)
        return True

    def _take(self, amounts: Amounts, sign: float) -> None:
        for name, amount in amounts.items():
            if name in self.free:
                self.free[name] += sign * amount


def _play(queue: Queue, share: float) -> list[float | None]:
    """Return when each job starts if every job takes as long as this share of the earlier ones."""
    state = _State(queue, share)
    starts: list[float | None] = [None] * len(queue.waiting)
    while state.left:
        index = state.next()
        if index is not None:
            starts[index] = state.now
            state.start(index)
        elif not state.advance():
            break
    return starts


def _line(queue: Queue, job: Waiting) -> str:
    """Return whose jobs keep their order among each other whatever happens."""
    return job.owner if queue.fair else ""


def _lines(queue: Queue) -> dict[str, list[int]]:
    """Return who waits, by line, the first first."""
    found: dict[str, list[int]] = {}
    for index in sorted(range(len(queue.waiting)), key=lambda index: (-queue.waiting[index].priority, index)):
        found.setdefault(_line(queue, queue.waiting[index]), []).append(index)
    return found


def _in_order(queue: Queue, lines: Mapping[str, list[int]], used: Mapping[str, float]) -> Iterable[int]:
    """Yield who waits, the next first; an owner who holds less comes before those of equal priority."""
    if len(lines) == 1:
        return (index for line in lines.values() for index in line)
    return heapq.merge(
        *lines.values(),
        key=lambda index: (
            -queue.waiting[index].priority,
            used.get(queue.waiting[index].owner, 0.0),
            index,
        ),
    )


def _held(running: Sequence[Running]) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in running:
        found[one.owner] = found.get(one.owner, 0.0) + one.holds.get("cpu", 0.0)
    return found


def _remaining(one: Running, usual: Sequence[float], share: float) -> float | None:
    """Return how long a running job will still run, judged by those that ran at least as long."""
    durations = sorted(one.durations) or usual
    longer = [duration - one.elapsed_seconds for duration in durations if duration > one.elapsed_seconds]
    left = None if one.deadline_seconds is None else max(0.0, one.deadline_seconds - one.elapsed_seconds)
    if durations:  # one that is longer than any before: about as long again
        rest = quantile(longer, share) if longer else one.elapsed_seconds * 2 * share
        return rest if left is None else min(rest, left)
    return left if share == HIGH else None


def _lasts(job: Waiting, usual: Sequence[float], share: float) -> float | None:
    durations = sorted(job.durations) or usual
    if not durations:
        return job.deadline_seconds if share == HIGH else None
    rest = quantile(durations, share)
    return rest if job.deadline_seconds is None else min(rest, job.deadline_seconds)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which this share of an ordered, non-empty sample lies."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


# -- the basis ------------------------------------------------------------------------------------
def _basis(queue: Queue, before: _Before, middle: float | None, span: tuple[float, float] | None) -> str:
    """Return what an estimate rests on, or what it lacks, as a sentence without its full stop."""
    if queue.unseen:
        return f"{_count(queue.unseen, 'job')} ahead of it cannot be seen, so the start time is unknown"
    if middle is not None and middle < _SAME_SECONDS and span is not None and span[1] < _SAME_SECONDS:
        return FREE_NOW
    if not before.jobs:
        return "no running job would free enough resources for it"
    who = _before(len(queue.running), before.jobs - len(queue.running))
    if middle is not None:
        return f"{who}, {_how(before, queue.usual)}"
    if span is not None:
        return (
            f"{who}; at most, by deadlines: {_count(before.unknown, 'program')} among them has not run before"
        )
    if before.endless:
        some = "" if before.endless == before.jobs else f"{before.endless} of them "
        return f"{who}, {some}with no deadline and no earlier run"
    return f"{who}; what they hold is not enough for it"


def _before(running: int, ahead: int) -> str:
    parts = [f"{_count(running, 'job')} running"] if running else []
    parts += [f"{_count(ahead, 'job')} ahead of it"] if ahead else []
    return " and ".join(parts)


def _how(before: _Before, usual: Sequence[float]) -> str:
    parts = [f"{_count(before.runs, 'earlier run')} of the same programs"] if before.alike else []
    if before.alike < before.jobs and usual:
        parts.append(f"{_count(len(usual), 'job')} of any program that ended here")
    if before.deadlines:
        parts.append(_count(before.deadlines, "deadline"))
    return f"estimated from {_and(parts)}" if parts else "none of which holds what it needs"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
