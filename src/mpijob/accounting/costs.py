"""Costs: rates by namespace, the cost of an account, budgets with a forecast."""

from __future__ import annotations

import calendar
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec

from mpijob.model.status.accounts import Account
from mpijob.settings import BudgetSetting, RateSetting

# The share of a budget from which it causes an alert.
_ALERT_SHARE = 0.8
FREE = RateSetting()


def rate(rates: Mapping[str, RateSetting], namespace: str) -> RateSetting:
    """Return the rates of a namespace: its own, else the default ("*")."""
    return rates.get(namespace) or rates.get("*") or FREE


def cost(account: Account, rates: Mapping[str, RateSetting]) -> float:
    """Return the cost of the resources that a job held, used or not."""
    rates_of_namespace = rate(rates, account.ref.namespace)
    return charge(rates_of_namespace, account.core_hours, account.gib_hours, account.gpu_hours)


def charge(rate_setting: RateSetting, core_hours: float, gib_hours: float, gpu_hours: float) -> float:
    return (
        core_hours * rate_setting.core_hour
        + gib_hours * rate_setting.gib_hour
        + gpu_hours * rate_setting.gpu_hour
    )


def money(amount: float, currency: str) -> str:
    digits = 2 if amount >= 0.995 or amount == 0 else 4
    return f"{amount:,.{digits}f} {currency}".rstrip()


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Monthly budget of a namespace: spent so far, and the forecast for the month."""

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
    """Return the budget state of each namespace for the month of `now`."""
    spent: dict[str, float] = {}
    for account in accounts:
        if month_of(account.counted) == month_of(now):
            spent[account.ref.namespace] = spent.get(account.ref.namespace, 0.0) + cost(account, rates)
    return tuple(
        _budget(name, budget.monthly, spent.get(name, 0.0), rate(rates, name).currency, now)
        for name, budget in sorted(settings.items())
    )


def _budget(namespace: str, monthly: float, spent: float, currency: str, now: float) -> Budget:
    # At the beginning of a month a forecast is made from at least one day.
    forecast = spent / max(_share_of_month(now), 1 / 31)
    share = spent / monthly if monthly else 0.0
    return Budget(
        namespace=namespace, month=month_of(now), monthly=monthly, spent=spent, forecast=forecast, share=share,
        currency=currency, alert=_alert(namespace, monthly, spent, forecast, currency),
    )  # fmt: skip


def _alert(namespace: str, monthly: float, spent: float, forecast: float, currency: str) -> str:
    if not monthly:
        return ""
    text = f"{namespace} has used {spent / monthly:.0%} of this month's budget of {money(monthly, currency)}"
    if spent >= monthly:
        return f"{text}; the budget is exhausted"
    if spent >= _ALERT_SHARE * monthly:
        return text
    if forecast > monthly:
        return f"{text}; at this rate the month ends at {money(forecast, currency)}"
    return ""


def month_of(timestamp: float) -> str:
    """Return the month of a time, in UTC: `2026-11`."""
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m")


def _share_of_month(now: float) -> float:
    """Return the elapsed share of the current month, from 0 to 1."""
    date = datetime.fromtimestamp(now, UTC)
    days = calendar.monthrange(date.year, date.month)[1]
    return (date.day - 1 + (date.hour * 3600 + date.minute * 60 + date.second) / 86400) / days
