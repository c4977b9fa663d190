"""The accounts of a cluster's jobs without a recorder: times are known, the resources that they held are not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mpijob.accounting import build
from mpijob.history import account_store
from mpijob.model import Scope
from mpijob.model.status.accounts import Account, AccountQuery

if TYPE_CHECKING:
    from mpijob.model import Page

_MAX_JOBS = 1000


class ListsJobs(Protocol):
    """An engine that lists jobs."""

    def list(self, scope: Scope) -> Page:
        """Return one page of states."""


def find(engine: ListsJobs, query: AccountQuery, now: float) -> tuple[Account, ...]:
    """Return the accounts of the newest jobs that still exist and match the query."""
    scope = Scope(namespace=query.namespace, names=query.names, phases=query.phases, limit=_MAX_JOBS)
    accounts = [build.account(state, now=now) for state in (engine.list(scope)).items]
    wanted = [account for account in accounts if account_store.matches(account, query)]
    return tuple(sorted(wanted, key=account_store.sort_key, reverse=True)[: query.limit + 1])
