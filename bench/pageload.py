"""Many visitors of a page's server at once, by one event loop: open streams, and questions in a row."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

Headers = Mapping[str, str]


class Stream(NamedTuple):
    """An open stream of changes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


def _request(base: str, method: str, path: str, headers: Headers, body: bytes = b"") -> bytes:
    lines = [f"{method} /api/v1{path} HTTP/1.1", f"Host: {urlsplit(base).netloc}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"Content-Length: {len(body)}", "Content-Type: application/json"] if body else []
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


@contextmanager
def serving(*argv: str, env: Mapping[str, str] | None = None) -> Iterator[tuple[str, int]]:
    """Start a server of a page, `python -m ARGV…`, and yield the address that it prints and its process id."""
    process = subprocess.Popen([sys.executable, "-m", *argv], stdout=subprocess.PIPE, text=True, env=env)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.kill()
        process.wait(20)


async def connected(base: str) -> Stream:
    """Return a connection to the server."""
    place = urlsplit(base)
    return Stream(*await asyncio.open_connection(place.hostname, place.port))


async def asked(
    line: Stream, base: str, method: str, path: str, headers: Headers, body: bytes = b""
) -> bytes:
    """Return the body of an answer; raise for one that is no good."""
    line.writer.write(_request(base, method, path, headers, body))
    head = await line.reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    length = next(int(one[15:]) for one in head.lower().split(b"\r\n") if one.startswith(b"content-length:"))
    said = await line.reader.readexactly(length)
    if status >= 400:
        raise RuntimeError(f"{method} {path}: {status} {said[:200]!r}")
    return said


async def watching(base: str, headers: Headers) -> Stream:
    """Open a stream of changes and wait for its first word."""
    line = await connected(base)
    line.writer.write(_request(base, "GET", "/stream", headers))
    await told(line, b"event:")
    return line


async def told(line: Stream, word: bytes, seconds: float = 60.0) -> float:
    """Wait until a stream says a line that begins with, or holds, a word; return when."""
    async with asyncio.timeout(seconds):
        while word not in (said := await line.reader.readline()):
            if not said:
                raise RuntimeError("the stream ended before it said anything")
    return time.perf_counter()


async def answers(base: str, visitors: Sequence[Headers], paths: Sequence[str], at_once: int) -> list[float]:
    """Return the seconds of one question of each visitor, so many asked at the same time."""
    waiting = list(zip(visitors, paths, strict=True))[::-1]
    taken: list[float] = []

    async def hand() -> None:
        line = await connected(base)
        while waiting:
            headers, path = waiting.pop()
            begun = time.perf_counter()
            await asked(line, base, "GET", path, headers)
            taken.append(time.perf_counter() - begun)
        line.writer.close()

    await asyncio.gather(*(hand() for _ in range(at_once)))
    return sorted(taken)


async def spread(base: str, streams: Sequence[Stream], headers: Headers, name: str) -> float:
    """Create a job and return the seconds until the last of the streams has told of it."""
    line = await connected(base)
    word = json.loads(await asked(line, base, "GET", "/session", headers))["csrf"]
    job = {"name": name, "namespace": "team-0", "workers": 2, "command": ["true"]}
    begun = time.perf_counter()
    heard = [asyncio.create_task(told(one, f'"{name}"'.encode())) for one in streams]
    body = json.dumps({"job": job}).encode()
    await asked(line, base, "POST", "/trainjobs", {**headers, "x-mpijob-csrf": word}, body)
    line.writer.close()
    return max(await asyncio.gather(*heard)) - begun


def resident_mb(pid: int) -> float:
    """Return how much memory a process holds now."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        held = next(line.split()[1] for line in file if line.startswith("VmRSS:"))
    return int(held) * 1024 / 1e6


def cpu_seconds(pid: int) -> float:
    """Return how long a process has computed."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value that so many of the values are not above."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
