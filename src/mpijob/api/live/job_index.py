"""All jobs, read once for all clients: rows that a watch keeps current, and numbered changes.

A hundred open pages send one request to the engine. Each change has a number; a client that reconnects sends
the last one and gets the changes since, or is asked to reload if that is too long ago or was another server
process.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from functools import partial
from typing import NamedTuple

import msgspec

from mpijob.api.live import rows
from mpijob.api.schemas.job_schemas import JobRow
from mpijob.backends.capabilities import SupportsWatchAll
from mpijob.client import AsyncClient
from mpijob.client.threads import stream_in_thread
from mpijob.errors import MpiJobError, NotAllowed, NotFound
from mpijob.model import JobRef, JobState, Phase
from mpijob.model.status.job_change import Gone, Heard

# Changes that a client can resume after, and deleted jobs whose late events are ignored.
_KEPT_CHANGES = 5000
_CHECK_SECONDS = 2.0
_AGAIN_SECONDS = 1.0
# Jobs whose state is read in one round.
_ASKED_AT_ONCE = 50
_BEGIN_SECONDS = 10.0
_EXPLAINED_SECONDS = 7 * 86400.0
_AHEAD_SECONDS = 5.0
# An estimated start that moves by less stays as shown, so that the list does not flicker.
_STEADY_SECONDS = 15.0
_MOST_WAITING = 500

_log = logging.getLogger(__name__)


class _Wait(NamedTuple):
    """Queue position and estimated start of a waiting job."""

    position: int | None
    starts: float | None
    basis: str


# Namespace and resource: users see a row if they may list this resource in this namespace.
Scope = tuple[str, str]

MaySee = Callable[[Scope, bool], bool]


class Change(NamedTuple):
    """Changes since a revision. `whole` is False if they are unknown, so that all must be reloaded.

    `delete` has the keys of rows: `NAMESPACE/UID`.
    """

    rev: str
    upsert: tuple[JobRow, ...] = ()
    delete: tuple[str, ...] = ()
    whole: bool = True


class JobIndex:
    """The rows of all jobs, and their last changes."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._everywhere = True
        # By `_key`.
        self._rows: dict[str, JobRow] = {}
        # By `_name`: the key of the newest job of that name.
        self._named: dict[tuple[str, str, str, str], str] = {}
        self._epoch, self._number = secrets.token_hex(4), 0
        self._changes: deque[tuple[int, str, Scope]] = deque(maxlen=_KEPT_CHANGES)
        # Of waiting jobs, by key.
        self._waits: dict[str, _Wait] = {}
        # Of failed jobs, by key: cause and message.
        self._explained: dict[str, tuple[str, str]] = {}
        self._by_scope: dict[Scope, dict[str, JobRow]] = {}
        # Keys of deleted jobs: a late watch event must not bring them back.
        self._gone: dict[str, None] = {}
        # Set once and then replaced: a Condition would have to survive waiters that are cancelled.
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.trouble: MpiJobError | None = None
        # The last response of the engine.
        self.seen = time.time()
        self._watch_all = client.backend.capability(SupportsWatchAll)
        self.ready = self._watch_all is None

    @property
    def rev(self) -> str:
        """The number of the last change, prefixed with a mark of this process: another one numbers from 0."""
        return f"{self._epoch}-{self._number}"

    @property
    def everywhere(self) -> bool:
        """Whether the jobs of all namespaces are read, or of the client's only."""
        return self._everywhere

    @property
    def rows(self) -> tuple[JobRow, ...]:
        """All rows, unordered."""
        return tuple(self._rows.values())

    @property
    def scopes(self) -> frozenset[Scope]:
        return frozenset(self._by_scope)

    def rows_in(self, scopes: frozenset[Scope]) -> tuple[JobRow, ...]:
        """Return the rows of these scopes, unordered."""
        if scopes >= self._by_scope.keys():
            return self.rows
        return tuple(row for scope in scopes for row in self._by_scope.get(scope, {}).values())

    async def start(self) -> None:
        """Read all jobs, then keep watching."""
        if self._watch_all is not None:
            works: list[Callable[[], Awaitable[None]]] = [
                partial(self._follow_all, self._watch_all),
                self._explain,
                self._read_waits,
            ]
        else:
            await self._reload()
            works = [self._watch, self._check, self._read_waits]
        self._tasks = [asyncio.create_task(self._run_forever(work)) for work in works]
        if not self.ready:
            await self.changed(self.rev, _BEGIN_SECONDS)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def row_of(self, ref: JobRef) -> JobRow | None:
        if ref.uid:
            return self._rows.get(f"{ref.namespace}/{ref.uid}")
        of_name = (key for name, key in self._named.items() if name[:2] == (ref.namespace, ref.name))
        return next((self._rows[key] for key in of_name), None)

    # -- changes for clients -----------------------------------------------------------------------
    def since(self, rev: str, may_see: MaySee = lambda scope, there: True) -> Change:
        """Return the changes since a revision, of jobs for which `may_see` is true."""
        epoch, _, number = rev.partition("-")
        oldest = self._changes[0][0] if self._changes else self._number + 1
        if epoch != self._epoch or not number.isdigit() or not oldest - 1 <= int(number) <= self._number:
            return Change(self.rev, whole=epoch == self._epoch and number == str(self._number))
        touched = self._touched(int(number), may_see)
        here = tuple(self._rows[key] for key in touched if key in self._rows)
        gone = tuple(key for key in touched if key not in self._rows)
        return Change(self.rev, here, gone)

    def _touched(self, number: int, may_see: MaySee) -> list[str]:
        """Return the keys of jobs that changed since a number, in that order."""
        found: dict[str, None] = {}
        # From the newest: most clients lack a few changes only.
        for at, key, scope in reversed(self._changes):
            if at <= number:
                break
            if may_see(scope, key in self._rows):
                found[key] = None
        return [*found][::-1]

    async def changed(self, rev: str, seconds: float) -> bool:
        """Wait for a change after a revision; False on timeout."""
        if self.rev == rev:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), seconds)
        return self.rev != rev

    # -- updates from the engine --------------------------------------------------------------------
    def see(self, state: JobState) -> None:
        """Update the row of a job."""
        row = rows.row(state)
        # A job that is first seen while it is deleted is not added: its row would vanish at once.
        if state.phase is not Phase.DELETING or _key(row) in self._rows:
            self._put(row)

    def forget(self, ref: JobRef) -> None:
        """Remove a deleted job."""
        gone = self.row_of(ref)
        key = f"{ref.namespace}/{ref.uid or (gone.uid if gone else '')}"
        self._gone[key] = None
        while len(self._gone) > _KEPT_CHANGES:
            del self._gone[next(iter(self._gone))]
        if self._drop(key):
            self._announce()

    def _drop(self, key: str) -> bool:
        row = self._rows.pop(key, None)
        if row is None:
            return False
        self._named.pop(_name(row), None)
        self._part(row)
        self._explained.pop(key, None)
        self._waits.pop(key, None)
        self._note(row)
        return True

    def _put(self, *fresh: JobRow) -> None:
        if [row for row in fresh if self._update_row(row)]:
            self._announce()

    def _update_row(self, row: JobRow) -> bool:
        row = self._with_wait(self._with_cause(row))
        key = _key(row)
        if self._rows.get(key) == row or key in self._gone:
            return False
        older = self._rows.get(self._named.get(_name(row), ""))
        # A newer job of the same name and owner replaces an ended one.
        if older is not None and older.uid != row.uid:
            if (older.created, older.uid) > (row.created, row.uid):
                return False
            self._drop(_key(older))
        if (before := self._rows.get(key)) is not None:
            self._part(before)
        self._rows[key], self._named[_name(row)] = row, key
        self._by_scope.setdefault(scope_of(row), {})[row.uid] = row
        self._note(row)
        return True

    def _part(self, row: JobRow) -> None:
        """Remove a row from the index by scope."""
        own = self._by_scope.get(scope_of(row), {})
        own.pop(row.uid, None)
        if not own:
            self._by_scope.pop(scope_of(row), None)

    def _note(self, row: JobRow) -> None:
        self._number += 1
        self._changes.append((self._number, _key(row), scope_of(row)))

    def _with_cause(self, row: JobRow) -> JobRow:
        """Add the known cause to a failed job's row: events of a watch have none."""
        if row.phase is not Phase.FAILED:
            return row
        if row.cause:
            self._explained[_key(row)] = (row.cause, row.why)
        cause, why = self._explained.get(_key(row), (row.cause, row.why))
        return msgspec.structs.replace(row, cause=cause, why=why)

    def _with_wait(self, row: JobRow) -> JobRow:
        """Add the known queue position to a waiting job's row: events of a watch have none."""
        if row.phase is not Phase.QUEUED:
            self._waits.pop(_key(row), None)
            return row
        known = self._waits.get(_key(row))
        if known is None:
            return row
        return msgspec.structs.replace(
            row, position=known.position, starts_about=known.starts, wait_basis=known.basis
        )

    async def _read_waits(self) -> None:
        """Read the queue positions of all waiting jobs, with one request."""
        await asyncio.sleep(_AHEAD_SECONDS)
        if not any(row.phase is Phase.QUEUED for row in self._rows.values()):
            return
        page = await self._client.list(
            phases=(Phase.QUEUED,), all_namespaces=self._everywhere, limit=_MOST_WAITING
        )
        now, changed = time.time(), []
        for state in page.items:
            row = self._rows.get(f"{state.ref.namespace}/{state.ref.uid}")
            if row is not None and row.phase is Phase.QUEUED:
                self._waits[_key(row)] = _wait(state, now, self._waits.get(_key(row)))
                changed.append(rows.row(state))
        self._put(*changed)

    def _announce(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _run_forever(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            # The page shows it, with the age of the data; the next round may succeed.
            except MpiJobError as error:
                self.trouble = error
            except Exception:
                _log.exception("updating the job index failed, retrying")
            await asyncio.sleep(_AGAIN_SECONDS)

    def _note_contact(self) -> None:
        self.trouble, self.seen = None, time.time()

    async def _reload(self) -> None:
        """Read all jobs; of the client's namespace only, if it may not list all."""
        try:
            found = await self._all()
        except NotAllowed:
            if not self._everywhere:
                raise
            self._everywhere = False
            found = await self._all()
        for key in [key for key in self._rows if key not in found]:
            self._drop(key)
        self._put(*found.values())
        self._announce()

    async def _all(self) -> dict[str, JobRow]:
        async with aclosing(self._client.jobs(all_namespaces=self._everywhere)) as states:
            return {_key(row): row async for row in _as_rows(states)}

    async def _watch(self) -> None:
        stream = self._client.watch(all_namespaces=self._everywhere)
        try:
            async for state in stream:
                self._note_contact()
                self.see(state)
        finally:
            if close := getattr(stream, "aclose", None):
                await close()

    async def _follow_all(self, engine: SupportsWatchAll) -> None:
        """Follow the changes of an engine that watches all its jobs at once."""
        try:
            await self._take(engine, "" if self._everywhere else self._client.namespace)
        except NotAllowed:
            if not self._everywhere:
                raise
            self._everywhere = False

    async def _take(self, engine: SupportsWatchAll, namespace: str) -> None:
        # Rows that the first listing does not contain belong to deleted jobs.
        missing: set[str] | None = set(self._rows)
        stream = stream_in_thread(lambda: engine.watch_all(namespace))
        try:
            async for change in stream:
                if isinstance(change, Heard):
                    for key in missing or ():
                        self._drop(key)
                    missing, self.ready = None, True
                    self.trouble = change.trouble
                    if change.trouble is None:
                        self.seen = time.time()
                    self._announce()
                elif isinstance(change, Gone):
                    self.forget(change.ref)
                else:
                    row = rows.row(change)
                    (missing or set()).discard(_key(row))
                    self._update_row(row)
        finally:
            await stream.aclose()

    async def _explain(self) -> None:
        """Read the cause of recently failed jobs, once each: events of a watch have none."""
        await asyncio.sleep(_CHECK_SECONDS)
        since = time.time() - _EXPLAINED_SECONDS
        for row in [one for one in self._rows.values() if self._wants_cause(one, since)][:_ASKED_AT_ONCE]:
            # Recorded before the request, so that a job that cannot be diagnosed is not requested in each
            # round.
            self._explained[_key(row)] = ("", row.why)
            try:
                self.see(await self._client.state(JobRef(row.namespace, row.name, row.uid)))
            # It was deleted, or may not be read: its row keeps the engine's message.
            except MpiJobError as error:
                _log.debug("cannot diagnose %s/%s: %s", row.namespace, row.name, error.message)

    def _wants_cause(self, row: JobRow, since: float) -> bool:
        recent = (row.finished or row.created) > since
        return row.phase is Phase.FAILED and recent and _key(row) not in self._explained

    async def _check(self) -> None:
        """Find what a watch of this engine does not report: deleted jobs, and changes of jobs that still run."""
        await asyncio.sleep(_CHECK_SECONDS)
        page = await self._client.list(all_namespaces=self._everywhere, limit=1)
        self._note_contact()
        if page.total != len(self._rows):
            await self._reload()
        going = [one for one in self._rows.values() if one.phase.active][:_ASKED_AT_ONCE]
        for row in going:
            try:
                self.see(await self._client.state(row.name, row.namespace))
            except NotFound:
                self.forget(JobRef(row.namespace, row.name))


def _wait(state: JobState, now: float, before: _Wait | None) -> _Wait:
    """Return the queue position and start of a job; a start that is nearly the same stays as it was."""
    seconds = state.wait_estimate_seconds
    starts = None if seconds is None else float(round(now + seconds))
    if before is not None and before.starts is not None and starts is not None:
        near = max(_STEADY_SECONDS, 0.1 * (seconds or 0.0))
        starts = before.starts if abs(before.starts - starts) < near else starts
    return _Wait(state.queue_position, starts, state.wait_basis)


def _key(row: JobRow) -> str:
    """Return the key of a row. It contains the namespace: another user's object there cannot claim this job's uid."""
    return f"{row.namespace}/{row.uid}"


def _name(row: JobRow) -> tuple[str, str, str, str]:
    """Return what is unique among current jobs; kinds of the older operator may share names."""
    return row.namespace, row.name, row.owner, row.kind if row.engine == "training-operator" else ""


def scope_of(row: JobRow) -> Scope:
    """Return the namespace and resource that a user must be allowed to list to see the row."""
    if row.engine == "trainer":
        return row.namespace, "trainjobs.trainer.kubeflow.org"
    return row.namespace, f"{row.kind.lower()}s.kubeflow.org"


async def _as_rows(states: AsyncIterator[JobState]) -> AsyncIterator[JobRow]:
    async for state in states:
        yield rows.row(state)
