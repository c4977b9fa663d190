"""When a job that waits will start: what was estimated, on what basis, and what came of it."""

from __future__ import annotations

import msgspec

from mpijob.model.ref import JobRef


class Forecast(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job's place among those that wait, from 1, and when it will start, in seconds from now.

    `seconds` is None where only a bound is known (`span` then begins with 0), and `span` is None where nothing is;
    `basis` says what the estimate rests on, or what it lacks. `time` is when it was made, 0 for now.
    """

    position: int | None = None
    seconds: float | None = None
    span: tuple[float, float] | None = None
    basis: str = ""
    time: float = 0.0


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What was estimated for one job and what came: it waited `waited_seconds`; `queue` is where."""

    ref: JobRef
    queue: str
    forecast: Forecast
    waited_seconds: float

    @property
    def error_seconds(self) -> float | None:
        """By how much longer the job waited than was estimated; less than 0 where it was shorter."""
        return None if self.forecast.seconds is None else self.waited_seconds - self.forecast.seconds

    @property
    def within(self) -> bool | None:
        """Whether the wait was in the range that was told; None where none was."""
        span = self.forecast.span
        return None if span is None else span[0] <= self.waited_seconds <= span[1]


class Accuracy(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How good estimates were, over `jobs` of which `estimated` had one.

    Errors are absolute, in seconds; `median_percent` is the error's share of the wait. `late` counts those that waited
    longer than the upper end of their range, `ranged` those that had a range.
    """

    jobs: int = 0
    estimated: int = 0
    ranged: int = 0
    within: int = 0
    late: int = 0
    median_seconds: float | None = None
    ninetieth_seconds: float | None = None
    median_percent: float | None = None
    bias_seconds: float | None = None


class AccuracyReport(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Accuracy of estimates: as given at submission (`told`), and as the current method would estimate
    them.

    `backtest` replays recorded jobs in order, each with only what was known at its time.
    """

    told: Accuracy
    backtest: Accuracy
    since: float = 0.0
    outcomes: tuple[Outcome, ...] = ()
    notes: tuple[str, ...] = ()
