"""What it costs: rates by namespace, the cost of an account, budgets with their forecast."""

from __future__ import annotations

import calendar
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec

from mpijob.model.status.accounts import Account
from mpijob.settings import BudgetSetting, RateSetting

_NEAR = 0.8  # of a budget: worth a warning
FREE = RateSetting()


def rate(rates: Mapping[str, RateSetting], namespace: str) -> RateSetting:
    """Return the rates of a namespace: its own, else everybody's ("*")."""
    return rates.get(namespace) or rates.get("*") or FREE


def cost(account: Account, rates: Mapping[str, RateSetting]) -> float:
    """Return what the room that was held for a job costs; what was held is paid, used or not."""
    one = rate(rates, account.ref.namespace)
    return charge(one, account.core_hours, account.gib_hours, account.gpu_hours)


def charge(one: RateSetting, core_hours: float, gib_hours: float, gpu_hours: float) -> float:
    """Return the price of so many hours."""
    return core_hours * one.core_hour + gib_hours * one.gib_hour + gpu_hours * one.gpu_hour


def money(amount: float, currency: str) -> str:
    """Return an amount of money as people read it."""
    digits = 2 if amount >= 0.995 or amount == 0 else 4
    return f"{amount:,.{digits}f} {currency}".rstrip()


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How a namespace stands against its budget of a month: spent so far, and where that leads."""

    namespace: str
    month: str
    monthly: float
    spent: float
    forecast: float
    share: float
    currency: str = ""
    alert: str = ""


def budgets(
    accounts: Iterable[Account],
    settings: Mapping[str, BudgetSetting],
    rates: Mapping[str, RateSetting],
    now: float,
) -> tuple[Budget, ...]:
    """Return how each namespace with a budget stands in the month of this moment."""
    spent: dict[str, float] = {}
    for one in accounts:
        if month_of(one.counted) == month_of(now):
            spent[one.ref.namespace] = spent.get(one.ref.namespace, 0.0) + cost(one, rates)
    return tuple(
        _budget(name, budget.monthly, spent.get(name, 0.0), rate(rates, name).currency, now)
        for name, budget in sorted(settings.items())
    )


def _budget(namespace: str, monthly: float, spent: float, currency: str, now: float) -> Budget:
    forecast = spent / max(_share_of_month(now), 1 / 31)
    share = spent / monthly if monthly else 0.0
    return Budget(
        namespace=namespace, month=month_of(now), monthly=monthly, spent=spent, forecast=forecast, share=share,
        currency=currency, alert=_alert(namespace, monthly, spent, forecast, currency),
    )  # fmt: skip


def _alert(namespace: str, monthly: float, spent: float, forecast: float, currency: str) -> str:
    if not monthly:
        return ""
    told = (
        f"{namespace} has used {spent / monthly:.0%} of its budget of {money(monthly, currency)} this month"
    )
    if spent >= monthly:
        return f"{told}; nothing is left"
    if spent >= _NEAR * monthly:
        return told
    if forecast > monthly:
        return f"{told}; at this pace the month ends at {money(forecast, currency)}"
    return ""


def month_of(moment: float) -> str:
    """Return the month of a moment, in UTC: `2026-11`."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m")


def _share_of_month(now: float) -> float:
    """Return how much of its month a moment has behind it, from 0 to 1."""
    day = datetime.fromtimestamp(now, UTC)
    days = calendar.monthrange(day.year, day.month)[1]
    return (day.day - 1 + (day.hour * 3600 + day.minute * 60 + day.second) / 86400) / days
