"""Estimates when waiting jobs will start, by simulating their queue with the durations of earlier jobs.

The simulation runs three times, with short, median and long durations, which gives a range; where only
deadlines are known it gives an upper bound, and where nothing is known no number. Each estimate names its
basis. Jobs that will be submitted later are not considered. `admission` decides whether a job may wait at
all; `backends` collects what engines know of their queues.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

import msgspec

from mpijob.model.status.forecast import Forecast

LOW, MIDDLE, HIGH = 0.1, 0.5, 0.9
FREE_NOW = "the resources that it needs are free now"
# This many jobs of a queue are simulated; estimates for those behind them would be too uncertain.
MOST = 300
# The tolerance for sums of floating-point amounts.
_TOLERANCE = 1e-9
# A job that starts within this time does not wait.
_SAME_SECONDS = 0.5
# The range is wider than the durations differed, by this share of the wait: a few runs show less than the true spread.
_FEW_RUNS, _FEW_SHARE, _SHARE = 5, 0.25, 0.1
# The time between the end of one job and the start of the next.
_LEAST_SECONDS = 2.0

Amounts = Mapping[str, float]


class JobTimes(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How long a job runs: the durations of its program's earlier runs, and its deadline."""

    durations: tuple[float, ...] = ()
    deadline_seconds: float | None = None


class Running(JobTimes, frozen=True, omit_defaults=True, kw_only=True):
    """A job that holds resources now."""

    elapsed_seconds: float
    holds: Amounts
    owner: str = ""


class Waiting(JobTimes, frozen=True, omit_defaults=True, kw_only=True):
    """A job in the queue; `delay_seconds` is its earliest start from now."""

    needs: Amounts
    priority: int = 0
    owner: str = ""
    delay_seconds: float = 0.0


