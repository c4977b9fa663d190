"""What flows: numbered changes that can be taken up again, and the real server on a real socket."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import msgspec
import pytest
import uvicorn

from mpijob import AsyncClient, MPIJob
from mpijob.api import errors
from mpijob.api.app import application
from mpijob.api.auth import rate_limit
from mpijob.api.auth.sessions import CookieAuth
from mpijob.api.live import job_index as boards
from mpijob.api.live import list_query
from mpijob.api.live import sse as streams
from mpijob.api.live.job_index import JobIndex
from mpijob.api.request_context import AppState
from mpijob.api.schemas.job_schemas import ListQuery
from mpijob.api.server import config
from mpijob.backends.capabilities import SupportsWatchAll
from mpijob.backends.memory import MemoryBackend
from mpijob.errors import BackendError
from mpijob.model import JobRef, LogLine, Role
from mpijob.model.status.job_change import Heard, Overseen
from mpijob.settings import Settings


def a_job(name: str, **labels: str) -> MPIJob:
    return MPIJob(
        name=name, workers=2, command=("true",), labels=labels or {"memory.mpijob/outcome": "hangs"}
    )


def a_client() -> AsyncClient:
    return AsyncClient(MemoryBackend(), settings=Settings(home="/nowhere"))


def test_who_comes_back_gets_what_is_missing_and_no_more() -> None:
    async def story() -> None:
        client = a_client()
        board = JobIndex(client)
        for name in ("one", "two"):
            board.see((await client.submit(a_job(name))).last)
        seen = board.rev
        assert board.since(seen) == (seen, (), (), True)
        board.see((await client.submit(a_job("three"))).last)
        board.forget(JobRef("default", "one"))
        change = board.since(seen)
        assert change.whole
        assert [row.name for row in change.upsert] == ["three"]
        assert len(change.delete) == 1

    asyncio.run(story())


@pytest.mark.parametrize("rev", ["", "other-3", "{epoch}-999", "{epoch}-x", "{epoch}-0"])
def test_who_saw_another_server_or_too_old_a_change_is_told_to_fetch_anew(rev: str) -> None:
    async def story() -> None:
        client = a_client()
        board = JobIndex(client)
        board._changes = type(board._changes)(maxlen=2)
        for name in ("a", "b", "c", "d"):
            board.see((await client.submit(a_job(name))).last)
        change = board.since(rev.format(epoch=board.rev.partition("-")[0]))
        assert (change.whole, change.upsert, change.rev) == (False, (), board.rev)

    asyncio.run(story())


def test_a_job_that_is_gone_stays_gone_although_a_watch_tells_of_it_late() -> None:
    async def story() -> None:
        client = a_client()
        board = JobIndex(client)
        late = (await client.submit(a_job("one"))).last
        board.see(late)
        board.forget(late.ref)
        board.see(late)
        assert board.rows == ()

    asyncio.run(story())


@pytest.mark.thorough
def test_the_board_sees_what_others_do_and_what_they_remove() -> None:
    async def story() -> None:
        client = a_client()
        await client.submit(a_job("before"))
        board = JobIndex(client)
        await board.start()
        try:
            await client.submit(a_job("after"))
            await until(lambda: {row.name for row in board.rows} == {"before", "after"})
            await client.delete("before")
            await until(lambda: len(board.rows) == 1)
            assert [row.name for row in board.rows] == ["after"]
        finally:
            await board.stop()

    asyncio.run(story())


async def until(look: Any, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


# -- over a real socket ---------------------------------------------------------------------------
class Server:
    """The real server in a thread, and a visitor who is signed in."""

    def __init__(self, port: int, gate: CookieAuth, room: AppState) -> None:
        self.port, self.room = port, room
        self.base = f"http://127.0.0.1:{port}"
        secret, self.visitor = gate.enter(gate.invite())
        self.headers = {"cookie": f"{gate.cookie}={secret}", "x-mpijob-csrf": self.visitor.csrf}

    def open(self, path: str, body: Any = None, **headers: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        kind = {} if body is None else {"content-type": "application/json"}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"{self.base}/api/v1{path}", data, {**self.headers, **kind, **named})
        return urllib.request.urlopen(request, timeout=20)

    def create(self, name: str, **fields: Any) -> None:
        job = {"name": name, "workers": 2, "command": ["true"], "labels": {"memory.mpijob/outcome": "hangs"}}
        self.open("/trainjobs", {"job": {**job, **fields}}).read()


@contextmanager
def serving(now: Callable[[], float] = time.time) -> Iterator[Server]:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    gate = CookieAuth("maria", [f"127.0.0.1:{port}"], cookie="session", now=now)
    room = AppState(a_client(), gate)
    server = uvicorn.Server(config(application(room)))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])), daemon=True)
    thread.start()
    try:
        yield Server(port, gate, room)
    finally:
        server.should_exit = True
        thread.join(10)


def event(stream: Any) -> tuple[str, dict[str, Any]]:
    """Return the next event of a stream: its name and data."""
    name, data = "", None
    while line := stream.readline().decode().rstrip("\n"):
        key, _, value = line.partition(": ")
        name = value if key == "event" else name
        data = json.loads(value) if key == "data" else data
    return (name, data) if data is not None else event(stream)


@pytest.mark.thorough
@pytest.mark.req("D-api", "FR-020")
def test_a_change_reaches_an_open_page_and_one_that_comes_back() -> None:
    with serving() as server:
        stream = server.open("/stream")
        name, first = event(stream)
        assert (name, first["upsert"]) == ("beat", [])
        begun = time.monotonic()
        server.create("fresh")
        name, told = event(stream)
        assert time.monotonic() - begun < 5
        assert (name, told["upsert"][0]["name"]) == ("change", "fresh")
        stream.close()
        again = server.open("/stream", last_event_id=first["rev"])
        name, missed = event(again)
        assert (name, missed["upsert"][0]["name"]) == ("change", "fresh")
        other = server.open("/stream", last_event_id="elsewhere-7")
        assert event(other)[0] == "reset"


@pytest.mark.thorough
def test_lines_flow_while_the_job_speaks() -> None:
    with serving() as server:
        server.create("talk", command=["sh", "-c", "echo one; echo two"], labels={})
        stream = server.open("/trainjobs/default/talk/logs?follow=true&ranks=0")
        assert stream.headers["content-type"] == "application/x-ndjson"
        said = [line["text"] for batch in stream for line in json.loads(batch)["lines"]]
        assert said == ["one", "two"]


@pytest.mark.security
def test_an_upgrade_to_a_websocket_is_refused() -> None:
    with serving() as server:
        wanted = {"connection": "Upgrade", "upgrade": "websocket", "sec_websocket_version": "13",
                  "sec_websocket_key": "dGhlIHNhbXBsZSBub25jZQ=="}  # fmt: skip
        with pytest.raises(urllib.error.HTTPError) as caught, server.open("/trainjobs", {}, **wanted):
            pass
        assert caught.value.code in (400, 403, 404, 426)


@pytest.mark.thorough
def test_a_reader_who_leaves_ends_the_reading(caplog: pytest.LogCaptureFixture) -> None:
    before = {thread.name for thread in threading.enumerate()}
    with serving() as server:
        server.create("silent")
        for _ in range(3):
            stream = server.open("/trainjobs/default/silent/logs?follow=true")
            stream.close()
        assert server.open("/health").status == 200
    assert "Traceback" not in caplog.text
    assert len({thread.name for thread in threading.enumerate()} - before) <= 3


@pytest.mark.thorough
def test_a_slow_reader_holds_the_log_back_and_gets_every_line() -> None:
    async def story() -> None:
        async def many() -> AsyncIterator[LogLine]:
            for number in range(25_000):
                yield LogLine(time=number, text=b"x", role=Role.RANK, rank=0)

        feed = streams.Feed(many())
        await feed.ready(1.0)
        assert len(feed._kept) == streams._AHEAD_LINES
        taken = [line.time async for batch in feed.batches() for line in batch]
        assert taken == list(range(25_000))

    asyncio.run(story())


class Reader:
    """Somebody who reads a log, as far as a stream asks about them."""

    ref = JobRef("default", "talk")

    def __init__(self, refusal: errors.Refused | None = None) -> None:
        self._refusal = refusal

    async def still_here(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    async def check(self, namespace: str, *, logs: bool = False) -> None:
        assert (namespace, logs) == ("default", True)

    def stream(self) -> AbstractContextManager[None]:
        return nullcontext()


def told(how: Any, reader: Reader, lines: AsyncIterator[LogLine]) -> str:
    """Return all that a stream of these lines says."""

    async def story() -> str:
        said = [one async for one in how(reader, streams.OpenLog(streams.Feed(lines), ()))]
        return "\n".join(one.decode() if isinstance(one, bytes) else str(one.data) for one in said)

    return asyncio.run(story())


async def some_lines(count: int, trouble: Exception | None = None) -> AsyncIterator[LogLine]:
    for number in range(count):
        yield LogLine(time=number, text=f"line {number}!".encode(), role=Role.RANK, rank=0)
        await asyncio.sleep(0.01)
    if trouble is not None:
        raise trouble


@pytest.mark.thorough
@pytest.mark.security
@pytest.mark.parametrize("how", [streams.log_flow, streams._plain])
def test_a_log_that_is_followed_ends_with_the_login(how: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "FRESH_SECONDS", -1.0)
    gone = Reader(errors.Refused(401, "you are not signed in"))
    said = told(how, gone, some_lines(3))
    assert "you are not signed in" in said
    assert "line 0!" not in said
    assert "line 2!" in told(how, Reader(), some_lines(3))


@pytest.mark.thorough
@pytest.mark.parametrize("how", [streams.log_flow, streams._plain])
def test_a_log_that_breaks_off_for_any_reason_is_not_told_as_complete(
    how: Any, caplog: pytest.LogCaptureFixture
) -> None:
    said = told(how, Reader(), some_lines(3, ValueError("a torn file")))
    assert "line 2!" in said
    assert "this is a bug in mpijob" in said
    assert "a torn file" not in said
    assert "ValueError: a torn file" in caplog.text
    assert "no such pod" in told(how, Reader(), some_lines(3, BackendError("no such pod")))


@pytest.mark.thorough
@pytest.mark.security
def test_a_stream_too_many_is_refused_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit, "STREAMS", 1)
    with serving() as server:
        first = server.open("/stream")
        event(first)
        with pytest.raises(urllib.error.HTTPError) as caught, server.open("/stream"):
            pass
        assert (caught.value.code, json.load(caught.value)["code"]) == (429, "USAGE")


@pytest.mark.thorough
def test_many_viewers_come_and_go_without_a_trace(caplog: pytest.LogCaptureFixture) -> None:
    with serving() as server:
        streams = [server.open("/stream") for _ in range(30)]
        for one in streams:
            event(one)
        server.create("news")
        assert {event(one)[0] for one in streams} == {"change"}
        for one in streams:
            one.close()
        server.create("more")
        assert server.open("/health").status == 200
    assert "Traceback" not in caplog.text


@pytest.mark.security
def test_a_job_that_claims_the_uid_of_another_namespace_hides_nothing_there() -> None:
    async def story() -> None:
        client = a_client()
        board = JobIndex(client)
        mine = (await client.submit(a_job("mine"))).last
        board.see(mine)
        forged = msgspec.structs.replace(mine, ref=JobRef("elsewhere", "forged", mine.ref.uid))
        before = board.rev
        board.see(forged)
        assert sorted(row.name for row in board.rows) == ["forged", "mine"]
        board.forget(forged.ref)
        assert [row.name for row in board.rows] == ["mine"]
        theirs = board.since(before, lambda scope, there: scope[0] == "default")
        assert (theirs.upsert, theirs.delete) == ((), ())

    asyncio.run(story())


@pytest.mark.req("FR-018")
def test_jobs_of_other_kinds_stand_beside_each_other_though_they_share_a_name() -> None:
    async def story() -> None:
        client = a_client()
        board = JobIndex(client)
        state = (await client.submit(a_job("train"))).last
        for kind in ("PyTorchJob", "TFJob"):
            ref = JobRef("default", "train", kind)
            board.see(msgspec.structs.replace(state, ref=ref, kind=kind, engine="training-operator"))
        board.see(state)
        found = {(row.kind, row.name) for row in board.rows}
        assert found == {("PyTorchJob", "train"), ("TFJob", "train"), ("MPIJob", "train")}
        page = list_query.page(board.rows, ListQuery(type=("TFJob",)), rev=board.rev, now=0.0)
        assert [(row.kind, page.types) for row in page.items] == [
            ("TFJob", ("MPIJob", "PyTorchJob", "TFJob"))
        ]

    asyncio.run(story())


def test_rows_of_a_scope_that_came_meanwhile_are_not_shown() -> None:
    async def story() -> None:
        client = a_client()
        board = JobIndex(client)
        board.see((await client.submit(a_job("one"))).last)
        allowed = board.scopes
        other = msgspec.structs.replace(board.rows[0], uid="u2", name="two", namespace="elsewhere")
        board._put(other)
        board.forget(JobRef("default", "one"))
        assert len(board.scopes) == len(allowed)
        assert board.rows_in(allowed) == ()

    asyncio.run(story())


@pytest.mark.thorough
def test_the_age_of_what_is_seen_grows_while_the_engine_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards, "_CHECK_SECONDS", 0.05)
    monkeypatch.setattr(boards, "_AGAIN_SECONDS", 0.05)

    class Silent(MemoryBackend, SupportsWatchAll):
        """An engine that tells everything by itself, and then has trouble."""

        def watch_all(self, namespace: str) -> Iterator[Overseen]:
            yield Heard()
            while True:
                threading.Event().wait(0.01)  # a plain engine: it blocks its thread
                yield Heard(BackendError("the API server cannot be reached"))

    async def story() -> None:
        board = JobIndex(AsyncClient(Silent(), settings=Settings(home="/nowhere")))
        await board.start()
        try:
            await until(lambda: board.trouble is not None)
            seen = board.seen
            await asyncio.sleep(0.3)  # time enough for the other work, which has not heard of it either
            assert (board.seen, board.ready) == (seen, True)
            assert board.trouble is not None
        finally:
            await board.stop()

    asyncio.run(story())
