"""The accounts of a cluster's jobs where nobody records: times and ends are known, what they held is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mpijob.accounting import build
from mpijob.history import account_store
from mpijob.model import Scope
from mpijob.model.status.accounts import Account, AccountQuery

if TYPE_CHECKING:
    from mpijob.model import Page

_MOST = 1000


class Lists(Protocol):
    """Who lists jobs: the engine."""

    def list(self, scope: Scope) -> Page:
        """Return one page of states."""


def find(engine: Lists, query: AccountQuery, now: float) -> tuple[Account, ...]:
    """Return the accounts of the newest jobs that are there, as far as they are wanted."""
    scope = Scope(namespace=query.namespace, names=query.names, phases=query.phases, limit=_MOST)
    made = [build.account(state, now=now) for state in (engine.list(scope)).items]
    wanted = [one for one in made if account_store.matches(one, query)]
    return tuple(sorted(wanted, key=account_store.sort_key, reverse=True)[: query.limit + 1])
