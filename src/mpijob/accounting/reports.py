"""Reports over many accounts: totals by user, namespace, label or month, as in sreport, and unused resources.

Single accounts are shown by `fields`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from mpijob.accounting import costs
from mpijob.errors import InvalidJob
from mpijob.model import Phase
from mpijob.model.status.accounts import Account
from mpijob.settings import RateSetting

GROUPINGS = ("user", "namespace", "month", "day", "queue", "state", "cause", "program", "name", "engine")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The total of one group; `key` has the group's values in the requested order.

    `queued_hours` is the time that jobs waited. `idle_gpu_hours` were held and not used, `spare_gib_hours`
    requested and not used: both count measured jobs only. If the costs are in several currencies, `costs` has
    one sum for each and `cost` is 0.
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
        """The cost as text, each currency separately; "" for none."""
        sums = self.costs or ({self.currency: self.cost} if self.cost else {})
        return " + ".join(costs.money(amount, currency) for currency, amount in sorted(sums.items()))

    @property
    def efficiency(self) -> float | None:
        """The used share of the held core time, of measured jobs."""
        return self.core_hours_used / self.measured_core_hours if self.measured_core_hours else None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Totals by group, the most expensive first, and the overall total."""

    by: tuple[str, ...]
    since: float | None
    until: float | None
    rows: tuple[Row, ...]
    total: Row


def check_grouping(by: Sequence[str]) -> tuple[str, ...]:
    """Return the grouping; raise InvalidJob for an unknown key."""
    for key in by:
        if key not in GROUPINGS and not key.startswith("label:"):
            raise InvalidJob(
                f"cannot group by '{key}'",
                hint=f"use {', '.join(GROUPINGS)} or label:KEY, as in label:team",
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
    """Return the totals of accounts, grouped by some of their fields."""
    by = check_grouping(by)
    groups: dict[tuple[str, ...], list[Account]] = {}
    for account in accounts:
        groups.setdefault(tuple(_group_value(account, key) for key in by), []).append(account)
    rows = [_row(key, members, rates) for key, members in groups.items()]
    rows.sort(key=lambda row: (-row.cost, -row.gpu_hours, -row.core_hours, row.key))
    everything = [account for members in groups.values() for account in members]
    total = _row(("total",) + ("",) * (len(by) - 1), everything, rates)
    return Report(by=by, since=since, until=until, rows=tuple(rows), total=total)


def _group_value(account: Account, key: str) -> str:
    if key.startswith("label:"):
        label = key.removeprefix("label:")
        return account.labels.get(label) or account.cost_labels.get(label) or ""
    if key == "month":
        return costs.month_of(account.counted)
    if key == "day":
        return datetime.fromtimestamp(account.counted, UTC).strftime("%Y-%m-%d")
    values = {
        "user": account.owner,
        "namespace": account.ref.namespace,
        "state": account.phase.value,
        "name": account.ref.name,
    }
    return values[key] if key in values else str(getattr(account, key))


def _row(key: tuple[str, ...], accounts: Sequence[Account], rates: Mapping[str, RateSetting]) -> Row:
    measured = [account for account in accounts if account.measured]
    sums = _costs_by_currency(accounts, rates)
    # Namespaces without a price must not hide the currency of the others.
    charged = {currency: amount for currency, amount in sums.items() if amount}
    currencies = [*(charged or sums.keys() - {""})]
    return Row(
        key=key,
        jobs=len(accounts),
        succeeded=sum(account.phase is Phase.SUCCEEDED for account in accounts),
        failed=sum(account.phase is Phase.FAILED for account in accounts),
        core_hours=sum(account.core_hours for account in accounts),
        gib_hours=sum(account.gib_hours for account in accounts),
        gpu_hours=sum(account.gpu_hours for account in accounts),
        core_hours_used=sum(account.core_hours_used for account in measured),
        gib_hours_used=sum(account.gib_hours_used for account in measured),
        gpu_hours_used=sum(account.gpu_hours_used for account in measured),
        measured_core_hours=sum(account.core_hours for account in measured),
        measured_gib_hours=sum(account.gib_hours for account in measured),
        queued_hours=sum(account.queued_seconds for account in accounts) / 3600,
        run_hours=sum(account.held_seconds for account in accounts) / 3600,
        idle_gpu_hours=sum(max(0.0, account.gpu_hours - account.gpu_hours_used) for account in measured),
        spare_gib_hours=sum(max(0.0, account.gib_hours - account.gib_hours_used) for account in measured),
        cost=sum(charged.values()) if len(charged) == 1 else 0.0,
        currency=currencies[0] if len(currencies) == 1 else "",
        costs=charged if len(charged) > 1 else {},
    )


def _costs_by_currency(accounts: Sequence[Account], rates: Mapping[str, RateSetting]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for account in accounts:
        currency = costs.rate(rates, account.ref.namespace).currency
        sums[currency] = sums.get(currency, 0.0) + costs.cost(account, rates)
    return sums
