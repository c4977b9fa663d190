"""What flows: changes of the board as server-sent events, log lines in batches.

A page keeps one event stream; it says the last change it saw when it comes back. Lines are merged and filtered by
the client's own log verb and sent a few times a second, however fast they come.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
from starlette.responses import Response, StreamingResponse

from mpijob.api import problems
from mpijob.api.answers import Delta, LogBatch, LogQuery, LogRow
from mpijob.api.asking import Ask
from mpijob.api.board import Change
from mpijob.errors import MpiJobError
from mpijob.model import JobRef, LogLine
from mpijob.observation import masking
from mpijob.observation.visible import visible

HEARTBEAT_SECONDS = 15.0
_COALESCE_SECONDS = 0.25
_BATCH_SECONDS = 0.1
_BATCH_LINES = 2000
_NO_STORE = {"cache-control": "no-store", "x-accel-buffering": "no"}


async def changes(ask: Ask) -> Response:
    """Stream what changes on the board."""
    rev = ask.request.headers.get("last-event-id") or ask.query.rev or ask.room.board.rev
    return StreamingResponse(_changes(ask, rev), media_type="text/event-stream", headers=_NO_STORE)


async def _changes(ask: Ask, rev: str) -> AsyncIterator[bytes]:
    assert ask.visitor is not None
    board = ask.room.board
    with ask.room.limits.stream(ask.visitor.user):
        yield b"retry: 1000\n\n"
        while True:
            change = board.since(rev)
            yield _event(_name(change, rev), change, board.trouble)
            rev = change.rev
            if await board.changed(rev, HEARTBEAT_SECONDS):
                await asyncio.sleep(_COALESCE_SECONDS)


def _name(change: Change, rev: str) -> str:
    if not change.whole:
        return "reset"
    return "beat" if change.rev == rev else "change"


def _event(name: str, change: Change, trouble: MpiJobError | None) -> bytes:
    told = None if trouble is None else problems.told(trouble)[1]
    data = msgspec.json.encode(Delta(change.rev, change.upsert, change.delete, told))
    return b"event: %s\nid: %s\ndata: %s\n\n" % (name.encode(), change.rev.encode(), data)


async def logs(ask: Ask) -> Response:
    """Stream the merged lines of a job, or hand them over as a file."""
    state = await ask.client.state(ask.ref)  # what is not there is refused before the answer begins
    secret = masking.secret_values(await ask.client.spec(state.ref))
    lines = _lines(ask, state.ref)
    if ask.query.format == "text":
        name = f"{state.ref.name}.log"
        headers = {**_NO_STORE, "content-disposition": f'attachment; filename="{name}"'}
        return StreamingResponse(
            _plain(lines, secret), media_type="text/plain; charset=utf-8", headers=headers
        )
    first = await _first(lines)
    return StreamingResponse(
        _batches(ask, first, lines, secret), media_type="application/x-ndjson", headers=_NO_STORE
    )


def _lines(ask: Ask, ref: JobRef) -> AsyncIterator[LogLine]:
    query: LogQuery = ask.query
    wanted = {name: getattr(query, name) for name in query.__struct_fields__}
    for own in ("namespace", "uid", "format"):
        del wanted[own]
    return ask.client.logs(ref, **wanted)


async def _first(lines: AsyncIterator[LogLine]) -> asyncio.Task[LogLine]:
    """Return the task of the first line; a question that is refused is refused here, with its own status."""
    task = asyncio.ensure_future(anext(lines))
    await asyncio.wait([task], timeout=_BATCH_SECONDS)
    if task.done() and isinstance(error := task.exception(), MpiJobError):
        raise error
    return task


async def _batches(
    ask: Ask, task: asyncio.Task[LogLine], lines: AsyncIterator[LogLine], secret: tuple[str, ...]
) -> AsyncIterator[bytes]:
    assert ask.visitor is not None
    with ask.room.limits.stream(ask.visitor.user):
        try:
            while True:
                batch, task, ended = await _gather(task, lines)
                if batch or not ended:
                    yield _line(LogBatch(tuple(row(line, secret) for line in batch)))
                if ended:
                    return
        except MpiJobError as error:
            yield _line(LogBatch(problem=problems.told(error)[1]))
        finally:
            task.cancel()
            await _closed(lines)


async def _gather(
    task: asyncio.Task[LogLine], lines: AsyncIterator[LogLine]
) -> tuple[list[LogLine], asyncio.Task[LogLine], bool]:
    """Return what is said within a moment of the first line; an empty batch is a sign of life."""
    batch: list[LogLine] = []
    await asyncio.wait([task], timeout=HEARTBEAT_SECONDS)
    deadline = asyncio.get_running_loop().time() + _BATCH_SECONDS
    while task.done() and len(batch) < _BATCH_LINES:
        try:
            batch.append(task.result())
        except StopAsyncIteration:
            return batch, task, True
        task = asyncio.ensure_future(anext(lines))
        left = deadline - asyncio.get_running_loop().time()
        await asyncio.wait([task], timeout=max(0.0, left))
    return batch, task, False


async def _plain(lines: AsyncIterator[LogLine], secret: tuple[str, ...]) -> AsyncIterator[bytes]:
    try:
        kept: list[str] = []
        async for line in lines:
            kept.append(f"{row(line, secret).time / 1e3:.3f} [{line.source}] {row(line, secret).text}\n")
            if len(kept) >= _BATCH_LINES:
                yield "".join(kept).encode()
                kept.clear()
        yield "".join(kept).encode()
    finally:
        await _closed(lines)


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
    )


def _line(batch: LogBatch) -> bytes:
    return msgspec.json.encode(batch) + b"\n"


async def _closed(lines: AsyncIterator[LogLine]) -> None:
    if close := getattr(lines, "aclose", None):
        await close()