class Queue(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A queue as it is now: free resources, running and waiting jobs, the oldest first.

    `strict`: no job overtakes the first one that does not fit. `fair`: at equal priority, owners who hold
    less CPU come first. `private` are resources that block only the jobs that need them, such as one
    namespace's quota. Resources that `free` does not name are unlimited. `usual` are durations of all jobs
    that ended in the queue, for jobs without earlier runs. `unseen` is the number of waiting jobs ahead of
    these that may not be read.
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
    """Return the place and start of each waiting job, in the order given; beyond the first `most` only the place."""
    found = _forecasts(queue, most)
    return tuple(forecast for _, forecast in sorted(found, key=itemgetter(0)))


def last_forecast(queue: Queue) -> Forecast:
    """Return the forecast of the last job only, which is cheaper than all."""
    last = len(queue.waiting) - 1
    return next(forecast for index, forecast in _forecasts(queue, MOST, last) if index == last)


def forecast_far_back(place: int, most: int = MOST) -> Forecast:
    """Return the forecast of a job that is too far back to be simulated."""
    return Forecast(place, basis=f"more than {_count(most, 'job')} before it")


def _forecasts(queue: Queue, most: int, only: int | None = None) -> Iterator[tuple[int, Forecast]]:
    # In the order in which the jobs would start; `only` limits them to one job.
    order = list(_in_order(queue, _lines(queue), _held(queue.running)))
    kept = sorted(order[:most])
    simulated = msgspec.structs.replace(queue, waiting=tuple(queue.waiting[index] for index in kept))
    starts = [dict(zip(kept, _simulate(simulated, share), strict=True)) for share in (LOW, MIDDLE, HIGH)]
    before = _JobsAhead()
    for job in queue.running:
        before.add(job, queue.usual)
    for place, index in enumerate(order, 1):
        if only is None or only == index:
            if place > most:
                yield index, forecast_far_back(place + queue.unseen, most)
            else:
                yield index, _forecast(queue, before, place, [start.get(index) for start in starts])
        before.add(queue.waiting[index], queue.usual)


class _JobsAhead:
    """Counts what is known of the jobs that run or come before one."""

    def __init__(self) -> None:
        self.jobs = self.runs = self.alike = self.deadlines = self.unknown = self.endless = 0

    def add(self, job: JobTimes, usual: Sequence[float]) -> None:
        self.jobs += 1
        self.runs += len(job.durations)
        self.alike += bool(job.durations)
        self.deadlines += job.deadline_seconds is not None
        if not job.durations and not usual:
            self.unknown += 1
            self.endless += job.deadline_seconds is None


def bounded(found: Forecast, latest: float, basis: str) -> Forecast:
    """Return a forecast that ends at `latest` seconds from now at the latest; `basis` names the source of the
    bound.
    """
    latest = max(0.0, latest)
    if found.seconds is None:
        high = latest if found.span is None else min(latest, found.span[1])
        combined = f"{found.basis}; {basis}" if found.basis else basis
        return msgspec.structs.replace(found, span=(0.0, high), basis=combined)
    if found.span is None or latest >= found.span[1]:
        return found
    seconds = min(found.seconds, latest)
    return msgspec.structs.replace(found, seconds=seconds, span=(min(found.span[0], seconds), latest))


def _widened(low: float, high: float, runs: int) -> tuple[float, float]:
    # A job that starts now is exact.
    if high < _SAME_SECONDS:
        return low, high
    share = _FEW_SHARE if runs < _FEW_RUNS else _SHARE
    return max(0.0, low - max(_LEAST_SECONDS, share * low)), high + max(_LEAST_SECONDS, share * high)


def _forecast(queue: Queue, before: _JobsAhead, place: int, starts: Sequence[float | None]) -> Forecast:
    low, middle, high = (None, None, None) if queue.unseen else starts
    if middle is not None:
        known = [start for start in (low, middle, high) if start is not None]
        runs = before.runs or len(queue.usual)
        span: tuple[float, float] | None = _widened(min(known), max(known), runs)
    else:
        span = None if high is None else (0.0, high)
    return Forecast(place + queue.unseen, middle, span, _basis(queue, before, middle, span))


# -- the simulation -------------------------------------------------------------------------------------
class _Simulation:
    """The state of the simulation at one time."""

    def __init__(self, queue: Queue, share: float) -> None:
        self.queue, self.share = queue, share
        self.now = 0.0
        self.free = dict(queue.free)
        self.ends: list[tuple[float, int, Amounts, str]] = []
        self.lines = _lines(queue)
        self.left = len(queue.waiting)
        self.delays = sorted(
            (job.delay_seconds for job in queue.waiting if job.delay_seconds > 0), reverse=True
        )
        self.used: dict[str, float] = {}
        usual = sorted(queue.usual)
        self.usual = usual
        for number, job in enumerate(queue.running):
            self._hold(job.owner, job.holds)
            if (rest := _remaining(job, usual, share)) is not None:
                heapq.heappush(self.ends, (rest, number, job.holds, job.owner))

    def _hold(self, owner: str, amounts: Amounts, sign: float = 1.0) -> None:
        self.used[owner] = self.used.get(owner, 0.0) + sign * amounts.get("cpu", 0.0)

    def next_index(self) -> int | None:
        for index in _in_order(self.queue, self.lines, self.used):
            job = self.queue.waiting[index]
            if job.delay_seconds > self.now + _TOLERANCE:
                continue
            lacking = [name for name, amount in job.needs.items() if self._short(name, amount)]
            if not lacking:
                return index
            # A job that lacks only a private resource does not block the others.
            if self.queue.strict and not self.queue.private.issuperset(lacking):
                return None
        return None

    def _short(self, name: str, amount: float) -> bool:
        return name in self.free and amount > self.free[name] + _TOLERANCE * max(1.0, amount)

    def start(self, index: int) -> None:
        job = self.queue.waiting[index]
        self.left -= 1
        self.lines[_line(self.queue, job)].remove(index)
        self._take(job.needs, -1.0)
        self._hold(job.owner, job.needs)
        if (lasts := _lasts(job, self.usual, self.share)) is not None:
            entry = (self.now + lasts, len(self.queue.running) + index, job.needs, job.owner)
            heapq.heappush(self.ends, entry)

    def advance(self) -> bool:
        """Advance to the next end or earliest start; return False if there is none."""
        while self.delays and self.delays[-1] <= self.now + _TOLERANCE:
            self.delays.pop()
        times = [*(end[0] for end in self.ends[:1]), *self.delays[-1:]]
        if not times:
            return False
        self.now = max(self.now, min(times))
        while self.ends and self.ends[0][0] <= self.now + _TOLERANCE:
            _, _, released, owner = heapq.heappop(self.ends)
            self._take(released, 1.0)
            self._hold(owner, released, -1.0)
        return True

    def _take(self, amounts: Amounts, sign: float) -> None:
        for name, amount in amounts.items():
            if name in self.free:
                self.free[name] += sign * amount


def _simulate(queue: Queue, share: float) -> list[float | None]:
    # The share is that of the quantile: every job takes as long as this share of the earlier ones at most.
    state = _Simulation(queue, share)
    starts: list[float | None] = [None] * len(queue.waiting)
    while state.left:
        index = state.next_index()
        if index is not None:
            starts[index] = state.now
            state.start(index)
        elif not state.advance():
            break
    return starts


def _line(queue: Queue, job: Waiting) -> str:
    # Jobs in one line keep their order: under fair share that holds only among one owner's jobs.
    return job.owner if queue.fair else ""


def _lines(queue: Queue) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for index in sorted(range(len(queue.waiting)), key=lambda index: (-queue.waiting[index].priority, index)):
        found.setdefault(_line(queue, queue.waiting[index]), []).append(index)
    return found


def _in_order(queue: Queue, lines: Mapping[str, list[int]], used: Mapping[str, float]) -> Iterable[int]:
    if len(lines) == 1:
        # A merge of one line would only cost time.
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
    for job in running:
        found[job.owner] = found.get(job.owner, 0.0) + job.holds.get("cpu", 0.0)
    return found


def _remaining(job: Running, usual: Sequence[float], share: float) -> float | None:
    # Estimated from the earlier runs that lasted at least as long as this one has.
    durations = sorted(job.durations) or usual
    longer = [duration - job.elapsed_seconds for duration in durations if duration > job.elapsed_seconds]
    left = None if job.deadline_seconds is None else max(0.0, job.deadline_seconds - job.elapsed_seconds)
    # A job that has run longer than any before: about as long again.
    if durations:
        rest = quantile(longer, share) if longer else job.elapsed_seconds * 2 * share
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
def _basis(queue: Queue, before: _JobsAhead, middle: float | None, span: tuple[float, float] | None) -> str:
    # A phrase for a message, without its full stop.
    if queue.unseen:
        return f"{_count(queue.unseen, 'job')} ahead of it cannot be seen, so the start time is unknown"
    if middle is not None and middle < _SAME_SECONDS and span is not None and span[1] < _SAME_SECONDS:
        return FREE_NOW
    if not before.jobs:
        return "no running job would free enough resources for it"
    jobs_ahead = _jobs_ahead_text(len(queue.running), before.jobs - len(queue.running))
    if middle is not None:
        return f"{jobs_ahead}, {_sources(before, queue.usual)}"
    if span is not None:
        return f"{jobs_ahead}; at most, by deadlines: {_count(before.unknown, 'program')} among them has not run before"
    if before.endless:
        which = "" if before.endless == before.jobs else f"{before.endless} of them "
        return f"{jobs_ahead}, {which}with no deadline and no earlier run"
    return f"{jobs_ahead}; what they hold is not enough for it"


def _jobs_ahead_text(running: int, ahead: int) -> str:
    parts = [f"{_count(running, 'job')} running"] if running else []
    parts += [f"{_count(ahead, 'job')} ahead of it"] if ahead else []
    return " and ".join(parts)


def _sources(before: _JobsAhead, usual: Sequence[float]) -> str:
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
