"""`Client` and `Job` for event loops: each call runs in a thread, each stream has a thread of its own.

Nothing is implemented twice: a method here runs the blocking one. Arguments, results and docstrings are the
same.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar, overload

from mpijob.client.client import Client
from mpijob.client.job import Job
from mpijob.client.threads import Pool, run_in_thread, stream_in_thread
from mpijob.model import JobRef, JobState, MPIJob, Plan

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend
    from mpijob.client.submit.templates import Templates
    from mpijob.settings import Settings

B = TypeVar("B")
B_co = TypeVar("B_co", covariant=True)
P = ParamSpec("P")
T = TypeVar("T")


class _Wrapper(Generic[B_co]):
    """Holds the blocking object whose methods are run in threads."""

    def __init__(self, blocking: B_co) -> None:
        self.blocking = blocking


def _call(
    method: Callable[Concatenate[B, P], T], pool: Pool = Pool.SHORT, *, cancellable: bool = False
) -> Callable[Concatenate[_Wrapper[B], P], Coroutine[Any, Any, T]]:
    @functools.wraps(method)
    async def call(self: _Wrapper[B], /, *args: P.args, **kwargs: P.kwargs) -> T:
        work = lambda: method(self.blocking, *args, **kwargs)  # noqa: E731
        return await run_in_thread(work, pool, cancellable=cancellable)

    return call


def _direct(method: Callable[Concatenate[B, P], T]) -> Callable[Concatenate[_Wrapper[B], P], T]:
    """Call a method that never waits, without a thread."""

    @functools.wraps(method)
    def call(self: _Wrapper[B], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(self.blocking, *args, **kwargs)

    return call


def _job(
    method: Callable[Concatenate[B, P], Job], pool: Pool = Pool.SHORT
) -> Callable[Concatenate[_Wrapper[B], P], Coroutine[Any, Any, AsyncJob]]:
    @functools.wraps(method)
    async def call(self: _Wrapper[B], /, *args: P.args, **kwargs: P.kwargs) -> AsyncJob:
        return AsyncJob(await run_in_thread(lambda: method(self.blocking, *args, **kwargs), pool))

    return call


def _jobs(
    method: Callable[Concatenate[B, P], list[Job]],
) -> Callable[Concatenate[_Wrapper[B], P], Coroutine[Any, Any, list[AsyncJob]]]:
    @functools.wraps(method)
    async def call(self: _Wrapper[B], /, *args: P.args, **kwargs: P.kwargs) -> list[AsyncJob]:
        found = await run_in_thread(lambda: method(self.blocking, *args, **kwargs), Pool.WAITING)
        return [*map(AsyncJob, found)]

    return call


def _stream(
    method: Callable[Concatenate[B, P], Iterator[T]],
) -> Callable[Concatenate[_Wrapper[B], P], AsyncGenerator[T]]:
    @functools.wraps(method)
    def stream(self: _Wrapper[B], /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T]:
        return stream_in_thread(lambda: method(self.blocking, *args, **kwargs))

    return stream


class AsyncJob(_Wrapper[Job]):
    """One job; the methods of `Job` as coroutines."""

    @property
    def last(self) -> JobState:
        """The last state that was read."""
        return self.blocking.last

    @property
    def ref(self) -> JobRef:
        """The job's namespace, name and uid."""
        return self.blocking.ref

    @property
    def name(self) -> str:
        """The job's name."""
        return self.ref.name

    @property
    def namespace(self) -> str:
        """The job's namespace."""
        return self.ref.namespace

    async def spec(self) -> MPIJob:
        """Return the spec of the job."""
        return await run_in_thread(lambda: self.blocking.spec)

    state = _call(Job.state)
    attempts = _call(Job.attempts)
    runs = _call(Job.runs)
    wait = _call(Job.wait, Pool.WAITING, cancellable=True)
    wait_for_completion = _call(Job.wait_for_completion, Pool.WAITING, cancellable=True)
    logs = _stream(Job.logs)
    download_logs = _call(Job.download_logs, Pool.TRANSFER)
    events = _stream(Job.events)
    metrics = _call(Job.metrics)
    why = _call(Job.why)
    diagnose = _call(Job.diagnose)
    bundle = _call(Job.bundle, Pool.TRANSFER)
    warnings = _call(Job.warnings)
    stacks = _call(Job.stacks, Pool.WAITING)
    profile = _call(Job.profile)
    result = _call(Job.result)
    cancel = _call(Job.cancel, Pool.WAITING)
    suspend = _call(Job.suspend, Pool.WAITING)
    resume = _call(Job.resume)
    scale = _call(Job.scale)
    delete = _call(Job.delete, Pool.WAITING)
    retry = _job(Job.retry)
    clone = _job(Job.clone, Pool.WAITING)
    then = _job(Job.then)
    export = _call(Job.export)
    execute = _call(Job.execute, Pool.WAITING)

    def _repr_html_(self) -> str:
        from mpijob.client.observe import notebook

        return notebook.html(self.last)

    def __repr__(self) -> str:
        return f"<AsyncJob {self.ref}: {self.last.phase.value}>"


