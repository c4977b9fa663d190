"""Accounts of the jobs in the store; those of deleted jobs are in the archive."""

from __future__ import annotations

import msgspec

from mpijob.accounting import build
from mpijob.backends.local.queue.store import Store, decode_state
from mpijob.history import account_store
from mpijob.model.status.accounts import Account, AccountQuery


def find(store: Store, query: AccountQuery, now: float) -> tuple[Account, ...]:
    """Return the accounts that match a query, newest first, at most one more than a page."""
    where, values = _condition(query)
    rows = store.read(f"SELECT state FROM jobs WHERE {where}", *values)
    # In two steps, because a complete account needs the job's plan and samples: first by the state alone.
    state_query = msgspec.structs.replace(query, program="", cause="")
    states = [decode_state(state) for (state,) in rows]
    matching = [
        state for state in states if account_store.matches(build.account(state, now=now), state_query)
    ]
    matching.sort(key=lambda state: (state.created, state.ref.uid), reverse=True)
    if state_query == query:
        del matching[query.limit + 1 :]
    accounts = (job_account(store, state.ref.uid, now) for state in matching)
    return tuple(account for account in accounts if account_store.matches(account, query))


def job_account(store: Store, uid: str, now: float) -> Account:
    (state,) = store.read("SELECT state FROM jobs WHERE uid=?", uid)[0]
    plan = store.plan(uid)
    used = account_store.parse_tallies(store.read(account_store.LOCAL_TALLIES.select, uid))
    return build.account(decode_state(state), plan.job, plan.needs, [*used.values()], now=now)


def _condition(query: AccountQuery) -> tuple[str, list[str]]:
    parts, values = ["1=1"], list[str]()
    for column, words in (
        ("namespace", (query.namespace,) if query.namespace else ()),
        ("queue", (query.queue,) if query.queue else ()),
        ("name", query.names),
        ("owner", query.owners),
        ("phase", query.phases),
    ):
        if words:
            parts.append(f"{column} IN ({','.join('?' * len(words))})")
            values += words
    return " AND ".join(parts), values
