"""The accounts of jobs: kept in step with their records, asked by words and times, kept longer than the rest.

An account is made anew whenever a job's state or usage is written down, in the same transaction. The words by
which accounts are chosen are columns; the account itself is one value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from mpijob import codec
from mpijob.accounting.aggregate import Key, tally
from mpijob.model import Amounts, JobKey, JobState, MPIJob, Sample
from mpijob.model.ref import no_place
from mpijob.model.spec.selector import selects
from mpijob.model.status.accounts import Account, AccountPage, AccountQuery, Tally

_TALLY = "worker, attempt, first, last, cpu_seconds, byte_seconds, gpu_seconds, peak_bytes, samples"
_COLUMNS = "namespace, uid, name, owner, phase, queue, cause, program, created, ended, labels, account"
_EQUAL = re.compile(r"\s*([\w./-]+)\s*={1,2}\s*([\w.-]+)\s*")
_AT_ONCE = 1000


class Connection(Protocol):
    """A database connection, as far as it is needed here."""

    def execute(self, sql: str, values: Any = (), /) -> Any:
        """Run a statement."""

    def executemany(self, sql: str, values: Any, /) -> Any:
        """Run a statement for many rows."""


class Reader(Protocol):
    """Who answers queries: an archive."""

    def read(self, sql: str, *values: Any) -> list[Any]:
        """Return all rows of a query."""


class _Held(msgspec.Struct):
    """Of a plan only what the job holds."""

    needs: Amounts = Amounts()


# -- usage ------------------------------------------------------------------------------------------
class AccountStore:
    """What each worker used so far, in a database in which these columns identify a job."""

    def __init__(self, *columns: str) -> None:
        names = ", ".join(columns)
        marks = ",".join("?" * (len(columns) + len(_TALLY.split(","))))
        self.select = f"SELECT {_TALLY} FROM tallies WHERE {' AND '.join(f'{name}=?' for name in columns)}"
        self._insert = (
            f"INSERT INTO tallies ({names}, {_TALLY}) VALUES ({marks}) ON CONFLICT ({names}, attempt, worker)"
            " DO UPDATE SET last=excluded.last, cpu_seconds=excluded.cpu_seconds,"
            " byte_seconds=excluded.byte_seconds, gpu_seconds=excluded.gpu_seconds,"
            " peak_bytes=excluded.peak_bytes, samples=excluded.samples"
        )

    def count(self, db: Connection, key: Sequence[str], samples: Iterable[Sample]) -> list[Sample]:
        """Add samples to the tallies of a job; return those that are new."""
        known = tallied(db.execute(self.select, key).fetchall())
        new = [one for one in samples if _is_new(one, known)]
        changed = tally(new, known)
        db.executemany(self._insert, [(*key, *msgspec.structs.astuple(one)) for one in changed.values()])
        return new


OF_RECORD = AccountStore("namespace", "uid")
OF_LOCAL_STORE = AccountStore("uid")  # one user's engine, which makes the uids itself


def tallied(rows: Iterable[Any]) -> dict[Key, Tally]:
    """Return selected tallies by attempt and worker."""
    return {(one.attempt, one.worker): one for one in (Tally(*row) for row in rows)}


def thinned(samples: list[Sample], most: int) -> list[Sample]:
    """Return at most so many samples of each worker, evenly over time; 0 means all."""
    if not most:
        return samples
    seen: dict[Key, int] = {}
    counts: dict[Key, int] = {}
    for one in samples:
        counts[one.attempt, one.worker] = counts.get((one.attempt, one.worker), 0) + 1
    kept = []
    for one in samples:
        key = (one.attempt, one.worker)
        place = seen.get(key, 0)
        seen[key] = place + 1
        if place % -(-counts[key] // most) == 0:
            kept.append(one)
    return kept


def _is_new(sample: Sample, known: dict[Key, Tally]) -> bool:
    before = known.get((sample.attempt, sample.worker))
    return before is None or sample.time > before.last


# -- accounts ---------------------------------------------------------------------------------------
def settle(db: Connection, key: JobKey, now: float) -> None:
    """Make a job's account anew from what is written down of it."""
    row = db.execute("SELECT state, spec, plan FROM jobs WHERE namespace=? AND uid=?", key).fetchone()
    if row is not None:
        state, spec, plan = row
        used = tallied(db.execute(OF_RECORD.select, key).fetchall())
        put(db, made(codec.decode(state, JobState), spec, plan, used, now))


def made(
    state: JobState, spec: bytes | None, plan: bytes | None, used: dict[Key, Tally], now: float
) -> Account:
    """Return the account of a job; what it held is told by its plan, else by its spec."""
    from mpijob import admission  # as above
    from mpijob.accounting import build

    job = _spec_of(spec) if spec else None
    needs = codec.decode(plan, _Held).needs if plan else admission.needs(job) if job else Amounts()
    return build.account(state, job, needs, [*used.values()], now=now)


def _spec_of(spec: bytes) -> MPIJob | None:
    """Return what was asked for; None where another version wrote it in words that this one does not know."""
    try:
        job = codec.decode(spec, MPIJob)
    except msgspec.MsgspecError:
        return None
    return job


