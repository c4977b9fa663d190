"""Streams: job changes as server-sent events, log lines in batches.

A page keeps one event stream, and sends the id of the last change when it reconnects. Lines are merged and
filtered by the client's log method, and sent a few times a second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import Generic, NamedTuple, TypeVar

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from mpijob.api import compression, errors
from mpijob.api.live.job_index import Change, Scope
from mpijob.api.request_context import RequestContext
from mpijob.api.schemas.job_schemas import Delta, LogBatch, LogQuery, LogRow
from mpijob.client.multiuser.sessions import FRESH_SECONDS
from mpijob.errors import MpiJobError
from mpijob.model import JobRef, LogLine
from mpijob.observation.logs.escape import visible
from mpijob.observation.redaction import masking

T = TypeVar("T")
# The page treats three missing heartbeats as a lost connection.
HEARTBEAT_SECONDS = 5.0
# Changes within this time are sent together.
_COALESCE_SECONDS = 0.25
_BATCH_SECONDS = 0.1
_BATCH_LINES = 2000
# More lines than this in memory pause the reading of the log, and so the engine.
_AHEAD_LINES = 10_000
# The second header turns off the buffering of nginx, which would hold events back.
_NO_STORE = {"cache-control": "no-store", "x-accel-buffering": "no"}


class Flow(NamedTuple):
    """One item of a stream: its event, the id to resume after, and its data."""

    event: str
    id: str
    data: Delta | LogBatch


class Ending(Generic[T]):
    """An async iterator that also closes its source, even if the iteration never began."""

    def __init__(self, flow: AsyncIterator[T], end: Callable[[], Awaitable[None]]) -> None:
        self._flow, self._end = flow, end

    def __aiter__(self) -> AsyncIterator[T]:
        return self._flow

    async def __anext__(self) -> T:
        return await anext(self._flow)

    async def aclose(self) -> None:
        # Closing a generator that never started runs none of its `finally` blocks, so the source needs
        # `_end`.
        await self._flow.aclose()  # type: ignore[attr-defined]  # a generator
        await self._end()


class Streamed(StreamingResponse):
    """A streaming response that closes its source, however it ends."""

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        finally:
            # Starlette drops the iterator of a client that disconnects, and leaves closing it to the garbage
            # collector.
            if close := getattr(self.body_iterator, "aclose", None):
                await close()


async def changes(context: RequestContext) -> Response:
    """Stream the changes of the job list."""
    context.check_stream()
    news = _as_events(change_flow(context))
    return Streamed(news, media_type="text/event-stream", headers=_NO_STORE)


async def _as_events(flow: AsyncIterator[Flow]) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"
    async with aclosing(flow) as news:  # type: ignore[type-var]  # a generator
        async for event, at, data in news:
            body = msgspec.json.encode(data)
            yield b"event: %s\nid: %s\ndata: %s\n\n" % (event.encode(), at.encode(), body)


async def change_flow(context: RequestContext) -> AsyncIterator[Flow]:
    """Yield the changes that the user may see, with heartbeats; ends when their login ends."""
    job_index = context.room.job_index
    rev, permission_changes = context.last_seen or job_index.rev, None
    with context.stream():
        while True:
            trouble = job_index.trouble
            change = Change(rev)
            try:
                change, permission_changes = await _visible_changes(context, rev, permission_changes)
            except errors.Refused as refusal:
                yield Flow("bye", rev, Delta(rev, trouble=refusal.problem, seen=job_index.seen))
                return
            # Permissions are unknown now, so no change is sent.
            except MpiJobError as error:
                trouble = error
            problem = None if trouble is None else errors.describe(trouble)[1]
            delta = Delta(change.rev, change.upsert, change.delete, problem, job_index.seen)
            yield Flow(_name(change), change.rev, delta)
            rev = change.rev
            if await job_index.changed(rev, HEARTBEAT_SECONDS):
                await asyncio.sleep(_COALESCE_SECONDS)


async def _visible_changes(
    context: RequestContext, rev: str, permission_changes: int | None
) -> tuple[Change, int]:
    """Return the changes that the user may see; after a change of their permissions, a request to reload all."""
    await context.still_here()
    job_index, session = context.room.job_index, context.guest
    if session is None:
        return job_index.since(rev), 0
    scopes = asked = frozenset[Scope]()
    # Namespaces that appear during the review must be reviewed, too.
    while not asked >= job_index.scopes:
        asked = job_index.scopes
        scopes = await session.visible(asked)
    if permission_changes is not None and permission_changes != session.permission_changes:
        return Change(job_index.rev, whole=False), session.permission_changes
    return job_index.since(
        rev, lambda scope, there: scope in scopes if there else session.was_visible(scope)
    ), session.permission_changes


def _name(change: Change) -> str:
    if not change.whole:
        return "reset"
    return "change" if change.upsert or change.delete else "beat"


async def logs(context: RequestContext) -> Response:
    """Stream the merged lines of a job, or return them as a file."""
    context.check_stream()
    log = await opened(context)
    if context.query.format == "text":
        headers = {**_NO_STORE, "content-disposition": f'attachment; filename="{context.ref.name}.log"'}
        return _lines_as(context, log, _plain(context, log), "text/plain; charset=utf-8", headers)
    return _lines_as(context, log, _batches(log_flow(context, log)), "application/x-ndjson", _NO_STORE)


def _lines_as(
    context: RequestContext, log: OpenLog, chunks: AsyncIterator[bytes], media: str, headers: dict[str, str]
) -> Response:
    headers = {**headers, "vary": "accept-encoding"}
    if compression.accepted(context.request):
        chunks, headers["content-encoding"] = compression.streamed(chunks), "gzip"
    return Streamed(Ending(chunks, log.feed.close), media_type=media, headers=headers)


class OpenLog(NamedTuple):
    """An open log, and the secrets that are masked in it."""

    feed: Feed
    secret: tuple[str, ...]


async def opened(context: RequestContext) -> OpenLog:
    """Open the log of a job; errors are raised here, before the response begins, while it can still have a status."""
    state = await context.client.state(context.ref)
    secret = await context.client.masked_values(state.ref)
    feed = Feed(_lines(context, state.ref))
    await feed.ready(_BATCH_SECONDS)
    return OpenLog(feed, secret)


async def log_flow(context: RequestContext, log: OpenLog) -> AsyncIterator[Flow]:
    """Yield batches of lines, empty ones as heartbeats, and at last the error that ended the log, if any."""
    async with aclosing(_log_batches(context, log)) as batches:  # type: ignore[type-var]  # a generator
        async for batch in batches:
            yield Flow("lines", batch.lines[-1].at if batch.lines else "", batch)


async def _log_batches(context: RequestContext, log: OpenLog) -> AsyncIterator[LogBatch]:
    """Yield the batches; ends with an error for a user who may no longer read the log."""
    looked = time.monotonic()
    try:
        with context.stream():
            async with aclosing(log.feed.batches()) as batches:  # type: ignore[type-var]  # a generator
                async for batch in batches:
                    if time.monotonic() - looked > FRESH_SECONDS:
                        looked = time.monotonic()
                        await context.still_here()
                        await context.check(context.ref.namespace, logs=True)
                    yield LogBatch(tuple(row(line, log.secret) for line in batch))
    # The outermost handler: the status was sent long ago. Without the error line a broken log would look
    # complete.
    except Exception as error:
        yield LogBatch(problem=errors.describe(error)[1])


def _lines(context: RequestContext, ref: JobRef) -> AsyncIterator[LogLine]:
    query: LogQuery = context.query
    wanted = {name: getattr(query, name) for name in query.__struct_fields__}
    for own in ("namespace", "uid", "format"):
        del wanted[own]
    return context.client.logs(ref, **wanted)


class Feed:
    """The lines of a log, read ahead by a task and returned in batches."""

    def __init__(self, lines: AsyncIterator[LogLine]) -> None:
        self._lines, self._kept = lines, list[LogLine]()
        self._more, self._room = asyncio.Event(), asyncio.Event()
        self._error: Exception | None = None
        self._over = False
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            async for line in self._lines:
                self._kept.append(line)
                self._more.set()
                # Waiting here stops the engine from reading further.
                if len(self._kept) >= _AHEAD_LINES:
                    self._room.clear()
                    await self._room.wait()
        # The outermost handler of this task: the error is raised where the batches are read.
        except Exception as error:
            self._error = error
        finally:
            self._over = True
            self._more.set()

    async def ready(self, seconds: float) -> None:
        """Wait for the first line for a moment; raise the error of a log that cannot be opened."""
        await self._wait(seconds)
        if self._error is not None and not self._kept:
            raise self._error

    async def batches(self) -> AsyncIterator[list[LogLine]]:
        """Yield lines a few times a second; an empty batch is a heartbeat. Raise the error that ended the log."""
        begun = False
        try:
            while not (self._over and not self._kept):
                await self._wait(HEARTBEAT_SECONDS)
                if begun and not self._over and len(self._kept) < _BATCH_LINES:
                    # The first lines are sent at once, later ones are collected for a moment.
                    await asyncio.sleep(_BATCH_SECONDS)
                begun = True
                batch, self._kept = self._kept[:_BATCH_LINES], self._kept[_BATCH_LINES:]
                self._room.set()
                if not self._kept and not self._over:
                    self._more.clear()
                yield batch
            if self._error is not None:
                raise self._error
        finally:
            await self.close()

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._more.wait(), seconds)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def _batches(flow: AsyncIterator[Flow]) -> AsyncIterator[bytes]:
    async with aclosing(flow) as news:  # type: ignore[type-var]  # a generator
        async for one in news:
            yield msgspec.json.encode(one.data) + b"\n"


async def _plain(context: RequestContext, log: OpenLog) -> AsyncIterator[bytes]:
    async with aclosing(_log_batches(context, log)) as batches:  # type: ignore[type-var]  # a generator
        async for batch in batches:
            yield _text(batch).encode()


def _text(batch: LogBatch) -> str:
    """Return the lines as text; an error is the last line."""
    problem = batch.problem
    end = "" if problem is None else f"[mpijob] the log ends here: {problem.message}\n"
    return "".join(map(_written, batch.lines)) + end


def _written(line: LogRow) -> str:
    when = datetime.fromtimestamp(line.time / 1e3, UTC).isoformat(timespec="milliseconds")
    return f"{when.removesuffix('+00:00')}Z [{line.source}] {line.text}\n"


def row(line: LogLine, secret: tuple[str, ...]) -> LogRow:
    """Return a line for the API: control characters escaped, secrets masked."""
    return LogRow(
        time=line.time / 1e6,
        at=str(line.time),
        source=line.source,
        role=line.role,
        stream=line.stream,
        text=masking.masked_text(visible(line.text), secret),
        worker=line.worker,
        rank=line.rank,
        attempt=line.attempt,
        level=line.level,
        marks=line.marks,
    )
