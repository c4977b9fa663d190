"""What flows: changes of the board as server-sent events, log lines in batches.

A page keeps one event stream; it says the last change it saw when it comes back. Lines are merged and filtered by
the client's own log verb and sent a few times a second, however fast they come.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from datetime import UTC, datetime

import msgspec
from starlette.responses import Response, StreamingResponse

from mpijob.api import problems
from mpijob.api.answers import Delta, LogBatch, LogQuery, LogRow
from mpijob.api.asking import Ask
from mpijob.api.board import Board, Change
from mpijob.errors import MpiJobError
from mpijob.model import JobRef, LogLine
from mpijob.observation import masking
from mpijob.observation.visible import visible

HEARTBEAT_SECONDS = 5.0  # the page takes three missed beats for a lost line
_COALESCE_SECONDS = 0.25
_BATCH_SECONDS = 0.1
_BATCH_LINES = 2000
_AHEAD_LINES = 10_000
_NO_STORE = {"cache-control": "no-store", "x-accel-buffering": "no"}


def _check_limit(ask: Ask) -> None:
    assert ask.visitor is not None
    ask.room.limits.check_stream(ask.visitor.user)


async def changes(ask: Ask) -> Response:
    """Stream what changes on the board."""
    _check_limit(ask)
    rev = ask.request.headers.get("last-event-id") or ask.query.rev or ask.room.board.rev
    return StreamingResponse(_changes(ask, rev), media_type="text/event-stream", headers=_NO_STORE)


async def _changes(ask: Ask, rev: str) -> AsyncIterator[bytes]:
    assert ask.visitor is not None
    board = ask.room.board
    with ask.room.limits.stream(ask.visitor.user):
        yield b"retry: 1000\n\n"
        while True:
            change = board.since(rev)
            yield _event(_name(change, rev), change, board)
            rev = change.rev
            if await board.changed(rev, HEARTBEAT_SECONDS):
                await asyncio.sleep(_COALESCE_SECONDS)


def _name(change: Change, rev: str) -> str:
    if not change.whole:
        return "reset"
    return "beat" if change.rev == rev else "change"


def _event(name: str, change: Change, board: Board) -> bytes:
    told = None if board.trouble is None else problems.told(board.trouble)[1]
    data = msgspec.json.encode(Delta(change.rev, change.upsert, change.delete, told, board.seen))
    return b"event: %s\nid: %s\ndata: %s\n\n" % (name.encode(), change.rev.encode(), data)


async def logs(ask: Ask) -> Response:
    """Stream the merged lines of a job, or hand them over as a file."""
    _check_limit(ask)
    state = await ask.client.state(ask.ref)  # what is not there is refused before the answer begins
    secret = await ask.client.masked_values(state.ref)
    feed = Feed(_lines(ask, state.ref))
    await feed.ready(_BATCH_SECONDS)
    if ask.query.format == "text":
        headers = {**_NO_STORE, "content-disposition": f'attachment; filename="{state.ref.name}.log"'}
        return StreamingResponse(
            _plain(ask, feed, secret), media_type="text/plain; charset=utf-8", headers=headers
        )
    return StreamingResponse(
        _batches(ask, feed, secret), media_type="application/x-ndjson", headers=_NO_STORE
    )


def _lines(ask: Ask, ref: JobRef) -> AsyncIterator[LogLine]:
    query: LogQuery = ask.query
    wanted = {name: getattr(query, name) for name in query.__struct_fields__}
    for own in ("namespace", "uid", "format"):
        del wanted[own]
    return ask.client.logs(ref, **wanted)


class Feed:
    """The lines of a log, read ahead by one task and handed over in batches."""

    def __init__(self, lines: AsyncIterator[LogLine]) -> None:
        self._lines, self._kept = lines, list[LogLine]()
        self._more, self._room = asyncio.Event(), asyncio.Event()
        self._error: MpiJobError | None = None
        self._over = False
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            async for line in self._lines:
                self._kept.append(line)
                self._more.set()
                if len(self._kept) >= _AHEAD_LINES:  # whoever reads slowly holds the engine back, not us
                    self._room.clear()
                    await self._room.wait()
        except MpiJobError as error:
            self._error = error
        finally:
            self._over = True
            self._more.set()

    async def ready(self, seconds: float) -> None:
        """Wait a moment for the first line; a question that is refused is refused here, with its own status."""
        await self._wait(seconds)
        if self._error is not None and not self._kept:
            raise self._error

    async def batches(self) -> AsyncIterator[list[LogLine]]:
        """Yield what was said, a few times a second; an empty batch is a sign of life. Raise what ended it."""
        try:
            while not (self._over and not self._kept):
                await self._wait(HEARTBEAT_SECONDS)
                if not self._over and len(self._kept) < _BATCH_LINES:
                    await asyncio.sleep(_BATCH_SECONDS)
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
        """Stop reading."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def _batches(ask: Ask, feed: Feed, secret: tuple[str, ...]) -> AsyncIterator[bytes]:
    assert ask.visitor is not None
    try:
        with ask.room.limits.stream(ask.visitor.user):
            async with aclosing(feed.batches()) as batches:  # type: ignore[type-var]  # a generator
                async for batch in batches:
                    yield _line(LogBatch(tuple(row(line, secret) for line in batch)))
    except (MpiJobError, problems.Refused) as error:
        yield _line(LogBatch(problem=problems.told(error)[1]))


async def _plain(ask: Ask, feed: Feed, secret: tuple[str, ...]) -> AsyncIterator[bytes]:
    assert ask.visitor is not None
    with ask.room.limits.stream(ask.visitor.user):
        async with aclosing(feed.batches()) as batches:  # type: ignore[type-var]  # a generator
            async for batch in batches:
                yield "".join(_written(row(line, secret)) for line in batch).encode()


def _written(line: LogRow) -> str:
    when = datetime.fromtimestamp(line.time / 1e3, UTC).isoformat(timespec="milliseconds")
    return f"{when.removesuffix('+00:00')}Z [{line.source}] {line.text}\n"


def row(line: LogLine, secret: tuple[str, ...]) -> LogRow:
    """Return a line as it may be shown: control characters written out, secrets masked."""
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


def _line(batch: LogBatch) -> bytes:
    return msgspec.json.encode(batch) + b"\n"
