"""A plain engine as the async client sees it: each call happens in a thread, so the loop is never blocked.

Calls that wait for a job to end have threads of their own, so that those who only look are never behind them.
Streams get a thread of their own that hands items over one by one. It ends with the next item, or the next pause
of the engine, after its stream was closed.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mpijob.backends import cancellable_sleep
from mpijob.backends.protocol import Backend, Preflight, Schedules
from mpijob.client.bridge import Direct, drive
from mpijob.errors import Finding
from mpijob.model import (
    Artifact,
    Event,
    Identity,
    JobRef,
    JobState,
    LogLine,
    LogQuery,
    MPIJob,
    Page,
    Plan,
    RankStack,
    Sample,
    Scope,
    Secret,
)

if TYPE_CHECKING:
    from mpijob.history.archive_reader import ArchiveReader
    from mpijob.model.status.accounts import Account, AccountQuery
    from mpijob.model.status.job_change import Overseen

T = TypeVar("T")
_AHEAD = 256
_WAITING_THREADS = 64
_TRANSFER_THREADS = 32  # a slow object store, or a slow reader of a file, delays no other call


class Threaded:
    """The port over a plain engine, for use on an event loop."""

    plain = False

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        self.name = inner.name
        self.namespace = inner.namespace

    async def whoami(self) -> Identity:
        """Return the user as this place knows them."""
        return await moved(self._inner.whoami)

    async def devices(self) -> frozenset[str] | None:
        """Return which kinds of devices some machine here has."""
        return await moved(self._inner.devices)

    async def preflight(self, job: MPIJob, who: Identity, *, fresh: bool = False) -> Preflight:
        """Return what admission needs to judge this job for this user."""
        return await moved(lambda: self._inner.preflight(job, who, fresh=fresh))

    async def plan(self, job: MPIJob, found: Preflight) -> Plan:
        """Return exactly what would run."""
        return await moved(lambda: self._inner.plan(job, found))

    async def rehearse(self, plan: Plan) -> tuple[Finding, ...]:
        """Let the place's own server judge a plan."""
        return await moved(lambda: self._inner.rehearse(plan))

    async def expect(self) -> None:
        """A submit is about to follow."""
        await moved(self._inner.expect)

    async def submit(self, plan: Plan, who: Identity) -> JobRef:
        """Start, or queue, what the plan says."""
        return await moved(lambda: self._inner.submit(plan, who))

    async def spec(self, ref: JobRef) -> MPIJob:
        """Return what was asked for."""
        return await moved(lambda: self._inner.spec(ref))

    async def planned(self, ref: JobRef) -> Plan | None:
        """Return the plan that was submitted."""
        return await moved(lambda: self._inner.planned(ref))

    async def get(self, ref: JobRef) -> JobState:
        """Return the job's present state."""
        return await moved(lambda: self._inner.get(ref))

    async def list(self, scope: Scope) -> Page:
        """Return one page of states."""
        return await moved(lambda: self._inner.list(scope))

    def watch(self, scope: Scope) -> AsyncIterator[JobState]:
        """Yield every job's state once, then each change."""
        return _streamed(self._inner.watch(scope))

    def oversee(self, namespace: str) -> AsyncIterator[Overseen]:
        """Yield where every job stands, then each change, from an engine that can tell it so."""
        return _streamed(self._inner.oversee(namespace))  # type: ignore[attr-defined]  # the caller has looked

    async def secret_values(self, ref: JobRef, secrets: tuple[Secret, ...]) -> tuple[str, ...]:
        """Return the values of a job's secrets, as far as they can be known."""
        known = getattr(self._inner, "secret_values", None)
        return () if known is None else await moved(lambda: known(ref, secrets))

    async def checkup(self) -> tuple[Finding, ...] | None:
        """Return whether the place is ready for jobs, as the engine's user sees it; None from one that cannot tell."""
        look = getattr(self._inner, "checkup", None)
        return None if look is None else await moved(look)

    def logs(self, ref: JobRef, query: LogQuery) -> AsyncIterator[LogLine]:
        """Yield the merged lines in time order."""
        return _streamed(self._inner.logs(ref, query))

    def events(self, ref: JobRef, *, follow: bool = False) -> AsyncIterator[Event]:
        """Yield what happened, in order."""
        return _streamed(self._inner.events(ref, follow=follow))

    async def samples(self, ref: JobRef) -> tuple[Sample, ...]:
        """Return the usage measured so far."""
        return await moved(lambda: self._inner.samples(ref))

    async def accounts(self, query: AccountQuery) -> tuple[Account, ...]:
        """Return the accounts of jobs that are not (yet) in the record."""
        return await moved(lambda: self._inner.accounts(query))

    async def warnings(self, ref: JobRef) -> tuple[Finding, ...]:
        """Return what is worrying about a job that runs."""
        return await moved(lambda: self._inner.warnings(ref))

    async def cancel(self, ref: JobRef, *, grace_seconds: float | None = None) -> JobState:
        """Ask the job to end."""
        return await waited(lambda: self._inner.cancel(ref, grace_seconds=grace_seconds))

    async def suspend(self, ref: JobRef) -> JobState:
        """End the processes, keep the job."""
        return await waited(lambda: self._inner.suspend(ref))

    async def reconcile(self, state: JobState) -> None:
        """Do what the engine does not do by itself."""
        await moved(lambda: self._inner.reconcile(state))

    async def resume(self, ref: JobRef) -> JobState:
        """Queue a suspended job again."""
        return await moved(lambda: self._inner.resume(ref))

    async def scale(self, ref: JobRef, workers: int) -> JobState:
        """Give an elastic job another number of workers."""
        return await moved(lambda: self._inner.scale(ref, workers))

    async def delete(self, ref: JobRef, *, grace_seconds: float | None = None) -> None:
        """End the job if needed and remove it."""
        await waited(lambda: self._inner.delete(ref, grace_seconds=grace_seconds))

    async def execute(
        self, ref: JobRef, argv: tuple[str, ...], *, worker: int | None, rank: int | None
    ) -> int:
        """Run a command inside the job."""
        return await moved(lambda: self._inner.execute(ref, argv, worker=worker, rank=rank))

    async def stacks(
        self, ref: JobRef, ranks: tuple[int, ...] = (), *, bring: bool = False
    ) -> tuple[RankStack, ...]:
        """Return where each rank stands now."""
        return await waited(lambda: self._inner.stacks(ref, ranks, bring=bring))

    async def artifacts(self, ref: JobRef) -> tuple[Artifact, ...]:
        """Return the files that the job left."""
        return await _on(_transfers(), lambda: self._inner.artifacts(ref))

    async def fetch(self, ref: JobRef, path: str, target: Path) -> None:
        """Copy one of those files to this machine."""
        await _on(_transfers(), lambda: self._inner.fetch(ref, path, target))

    async def act(
        self, verb: Any, ref: JobRef, work: Callable[[], Awaitable[T]], *told: Any, **more: Any
    ) -> T:
        """Do something that does not go through the port, and tell the audit where there is one (see `witness`)."""
        auditor = getattr(self._inner, "act", None)
        return await moved(work if auditor is None else lambda: auditor(verb, ref, work, *told, **more))

    async def note(self, *told: Any) -> None:
        """Tell the audit of what did not go through the port (see `witness`)."""
        if note := getattr(self._inner, "note", None):
            await moved(lambda: note(*told))

    def past(self) -> ArchiveReader | None:
        """Return what is remembered of jobs that are gone."""
        return self._inner.past()

    def schedules(self) -> Schedules:
        """Return the recurring jobs of this place; whoever asks moves the calls to a thread."""
        return self._inner.schedules()

    async def pause(self, seconds: float) -> None:
        """Let a moment pass."""
        await moved(lambda: self._inner.pause(seconds))


