"""The accounts of jobs that are here; those that were deleted are in the archive."""

from __future__ import annotations

import msgspec

from mpijob.accounting import build
from mpijob.backends.local.queue.store import Store, decode_state
from mpijob.history import account_store
from mpijob.model.status.accounts import Account, AccountQuery


def find(store: Store, query: AccountQuery, now: float) -> tuple[Account, ...]:
    """Return the accounts that are wanted, newest first, at most one more than a page holds."""
    where, values = _condition(query)
    rows = store.read(f"SELECT state FROM jobs WHERE {where}", *values)
    light = msgspec.structs.replace(query, program="", cause="")
    states = [decode_state(state) for (state,) in rows]
    chosen = [state for state in states if account_store.matches(build.account(state, now=now), light)]
    chosen.sort(key=lambda state: (state.created, state.ref.uid), reverse=True)
    if light == query:
        del chosen[query.limit + 1 :]
    whole = (job_account(store, state.ref.uid, now) for state in chosen)
    return tuple(one for one in whole if account_store.matches(one, query))


def job_account(store: Store, uid: str, now: float) -> Account:
    """Return the account of one job."""
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
