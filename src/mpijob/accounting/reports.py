"""Reports over many accounts: totals by user, namespace, label, month, as sreport gives them, and what was wasted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from mpijob.accounting import costs
from mpijob.errors import InvalidJob
from mpijob.model import Phase
from mpijob.model.status.accounts import Account
from mpijob.settings import RateSetting

KEYS = ("user", "namespace", "month", "day", "queue", "state", "cause", "program", "name", "engine")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The total of one group; `key` has the group's words in the order asked for.

    `queued_hours` is the time that jobs waited. `idle_gpu_hours` were held and not used, `spare_gib_hours` asked
    for and not used: both of measured jobs only. Where the jobs cost in several currencies, `costs` has each one's
    sum, and `cost` is 0: they have none together.
    """

    key: tuple[str, ...]
    jobs: int = 0
    succeeded: int = 0
    failed: int = 0
    core_hours: float = 0.0
    gib_hours: float = 0.0
    gpu_hours: float = 0.0
    core_hours_used: float = 0.0
    gib_hours_used: float = 0.0
    gpu_hours_used: float = 0.0
    measured_core_hours: float = 0.0
    measured_gib_hours: float = 0.0
    queued_hours: float = 0.0
    run_hours: float = 0.0
    idle_gpu_hours: float = 0.0
    spare_gib_hours: float = 0.0
    cost: float = 0.0
    currency: str = ""
    costs: dict[str, float] = {}

    @property
    def price(self) -> str:
        """What it cost as people read it, each currency for itself; "" for nothing."""
        sums = self.costs or ({self.currency: self.cost} if self.cost else {})
        return " + ".join(costs.money(amount, currency) for currency, amount in sorted(sums.items()))

    @property
    def efficiency(self) -> float | None:
        """The share of held core time that was used, of what was measured."""
        return self.core_hours_used / self.measured_core_hours if self.measured_core_hours else None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Totals by group, the costliest first, and of all together."""

    by: tuple[str, ...]
    since: float | None
    until: float | None
    rows: tuple[Row, ...]
    total: Row


def check(by: Sequence[str]) -> tuple[str, ...]:
    """Return the grouping; refuse a word that names none."""
    for one in by:
        if one not in KEYS and not one.startswith("label:"):
            raise InvalidJob(
                f"'{one}' is nothing to group by",
                hint=f"use {', '.join(KEYS)} or label:KEY, as in label:team",
            )
    return tuple(by)


def report(
    accounts: Iterable[Account],
    by: Sequence[str],
    rates: Mapping[str, RateSetting],
    *,
    since: float | None = None,
    until: float | None = None,
) -> Report:
    """Return the totals of accounts by some of their words."""
    by = check(by)
    groups: dict[tuple[str, ...], list[Account]] = {}
    for one in accounts:
        groups.setdefault(tuple(_word(one, key) for key in by), []).append(one)
    rows = [_row(key, found, rates) for key, found in groups.items()]
    rows.sort(key=lambda row: (-row.cost, -row.gpu_hours, -row.core_hours, row.key))
    everything = [one for found in groups.values() for one in found]
    total = _row(("total",) + ("",) * (len(by) - 1), everything, rates)
    return Report(by=by, since=since, until=until, rows=tuple(rows), total=total)


def _word(one: Account, key: str) -> str:
    if key.startswith("label:"):
        label = key.removeprefix("label:")
        return one.labels.get(label) or one.cost_labels.get(label) or ""
    if key == "month":
        return costs.month_of(one.counted)
    if key == "day":
        return _day(one.counted)
    named = {
        "user": one.owner,
        "namespace": one.ref.namespace,
        "state": one.phase.value,
        "name": one.ref.name,
    }
    return named[key] if key in named else str(getattr(one, key))


def _day(moment: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d")


def _row(key: tuple[str, ...], found: Sequence[Account], rates: Mapping[str, RateSetting]) -> Row:
    measured = [one for one in found if one.measured]
    sums = _sums(found, rates)
    paid = {currency: amount for currency, amount in sums.items() if amount}
    named = [*(paid or sums.keys() - {""})]
    return Row(
        key=key,
        jobs=len(found),
        succeeded=sum(one.phase is Phase.SUCCEEDED for one in found),
        failed=sum(one.phase is Phase.FAILED for one in found),
        core_hours=sum(one.core_hours for one in found),
        gib_hours=sum(one.gib_hours for one in found),
        gpu_hours=sum(one.gpu_hours for one in found),
        core_hours_used=sum(one.core_hours_used for one in measured),
        gib_hours_used=sum(one.gib_hours_used for one in measured),
        gpu_hours_used=sum(one.gpu_hours_used for one in measured),
        measured_core_hours=sum(one.core_hours for one in measured),
        measured_gib_hours=sum(one.gib_hours for one in measured),
        queued_hours=sum(one.queued_seconds for one in found) / 3600,
        run_hours=sum(one.held_seconds for one in found) / 3600,
        idle_gpu_hours=sum(max(0.0, one.gpu_hours - one.gpu_hours_used) for one in measured),
        spare_gib_hours=sum(max(0.0, one.gib_hours - one.gib_hours_used) for one in measured),
        cost=sum(paid.values()) if len(paid) == 1 else 0.0,
        currency=named[0] if len(named) == 1 else "",
        costs=paid if len(paid) > 1 else {},
    )


def _sums(found: Sequence[Account], rates: Mapping[str, RateSetting]) -> dict[str, float]:
    """Return what accounts cost in each currency."""
    sums: dict[str, float] = {}
    for one in found:
        currency = costs.rate(rates, one.ref.namespace).currency
        sums[currency] = sums.get(currency, 0.0) + costs.cost(one, rates)
    return sums
