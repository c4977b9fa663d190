"""Reading users' documents beside the server: bounded in number, time and memory, and never on its event loop.

A document is read in a process of its own (`process`). One that is not done after a moment goes on only while
few others do so, and ends when its time is over. So a document that is made to be slow costs its sender an answer, and
everybody else a moment at most.
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
_KEPT = ("PATH", "LANG", "LC_", "TZ", "COVERAGE_")  # beginnings of the variables that the process gets
_LOCALLY = "read it on your own machine: mpijob plan -f FILE, or mpijob convert FILE"


class ParserProcess:
    """The process that forks a child for each document; started when it is first needed, and anew when it is gone.

    It ends with this process: nobody else holds the other end of its socket.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._starting = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    async def start(self) -> None:
        """See to it that the process is there and has loaded what it needs."""
        if self._process is None or self._process.poll() is not None:
            await asyncio.to_thread(self._start)

    def _start(self) -> None:
        with self._starting:
            if self._process is None or self._process.poll() is not None:
                self._process, self._control = _started()

    async def begin(self, order: Order) -> Reader:
        """Let a child read a document."""
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
        """End the process; the next document starts another."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def kill(self, number: int) -> None:
        """End a child at once."""
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.send(msgspec.msgpack.encode(Work(number)))


class Reader:
    """One document that is being read."""

    def __init__(self, process: ParserProcess, number: int, line: socket.socket) -> None:
        self._process, self._number, self._line = process, number, line
        self._slow = asyncio.Event()
        self._answer = asyncio.ensure_future(self._received())

    async def is_soon_done(self) -> bool:
        """Return whether the answer is there before the child says that it is slow, or says nothing for long."""
        slow = asyncio.ensure_future(self._slow.wait())
        wanted = [self._answer, slow]
        await asyncio.wait(wanted, timeout=rate_limit.PARSE_SOON_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        slow.cancel()
        return self._answer.done()

    async def result(self) -> Result | None:
        """Return the answer; None where the child was ended before it had one."""
        return await self._answer

    async def close(self) -> None:
        """End the child, if it still reads."""
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
    """Who reads next: a few documents at once, one of each user; those of other users do not wait behind them."""

    def __init__(self, process: ParserProcess = PROCESS) -> None:
        self._process = process
        self._users: dict[str, deque[asyncio.Future[None]]] = {}  # who reads or waits, and for what
        self._turns: deque[str] = deque()  # users of whom one waits, in their order
        self._uploads: Counter[str] = Counter()
        self._running = self._slow = self._waiting = 0

    async def start(self) -> None:
        """Be ready before the first document comes."""
        await self._process.start()

    async def encoded(self, user: str, what: str, body: bytes, max_workers: int) -> bytes:
        """Return the JSON of what was made of a body; raise Refused with what is wrong, or with when to come again."""
        async with self._turn(user):
            result = await self._read(Order(what, max_workers, body))
        if result.status != 200:
            raise Refused.told(result.status, codec.decode(result.body, Problem))
        return result.body

    async def decoded(self, user: str, what: str, body: bytes, max_workers: int, kind: type[T]) -> T:
        """Return what was made of a body, as a value."""
        return codec.decode(await self.encoded(user, what, body, max_workers), kind)

    @contextmanager
    def upload(self, user: str) -> Iterator[None]:
        """Hold one of the documents that a user may send at once: each takes memory while it comes."""
        if self._uploads[user] >= rate_limit.PARSES_OF_USER:
            raise _busy(f"{self._uploads[user]} of your uploads are in progress: limit reached", 429)
        with rate_limit.counted(self._uploads, user):
            yield

    async def _read(self, order: Order) -> Result:
        await self._process.start()
        try:
            async with asyncio.timeout(rate_limit.PARSE_SECONDS + rate_limit.PARSE_SOON_SECONDS):
                result = await self._read_in_time(order)
        except TimeoutError as error:  # a child ends by itself: nobody forked one
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
                await self._go_on(reader)
            return await reader.result()
        finally:
            await reader.close()

    async def _go_on(self, reader: Reader) -> None:
        """Let a slow document have its whole time, if not too many do; its place goes to the next one."""
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
        """Wait for the user's turn, and hold it."""
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
    """Start the process with as little of our surroundings as it needs: it reads what strangers wrote."""
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