class AsyncClient(_Wrapper[Client]):
    """Jobs on one engine; the methods of `Client` as coroutines and async iterators.

    >>> import asyncio
    >>> from mpijob import AsyncClient, MPIJob
    >>> from mpijob.backends.memory import MemoryBackend
    >>> async def hello():
    ...     async with AsyncClient(MemoryBackend()) as client:
    ...         job = await client.run(MPIJob(name="hello", workers=2, command=["echo", "hello"]))
    ...         return [line.source async for line in job.logs()]
    >>> asyncio.run(hello())
    ['Rank-0', 'Rank-1']
    """

    def __init__(
        self,
        backend: Backend | None = None,
        *,
        namespace: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(Client(backend, namespace=namespace, settings=settings))
        self.settings = self.blocking.settings
        # Any: an engine has more abilities than the protocol, and tests use them.
        self.backend: Any = self.blocking.backend

    @property
    def namespace(self) -> str:
        """Default namespace."""
        return self.blocking.namespace

    @namespace.setter
    def namespace(self, name: str) -> None:
        self.blocking.namespace = name

    @property
    def templates(self) -> Templates:
        """The job templates, with blocking calls."""
        return self.blocking.templates

    @overload
    async def submit(self, job: MPIJob, *, dry_run: Literal[False] = False) -> AsyncJob: ...
    @overload
    async def submit(self, job: MPIJob, *, dry_run: Literal[True]) -> Plan: ...
    @overload
    async def submit(self, job: MPIJob, *, dry_run: bool) -> AsyncJob | Plan: ...
    async def submit(self, job: MPIJob, *, dry_run: bool = False) -> AsyncJob | Plan:
        """Create the job and return its handle; a dry run returns the plan instead."""
        done = await run_in_thread(lambda: self.blocking.submit(job, dry_run=dry_run))
        return AsyncJob(done) if isinstance(done, Job) else done

    async def run(self, job: MPIJob, timeout: float | None = None) -> AsyncJob:  # noqa: ASYNC109 the blocking name
        """Submit the job and wait until it succeeds; raise JobFailed if it fails."""
        handle = await self.submit(job)
        with self.reconciling(handle.ref):
            await handle.wait_for_completion(timeout)
        return handle

    ref = _direct(Client.ref)
    scope = _direct(Client.scope)
    localized = _direct(Client.localized)
    reconciling = _direct(Client.reconciling)

    get = _job(Client.get)
    state = _call(Client.state)
    attempts = _call(Client.attempts)
    runs = _call(Client.runs)
    spec = _call(Client.spec)
    whoami = _call(Client.whoami)
    facts = _call(Client.facts)
    artifacts = _call(Client.artifacts, Pool.TRANSFER)
    fetch = _call(Client.fetch, Pool.TRANSFER)
    fetch_file = _call(Client.fetch_file, Pool.TRANSFER)
    list = _call(Client.list)
    jobs = _stream(Client.jobs)
    watch = _stream(Client.watch)
    wait = _call(Client.wait, Pool.WAITING, cancellable=True)
    wait_for_completion = _call(Client.wait_for_completion, Pool.WAITING, cancellable=True)
    logs = _stream(Client.logs)
    download_logs = _call(Client.download_logs, Pool.TRANSFER)
    masked_values = _call(Client.masked_values)
    events = _stream(Client.events)
    metrics = _call(Client.metrics)
    why = _call(Client.why)
    diagnose = _call(Client.diagnose)
    deleted = _call(Client.deleted)
    record = _call(Client.record)
    compare = _call(Client.compare)
    export = _call(Client.export)

    plan = _call(Client.plan)
    fit = _call(Client.fit)
    cancel = _call(Client.cancel, Pool.WAITING)
    suspend = _call(Client.suspend, Pool.WAITING)
    resume = _call(Client.resume)
    scale = _call(Client.scale)
    delete = _call(Client.delete, Pool.WAITING)
    delete_all = _call(Client.delete_all, Pool.WAITING)
    cancel_all = _call(Client.cancel_all, Pool.WAITING)
    retry = _job(Client.retry)
    clone = _job(Client.clone, Pool.WAITING)
    array = _jobs(Client.array)
    submit_all = _jobs(Client.submit_all)
    store = _call(Client.store, Pool.TRANSFER)
    register = _call(Client.register, Pool.TRANSFER)
    execute = _call(Client.execute, Pool.WAITING)

    stacks = _call(Client.stacks, Pool.WAITING)
    profile = _call(Client.profile)
    warnings = _call(Client.warnings)
    patterns = _call(Client.patterns)
    audit = _call(Client.audit)
    verify_audit = _call(Client.verify_audit)
    curves = _call(Client.curves)
    points = _call(Client.points)
    scalars = _call(Client.scalars)
    nodes = _call(Client.nodes)
    links = _call(Client.links)
    bundle = _call(Client.bundle, Pool.TRANSFER)

    accounts = _call(Client.accounts)
    attempt_accounts = _call(Client.attempt_accounts)
    usage_report = _call(Client.usage_report)
    rates = _call(Client.rates)
    wait_accuracy = _call(Client.wait_accuracy)
    budgets = _call(Client.budgets)
    estimate = _call(Client.estimate)
    advise = _call(Client.advise)
    backup_record = _call(Client.backup_record, Pool.TRANSFER)
    restore_record = _call(Client.restore_record, Pool.TRANSFER)
    erase_user = _call(Client.erase_user)

    create_mpi_job = _job(Client.create_mpi_job)
    get_job_status = _call(Client.get_job_status)
    stream_job_events = _stream(Client.stream_job_events)
    get_job_logs = _call(Client.get_job_logs)
    get_job = _job(Client.get_job)
    list_jobs = _call(Client.list_jobs)
    get_job_events = _call(Client.get_job_events)
    wait_for_job_status = _call(Client.wait_for_job_status, Pool.WAITING, cancellable=True)
    delete_job = _call(Client.delete_job, Pool.WAITING)

    async def close(self) -> None:
        """Release the client's resources; jobs keep running."""
        self.blocking.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
