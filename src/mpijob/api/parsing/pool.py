"""Parse users' documents outside the server process, bounded in number, time and memory.

A document is parsed in a child process of its own (see `process`). One that is not done after a moment counts
as slow; few slow ones run at a time, and each has a time limit. So a document that is built to be slow costs
its sender an error, and other users a moment at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import msgspec

from mpijob import codec
from mpijob.api.auth import rate_limit
from mpijob.api.errors import Refused
from mpijob.api.parsing.process import SLOW, Order, Result, Work
from mpijob.api.schemas.job_schemas import Problem

T = TypeVar("T")
_START_SECONDS = 60.0
# Prefixes of the environment variables that the process inherits.
_KEPT = ("PATH", "LANG", "LC_", "TZ", "COVERAGE_")
_LOCALLY = "read it on your own machine: mpijob plan -f FILE, or mpijob convert FILE"


class ParserProcess:
    """The process that forks a child for each document, started at the first one, and again when it has
    ended.

    It ends with this process, which holds the only other end of its control socket.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._starting = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    async def start(self) -> None:
        """Start the process if it does not run; returns when it has loaded its imports."""
        if self._process is None or self._process.poll() is not None:
            await asyncio.to_thread(self._start)

    def _start(self) -> None:
        with self._starting:
            if self._process is None or self._process.poll() is not None:
                self._process, self._control = _started()

    async def begin(self, order: Order) -> Reader:
        """Fork a child and send it a document."""
        await self.start()
        assert self._control is not None
        number = next(self._numbers)
        ours, theirs = socket.socketpair()
        try:
            message = msgspec.msgpack.encode(
                Work(number, rate_limit.PARSE_SECONDS, rate_limit.PARSE_SOON_CPU_SECONDS)
            )
            with theirs:
                socket.send_fds(self._control, [message], [theirs.fileno()])
            ours.setblocking(False)
            await asyncio.get_running_loop().sock_sendall(ours, _framed(order))
        except OSError as error:
            ours.close()
            raise _silent() from error
        except BaseException:
            ours.close()
            raise
        return Reader(self, number, ours)

    def stop(self) -> None:
        """Kill the process; the next document starts another."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def kill(self, number: int) -> None:
        """Kill one child."""
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.send(msgspec.msgpack.encode(Work(number)))


class Reader:
    """One document that a child parses."""

    def __init__(self, process: ParserProcess, number: int, line: socket.socket) -> None:
        self._process, self._number, self._line = process, number, line
        self._slow = asyncio.Event()
        self._answer = asyncio.ensure_future(self._received())

    async def is_soon_done(self) -> bool:
        """Return whether the result arrives before the child reports that it is slow, or the time is over."""
        slow = asyncio.ensure_future(self._slow.wait())
        wanted = [self._answer, slow]
        await asyncio.wait(wanted, timeout=rate_limit.PARSE_SOON_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        slow.cancel()
        return self._answer.done()

    async def result(self) -> Result | None:
        """Return the result; None if the child ended without one."""
        return await self._answer

    async def close(self) -> None:
        """Kill the child if it is still running."""
        if not self._answer.done():
            self._process.kill(self._number)
            self._answer.cancel()
            await asyncio.wait([self._answer])
        self._line.close()

    async def _received(self) -> Result | None:
        head = await self._exactly(4)
        if head == SLOW:
            self._slow.set()
            head = await self._exactly(4)
        size = int.from_bytes(head, "big")
        if len(head) < 4 or size > rate_limit.PARSED_BYTES:
            self._process.kill(self._number)
            return None
        body = await self._exactly(size)
        return msgspec.msgpack.decode(body, type=Result) if len(body) == size else None

    async def _exactly(self, size: int) -> bytes:
        loop, taken = asyncio.get_running_loop(), bytearray()
        while len(taken) < size:
            try:
                data = await loop.sock_recv(self._line, min(1 << 16, size - len(taken)))
            except ConnectionError:
                break
            if not data:
                break
            taken += data
        return bytes(taken)


PROCESS = ParserProcess()


class Parsers:
    """Fair scheduling of documents: a few at a time, one of each user, users in turn."""

    def __init__(self, process: ParserProcess = PROCESS) -> None:
        self._process = process
        # The documents of each user; the first one is parsed or next.
        self._users: dict[str, deque[asyncio.Future[None]]] = {}
        # Users whose first document waits, in order.
        self._turns: deque[str] = deque()
        self._uploads: Counter[str] = Counter()
        self._running = self._slow = self._waiting = 0

    async def start(self) -> None:
        """Start the process before the first document arrives."""
        await self._process.start()

    async def encoded(self, user: str, what: str, body: bytes, max_workers: int) -> bytes:
        """Return the JSON of a parsed document; raise Refused with its errors, or with when to retry."""
        async with self._turn(user):
            result = await self._read(Order(what, max_workers, body))
        if result.status != 200:
            raise Refused.from_problem(result.status, codec.decode(result.body, Problem))
        return result.body

    async def decoded(self, user: str, what: str, body: bytes, max_workers: int, kind: type[T]) -> T:
        """Return the parsed document as a value."""
        return codec.decode(await self.encoded(user, what, body, max_workers), kind)

    @contextmanager
    def upload(self, user: str) -> Iterator[None]:
        """Count one of the documents that a user may upload at a time: each takes memory while it arrives."""
        if self._uploads[user] >= rate_limit.PARSES_OF_USER:
            raise _busy(f"{self._uploads[user]} of your uploads are in progress: limit reached", 429)
        with rate_limit.counted(self._uploads, user):
            yield

    async def _read(self, order: Order) -> Result:
        await self._process.start()
        try:
            async with asyncio.timeout(rate_limit.PARSE_SECONDS + rate_limit.PARSE_SOON_SECONDS):
                result = await self._read_in_time(order)
        # Children end by their own limits, so the process that forks them hangs: it is replaced.
        except TimeoutError as error:
            self._process.stop()
            raise _silent() from error
        if result is None:
            what = f"the document takes more than {rate_limit.PARSE_SECONDS:g} s or too much memory to read"
            raise Refused(422, what, _LOCALLY, code="TOO_SLOW")
        return result

    async def _read_in_time(self, order: Order) -> Result | None:
        reader = await self._process.begin(order)
        try:
            if not await reader.is_soon_done():
                await self._continue_slow(reader)
            return await reader.result()
        finally:
            await reader.close()

    async def _continue_slow(self, reader: Reader) -> None:
        """Give a slow document its full time, if few others are slow; its regular slot is freed for the next one."""
        if self._slow >= rate_limit.PARSES_SLOW:
            raise _busy("the server is busy parsing other large documents")
        self._slow += 1
        self._running -= 1
        self._next()
        try:
            await reader.result()
        finally:
            self._slow -= 1
            self._running += 1

    @asynccontextmanager
    async def _turn(self, user: str) -> AsyncIterator[None]:
        """Hold the user's turn while the context is open, after waiting for it."""
        if len(self._users.get(user, ())) >= rate_limit.PARSES_OF_USER:
            raise _busy(f"{rate_limit.PARSES_OF_USER} of your documents are being parsed: limit reached", 429)
        if self._waiting >= rate_limit.PARSES_WAITING:
            raise _busy("the parse queue is full")
        own = self._users.setdefault(user, deque())
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        own.append(place)
        if len(own) == 1:
            self._turns.append(user)
        self._waiting += 1
        self._next()
        try:
            await place
            yield
        finally:
            self._leave(user, place)

    def _next(self) -> None:
        while self._turns and self._running < rate_limit.PARSES_AT_ONCE:
            place = self._users[self._turns.popleft()][0]
            if not place.done():
                place.set_result(None)
                self._running += 1
                self._waiting -= 1

    def _leave(self, user: str, place: asyncio.Future[None]) -> None:
        own, first = self._users[user], self._users[user][0] is place
        if place.done() and not place.cancelled():
            self._running -= 1
        else:
            self._waiting -= 1
        own.remove(place)
        if first and user in self._turns:
            self._turns.remove(user)
        if first and own:
            self._turns.append(user)
        if not own:
            del self._users[user]
        self._next()


def _busy(message: str, status: int = 503) -> Refused:
    return Refused(
        status, message, "try again in a moment", code="BUSY", retry_after=rate_limit.RETRY_SECONDS
    )


def _silent() -> Refused:
    return _busy("the process that reads documents does not answer")


def _framed(order: Order) -> bytes:
    made = msgspec.msgpack.encode(order)
    return len(made).to_bytes(4, "big") + made


def _started() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start the process with a minimal environment: it parses untrusted documents, and must not know this
    one's secrets.
    """
    # SOCK_SEQPACKET keeps messages apart, and file descriptors with theirs.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    kept = {name: value for name, value in os.environ.items() if name.startswith(_KEPT)}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "mpijob.api.parsing.process", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={
                **kept,
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                "HOME": "/nonexistent",
            },
            cwd="/",
        )
    ours.settimeout(_START_SECONDS)
    if not ours.recv(16):
        raise _busy("the parser process did not start")
    ours.setblocking(False)
    return process, ours
