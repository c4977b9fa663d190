"""Estimate run time and cost of a job from earlier runs of the same program, with a range and its basis.

Changes of a job's resources are recommended in `right_sizing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from mpijob.accounting import costs
from mpijob.model import Amounts, Phase
from mpijob.model.status.accounts import GIB, HOUR, Account
from mpijob.settings import RateSetting

# With fewer runs, the range is twice as wide as measured.
_MIN_RUNS = 3


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """The expected run time in seconds and cost, each with a range; `runs` it is based on, `basis` as text."""

    seconds: float
    low_seconds: float
    high_seconds: float
    cost: float
    low_cost: float
    high_cost: float
    core_hours: float
    gpu_hours: float
    currency: str
    runs: int
    basis: str


def estimate(
    accounts: Iterable[Account], *, ranks: int, needs: Amounts, rate: RateSetting
) -> Estimate | None:
    """Return the estimate for a job with these needs; None if no run of its program has succeeded."""
    succeeded = [
        account for account in accounts if account.phase is Phase.SUCCEEDED and account.held_seconds > 0
    ]
    same = [account for account in succeeded if account.ranks == ranks]
    if same:
        low, middle, high = _range([account.held_seconds for account in same])
        basis = f"{_runs(len(same))} of this program with {ranks} ranks"
        return _with_costs((low, middle, high), len(same), basis, needs, rate)
    if not succeeded:
        return None
    # No run had this number of ranks: assume linear scaling, but not below the typical time of any run.
    work = [account.held_seconds * max(account.ranks, 1) for account in succeeded]
    low, middle, high = (value / max(ranks, 1) for value in _range(work))
    slowest = max(high, median(account.held_seconds for account in succeeded))
    sizes = " and ".join(str(size) for size in sorted({account.ranks for account in succeeded}))
    basis = f"{_runs(len(succeeded))} of this program with {sizes} ranks, assuming linear scaling"
    return _with_costs((low, middle, slowest), len(succeeded), basis, needs, rate)


def _runs(count: int) -> str:
    return "one run" if count == 1 else f"{count} runs"


def _range(values: Sequence[float]) -> tuple[float, float, float]:
    """Return minimum, median and maximum, wider if there are fewer than `_MIN_RUNS` values."""
    middle, least, most = median(values), min(values), max(values)
    if len(values) >= _MIN_RUNS:
        return least, middle, most
    return least / 2, middle, most * 2


def _with_costs(
    seconds: tuple[float, float, float], runs: int, basis: str, needs: Amounts, rate: RateSetting
) -> Estimate:
    low, middle, high = (
        costs.charge(
            rate,
            needs.cores * duration / HOUR,
            needs.memory_bytes / GIB * duration / HOUR,
            needs.gpus * duration / HOUR,
        )
        for duration in seconds
    )
    return Estimate(
        seconds=seconds[1], low_seconds=seconds[0], high_seconds=seconds[2], cost=middle, low_cost=low,
        high_cost=high, core_hours=needs.cores * seconds[1] / HOUR, gpu_hours=needs.gpus * seconds[1] / HOUR,
        currency=rate.currency, runs=runs, basis=basis,
    )  # fmt: skip


def format_estimate(estimate: Estimate) -> str:
    if estimate.low_seconds == estimate.high_seconds:
        duration = f"about {_format_duration(estimate.seconds)}"
    else:
        duration = (
            f"about {_format_duration(estimate.seconds)}, between "
            f"{_format_duration(estimate.low_seconds)} and {_format_duration(estimate.high_seconds)}"
        )
    hours = f"{estimate.core_hours:.2g} core-hours" + (
        f" and {estimate.gpu_hours:.2g} GPU-hours" if estimate.gpu_hours else ""
    )
    text = f"expected duration: {duration}; {hours}"
    if estimate.cost:
        text += (
            f", {costs.money(estimate.cost, estimate.currency)} (up to "
            f"{costs.money(estimate.high_cost, estimate.currency)})"
        )
    return text


def _format_duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