def put(db: Connection, account: Account) -> None:
    """Write an account down in the place of the one before."""
    ref = account.ref
    labels = msgspec.json.encode(account.labels).decode()
    db.execute(
        f"INSERT INTO accounts ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (namespace, uid) DO UPDATE SET"
        " owner=excluded.owner, phase=excluded.phase, queue=excluded.queue, cause=excluded.cause,"
        " program=excluded.program, ended=excluded.ended, labels=excluded.labels, account=excluded.account",
        (*ref.key, ref.name, account.owner, account.phase.value, account.queue, account.cause,
         account.program, account.created, account.ended, labels, msgspec.json.encode(account)),
    )  # fmt: skip


def fill(db: Connection) -> None:
    """Make the accounts of all jobs that were written down before there were any."""
    for namespace, uid, seen in db.execute(
        "SELECT namespace, uid, last_seen FROM jobs ORDER BY seq"
    ).fetchall():
        key = JobKey(namespace, uid)
        rows = db.execute(
            "SELECT time, worker, cores, memory, attempt FROM samples WHERE namespace=? AND uid=? ORDER BY time", key
        ).fetchall()  # fmt: skip
        OF_RECORD.count(db, key, (Sample(*row) for row in rows))
        settle(db, key, seen)


# -- questions --------------------------------------------------------------------------------------
def page(archive: Reader, query: AccountQuery) -> AccountPage:
    """Return one page of accounts, newest first."""
    found: list[Account] = []
    for one in find(archive, query):
        found.append(one)
        if len(found) > query.limit:
            break
    return AccountPage(
        tuple(found[: query.limit]), cursor(found[query.limit - 1]) if len(found) > query.limit else ""
    )


def find(archive: Reader, query: AccountQuery) -> Iterator[Account]:
    """Yield the accounts that are wanted, newest first."""
    after, size = query.after, min(_AT_ONCE, query.limit + 1)
    while True:
        where, values = _condition(query, after)
        rows = archive.read(
            f"SELECT account FROM accounts WHERE {where}"
            f" ORDER BY created DESC, uid DESC, namespace DESC LIMIT {size}",
            *values,
        )
        batch = [codec.decode(row[0], Account) for row in rows]
        yield from (one for one in batch if selects(query.selector, one.labels))
        if len(batch) < size:
            return
        after, size = cursor(batch[-1]), _AT_ONCE


def wanted(account: Account, query: AccountQuery) -> bool:
    """Return whether a query asks for an account: the same choice as in the database, for those that are not in it."""
    ref = account.ref
    since, until = query.since, query.until
    ended = account.ended if not query.by_end else account.counted
    begun = account.created if not query.by_end else account.counted
    return (
        (not query.namespace or ref.namespace == query.namespace)
        and (not (query.names or query.uids) or ref.name in query.names or ref.uid in query.uids)
        and (not query.owners or account.owner in query.owners)
        and (not query.phases or account.phase.value in query.phases)
        and (not query.queue or account.queue == query.queue)
        and (not query.cause or account.cause == query.cause)
        and (not query.program or account.program == query.program)
        and (since is None or ended is None or ended >= since)
        and (until is None or begun < until)
        and (not query.after or cursor_key(account) < _key_of(query.after))
        and selects(query.selector, account.labels)
    )


def cursor(account: Account) -> str:
    """Return what asks for the page behind this account."""
    return f"{account.created!r}:{account.ref.namespace}:{account.ref.uid}"


def cursor_key(account: Account) -> tuple[float, str, str]:
    """Return by what accounts are ordered."""
    return account.created, account.ref.uid, account.ref.namespace


def _key_of(text: str) -> tuple[float, str, str]:
    created, _, key = text.partition(":")
    namespace, _, uid = key.rpartition(":")  # a cursor of an earlier release has no namespace
    try:
        return float(created), uid, namespace
    except ValueError:
        raise no_place(text) from None


def _condition(query: AccountQuery, after: str) -> tuple[str, list[Any]]:
    parts, values = ["1=1"], list[Any]()
    equals = (
        ("namespace", query.namespace),
        ("queue", query.queue),
        ("cause", query.cause),
        ("program", query.program),
    )
    several = (("owner", query.owners), ("phase", query.phases))
    if query.names or query.uids:
        marks = [",".join("?" * len(words)) or "NULL" for words in (query.names, query.uids)]
        parts.append(f"(name IN ({marks[0]}) OR uid IN ({marks[1]}))")
        values += [*query.names, *query.uids]
    for column, words in (*((name, (word,) if word else ()) for name, word in equals), *several):
        if words:
            parts.append(f"{column} IN ({','.join('?' * len(words))})")
            values += words
    if query.since is not None:
        parts.append("coalesce(ended, created)>=?" if query.by_end else "(ended IS NULL OR ended>=?)")
        values.append(query.since)
    if query.until is not None:
        parts.append("coalesce(ended, created)<?" if query.by_end else "created<?")
        values.append(query.until)
    for term in query.selector.split(",") if "(" not in query.selector else ():
        if match := _EQUAL.fullmatch(term):  # the rest of a selector is judged row by row
            parts.append("labels LIKE ?")
            values.append(f'%"{match[1]}":"{match[2]}"%')
    if after:
        parts.append("(created, uid, namespace) < (?, ?, ?)")
        values += _key_of(after)
    return " AND ".join(parts), values
