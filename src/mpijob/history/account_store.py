"""Store the accounts of jobs: updated with their records, queried by column, kept longer than the rest.

An account is rebuilt whenever a job's state or usage is stored, in the same transaction, so it never
disagrees with the record. The fields that queries filter by are columns; the account itself is one JSON
value. What an account contains is computed in `accounting`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

import msgspec

from mpijob import codec
from mpijob.accounting.aggregate import Key, tally
from mpijob.model import Amounts, JobKey, JobState, MPIJob, Sample
from mpijob.model.ref import invalid_continue_token
from mpijob.model.spec.selector import selects
from mpijob.model.status.accounts import Account, AccountPage, AccountQuery, Tally

_TALLY = "worker, attempt, first, last, cpu_seconds, byte_seconds, gpu_seconds, peak_bytes, samples"
_COLUMNS = "namespace, uid, name, owner, phase, queue, cause, program, created, ended, labels, account"
_EQUALITY = re.compile(r"\s*([\w./-]+)\s*={1,2}\s*([\w.-]+)\s*")
_BATCH_SIZE = 1000


class Connection(Protocol):
    """The part of a database connection that this module uses."""

    def execute(self, sql: str, values: Any = (), /) -> Any: ...

    def executemany(self, sql: str, values: Any, /) -> Any: ...


class Reader(Protocol):
    """Runs queries; an `Archive` does."""

    def read(self, sql: str, *values: Any) -> list[Any]: ...


class _StoredPlan(msgspec.Struct):
    """The part of a stored plan that this module reads."""

    needs: Amounts = Amounts()


# -- usage ------------------------------------------------------------------------------------------
class TallyStore:
    """The usage of each worker, in a database where these columns identify a job."""

    # Tallies are added up when samples arrive, not when they are queried: samples may be thinned or deleted
    # later without changing an account, and a week of a hundred workers is sixty million of them
    # (docs/decisions/0031).

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

    def add_samples(self, db: Connection, key: Sequence[str], samples: Iterable[Sample]) -> list[Sample]:
        """Add samples to the tallies of a job; return those that are new."""
        known = parse_tallies(db.execute(self.select, key).fetchall())
        new = [sample for sample in samples if _is_unseen(sample, known)]
        changed = tally(new, known)
        db.executemany(self._insert, [(*key, *msgspec.structs.astuple(tally)) for tally in changed.values()])
        return new


ARCHIVE_TALLIES = TallyStore("namespace", "uid")
# The local engine serves one user and generates the uids itself, so they are unique without a namespace.
LOCAL_TALLIES = TallyStore("uid")


def parse_tallies(rows: Iterable[Any]) -> dict[Key, Tally]:
    """Return selected tallies by attempt and worker."""
    tallies = (Tally(*row) for row in rows)
    return {(tally.attempt, tally.worker): tally for tally in tallies}


def downsample(samples: list[Sample], limit: int) -> list[Sample]:
    """Return at most `limit` samples of each worker, evenly over time; 0 means all."""
    if not limit:
        return samples
    counts = Counter((sample.attempt, sample.worker) for sample in samples)
    positions: Counter[Key] = Counter()
    selected = []
    for sample in samples:
        key = (sample.attempt, sample.worker)
        if positions[key] % -(-counts[key] // limit) == 0:
            selected.append(sample)
        positions[key] += 1
    return selected


def _is_unseen(sample: Sample, known: dict[Key, Tally]) -> bool:
    before = known.get((sample.attempt, sample.worker))
    return before is None or sample.time > before.last


# -- accounts ---------------------------------------------------------------------------------------
def update_account(db: Connection, key: JobKey, now: float) -> None:
    """Rebuild a job's account from its stored state and usage, in the caller's transaction."""
    row = db.execute("SELECT state, spec, plan FROM jobs WHERE namespace=? AND uid=?", key).fetchone()
    if row is not None:
        state, spec, plan = row
        tallies = parse_tallies(db.execute(ARCHIVE_TALLIES.select, key).fetchall())
        save_account(db, build_account(codec.decode(state, JobState), spec, plan, tallies, now))


def build_account(
    state: JobState, spec: bytes | None, plan: bytes | None, tallies: dict[Key, Tally], now: float
) -> Account:
    """Build the account of a job; its resource requests come from its plan, else from its spec."""
    # Imported here because `mpijob list` opens the database and must not load these packages.
    from mpijob import admission
    from mpijob.accounting import build

    job = _decode_spec(spec) if spec else None
    needs = codec.decode(plan, _StoredPlan).needs if plan else admission.needs(job) if job else Amounts()
    return build.account(state, job, needs, [*tallies.values()], now=now)


def _decode_spec(spec: bytes) -> MPIJob | None:
    # A newer or older release may have stored fields that this one does not know.
    try:
        job = codec.decode(spec, MPIJob)
    except msgspec.MsgspecError:
        return None
    return job


def save_account(db: Connection, account: Account) -> None:
    ref = account.ref
    labels = msgspec.json.encode(account.labels).decode()
    db.execute(
        f"INSERT INTO accounts ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (namespace, uid) DO UPDATE SET"
        " owner=excluded.owner, phase=excluded.phase, queue=excluded.queue, cause=excluded.cause,"
        " program=excluded.program, ended=excluded.ended, labels=excluded.labels, account=excluded.account",
        (*ref.key, ref.name, account.owner, account.phase.value, account.queue, account.cause,
         account.program, account.created, account.ended, labels, msgspec.json.encode(account)),
    )  # fmt: skip


def backfill(db: Connection) -> None:
    """Build the accounts of jobs that were stored before accounts existed."""
    for namespace, uid, last_seen in db.execute(
        "SELECT namespace, uid, last_seen FROM jobs ORDER BY seq"
    ).fetchall():
        key = JobKey(namespace, uid)
        rows = db.execute(
            "SELECT time, worker, cores, memory, attempt FROM samples WHERE namespace=? AND uid=? ORDER BY time", key
        ).fetchall()  # fmt: skip
        ARCHIVE_TALLIES.add_samples(db, key, (Sample(*row) for row in rows))
        update_account(db, key, last_seen)


# -- queries ----------------------------------------------------------------------------------------
def page(archive: Reader, query: AccountQuery) -> AccountPage:
    """Return one page of accounts, newest first."""
    found = [*islice(find(archive, query), query.limit + 1)]
    next_page = cursor(found[query.limit - 1]) if len(found) > query.limit else ""
    return AccountPage(tuple(found[: query.limit]), next_page)


def find(archive: Reader, query: AccountQuery) -> Iterator[Account]:
    """Yield the accounts that match a query, newest first."""
    # A selector is not fully evaluated in SQL, so one batch may not fill the page. The first batch is small:
    # usually it is enough.
    after, size = query.after, min(_BATCH_SIZE, query.limit + 1)
    while True:
        where, values = _where(query, after)
        rows = archive.read(
            f"SELECT account FROM accounts WHERE {where}"
            f" ORDER BY created DESC, uid DESC, namespace DESC LIMIT {size}",
            *values,
        )
        batch = [codec.decode(row[0], Account) for row in rows]
        yield from (account for account in batch if selects(query.selector, account.labels))
        if len(batch) < size:
            return
        after, size = cursor(batch[-1]), _BATCH_SIZE


def matches(account: Account, query: AccountQuery) -> bool:
    """Return whether an account matches a query: the same filter as in SQL, for accounts outside the database."""
    ref = account.ref
    since, until = query.since, query.until
    ended = account.ended if not query.by_end else account.counted
    started = account.created if not query.by_end else account.counted
    return (
        (not query.namespace or ref.namespace == query.namespace)
        and (not (query.names or query.uids) or ref.name in query.names or ref.uid in query.uids)
        and (not query.owners or account.owner in query.owners)
        and (not query.phases or account.phase.value in query.phases)
        and (not query.queue or account.queue == query.queue)
        and (not query.cause or account.cause == query.cause)
        and (not query.program or account.program == query.program)
        and (since is None or ended is None or ended >= since)
        and (until is None or started < until)
        and (not query.after or sort_key(account) < _parse_cursor(query.after))
        and selects(query.selector, account.labels)
    )


def cursor(account: Account) -> str:
    """Return the continue token for the page after this account."""
    return f"{account.created!r}:{account.ref.namespace}:{account.ref.uid}"


def sort_key(account: Account) -> tuple[float, str, str]:
    """Return the sort key of the list of accounts, which is newest first: sort in reverse."""
    return account.created, account.ref.uid, account.ref.namespace


def _parse_cursor(text: str) -> tuple[float, str, str]:
    created, _, key = text.partition(":")
    # Tokens of earlier releases have no namespace.
    namespace, _, uid = key.rpartition(":")
    try:
        return float(created), uid, namespace
    except ValueError:
        raise invalid_continue_token(text) from None


def _where(query: AccountQuery, after: str) -> tuple[str, list[Any]]:
    parts, values = ["1=1"], list[Any]()
    single = {
        "namespace": query.namespace, "queue": query.queue, "cause": query.cause, "program": query.program
    }  # fmt: skip
    accepted: dict[str, tuple[str, ...]] = {column: (value,) for column, value in single.items() if value}
    accepted |= {"owner": query.owners, "phase": query.phases}
    if query.names or query.uids:
        # An empty list is not valid in PostgreSQL; NULL matches nothing.
        marks = [",".join("?" * len(wanted)) or "NULL" for wanted in (query.names, query.uids)]
        parts.append(f"(name IN ({marks[0]}) OR uid IN ({marks[1]}))")
        values += [*query.names, *query.uids]
    for column, wanted in accepted.items():
        if wanted:
            parts.append(f"{column} IN ({','.join('?' * len(wanted))})")
            values += wanted
    if query.since is not None:
        parts.append("coalesce(ended, created)>=?" if query.by_end else "(ended IS NULL OR ended>=?)")
        values.append(query.since)
    if query.until is not None:
        parts.append("coalesce(ended, created)<?" if query.by_end else "created<?")
        values.append(query.until)
    for term in query.selector.split(",") if "(" not in query.selector else ():
        # SQL narrows by `key=value` terms only; `find` checks the whole selector row by row.
        if match := _EQUALITY.fullmatch(term):
            parts.append("labels LIKE ?")
            values.append(f'%"{match[1]}":"{match[2]}"%')
    if after:
        parts.append("(created, uid, namespace) < (?, ?, ?)")
        values += _parse_cursor(after)
    return " AND ".join(parts), values
