"""Estimated starts of waiting jobs, their basis, and their accuracy."""

from __future__ import annotations

import msgspec

from mpijob.model.ref import JobRef


class Forecast(msgspec.Struct, frozen=True, omit_defaults=True):
    """Position of a waiting job, from 1, and its estimated start, in seconds from now.

    `seconds` is None if only an upper bound is known (`span` then begins with 0), and `span` is None without any
    estimate; `basis` is the basis of the estimate, or the reason why there is none. `time` is when it was made, 0 for
    now.
    """

    position: int | None = None
    seconds: float | None = None
    span: tuple[float, float] | None = None
    basis: str = ""
    time: float = 0.0


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An estimate compared with reality: the job waited `waited_seconds` in `queue`."""

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
    """Accuracy of estimates, over `jobs`, of which `estimated` had an estimate.

    Errors are absolute, in seconds; `median_percent` is the error relative to the wait. `late` counts jobs that
    waited longer than the upper end of their range, `ranged` jobs that had a range.
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