async def moved(start: Callable[[], Awaitable[T]]) -> T:
    """Run a call in a thread; it is only made there, so that one cancelled before leaves nothing behind."""
    return await asyncio.to_thread(lambda: drive(start()))


async def waited(start: Callable[[], Awaitable[T]]) -> T:
    """Do the same with a call that may wait for as long as a job takes to end."""
    return await _on(_patient(), start)


async def _on(threads: ThreadPoolExecutor, start: Callable[[], Awaitable[T]]) -> T:
    context = contextvars.copy_context()
    work = functools.partial(context.run, lambda: drive(start()))
    return await asyncio.get_running_loop().run_in_executor(threads, work)


@functools.cache
def _patient() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_WAITING_THREADS, thread_name_prefix="mpijob-waiting")


@functools.cache
def _transfers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_TRANSFER_THREADS, thread_name_prefix="mpijob-transfer")


async def _streamed(stream: AsyncIterator[T]) -> AsyncIterator[T]:
    pump = _Pump(stream, asyncio.get_running_loop())
    try:
        async for item in pump.items():
            yield item
    finally:
        pump.stop()


class _Pump(Generic[T]):
    """The thread that reads a plain stream, at most some items ahead of its reader."""

    def __init__(self, stream: AsyncIterator[T], loop: asyncio.AbstractEventLoop) -> None:
        self._stream, self._loop = stream, loop
        self._queue: asyncio.Queue[tuple[bool, Any]] = asyncio.Queue()
        self._room = threading.Semaphore(_AHEAD)
        self._stopped = threading.Event()
        threading.Thread(target=self._work, name="mpijob-stream", daemon=True).start()

    async def items(self) -> AsyncIterator[T]:
        """Yield what the stream yields, raise what it raises."""
        while True:
            ended, item = await self._queue.get()
            self._room.release()
            if not ended:
                yield item
            elif item is None:
                return
            else:
                raise item

    def stop(self) -> None:
        """Let the thread end with the next item, or the next pause."""
        self._stopped.set()
        self._room.release()

    def _work(self) -> None:
        outcome: BaseException | None = None
        cancellable_sleep.obey(self._stopped)
        try:
            for item in Direct().iterate(self._stream):
                self._room.acquire()
                if self._stopped.is_set():
                    return
                self._put(False, item)
        except cancellable_sleep.Abandoned:
            return
        except Exception as error:  # the reader raises it: nothing is lost
            outcome = error
        self._put(True, outcome)

    def _put(self, ended: bool, item: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._queue.put_nowait, (ended, item))
