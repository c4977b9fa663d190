"""What a job will take, from earlier runs of the same program: time and cost, with their range and basis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from mpijob.accounting import costs
from mpijob.model import Amounts, Phase
from mpijob.model.status.accounts import GIB, HOUR, Account
from mpijob.settings import RateSetting

_FEW = 3  # fewer runs than this give a range twice as wide as they were


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """The expected run time in seconds and cost, each from `low` to `high`; `runs` it rests on, `basis` in words."""

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
    """Return what a job with these needs will take; None where no run of its program has succeeded."""
    good = [one for one in accounts if one.phase is Phase.SUCCEEDED and one.held_seconds > 0]
    same = [one for one in good if one.ranks == ranks]
    if same:
        low, middle, high = _range([one.held_seconds for one in same])
        basis = f"{_runs(len(same))} of this program with {ranks} ranks"
        return _priced((low, middle, high), len(same), basis, needs, rate)
    if not good:
        return None
    work = [one.held_seconds * max(one.ranks, 1) for one in good]
    low, middle, high = (value / max(ranks, 1) for value in _range(work))
    slowest = max(high, median(one.held_seconds for one in good))
    sizes = ", ".join(str(size) for size in sorted({one.ranks for one in good}))
    basis = f"{_runs(len(good))} of this program with other numbers of ranks ({sizes}), as if it scaled"
    return _priced((low, middle, slowest), len(good), basis, needs, rate)


def _runs(count: int) -> str:
    return "one run" if count == 1 else f"{count} runs"


def _range(values: Sequence[float]) -> tuple[float, float, float]:
    """Return least, middle and most, wider where they are few."""
    middle, least, most = median(values), min(values), max(values)
    if len(values) >= _FEW:
        return least, middle, most
    return least / 2, middle, most * 2


def _priced(
    seconds: tuple[float, float, float], runs: int, basis: str, needs: Amounts, rate: RateSetting
) -> Estimate:
    low, middle, high = (
        costs.charge(
            rate, needs.cores * one / HOUR, needs.memory_bytes / GIB * one / HOUR, needs.gpus * one / HOUR
        )
        for one in seconds
    )
    return Estimate(
        seconds=seconds[1], low_seconds=seconds[0], high_seconds=seconds[2], cost=middle, low_cost=low,
        high_cost=high, core_hours=needs.cores * seconds[1] / HOUR, gpu_hours=needs.gpus * seconds[1] / HOUR,
        currency=rate.currency, runs=runs, basis=basis,
    )  # fmt: skip


def sentence(found: Estimate) -> str:
    """Return an estimate as a plan tells it."""
    if found.low_seconds == found.high_seconds:
        told = f"about {_time(found.seconds)}"
    else:
        told = f"about {_time(found.seconds)}, between {_time(found.low_seconds)} and {_time(found.high_seconds)}"
    hours = f"{found.core_hours:.2g} core-hours" + (
        f" and {found.gpu_hours:.2g} GPU-hours" if found.gpu_hours else ""
    )
    text = f"it will take {told}: {hours}"
    if found.cost:
        text += f", {costs.money(found.cost, found.currency)} (up to {costs.money(found.high_cost, found.currency)})"
    return text


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
