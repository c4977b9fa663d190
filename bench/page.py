"""How fast the page is: `make bench-ui` prints the times of list answers and of first loads, and what the page weighs.

Jobs are rows put onto the board directly, so that only the page is measured; the browser is Debian's Chromium.
Numbers of a busy machine say little: run it alone.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import resource
import shutil
import socket
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import uvicorn

from mpijob import AsyncClient, MPIJob
from mpijob.api import limits, rows
from mpijob.api.app import application
from mpijob.api.asking import Room
from mpijob.api.gate import Gate
from mpijob.api.pages import PLACE
from mpijob.backends.memory import MemoryBackend
from mpijob.model import Phase
from mpijob.settings import Settings

SIZES = (100, 10_000)
ROUNDS = 200
VIEWERS = 200
FETCHED: set[str] = set()


async def _filled(room: Room, count: int) -> None:
    state = (await room.client.submit(MPIJob(name="seed", workers=4, command=("true",)))).last
    row = msgspec.structs.replace(rows.row(state), why="Rank 1 on worker 1 exited with code 7.")
    phases = tuple(Phase)
    made = [
        msgspec.structs.replace(
            row, uid=f"u{n:06}", name=f"job-{n}", namespace=f"team-{n % 20}", owner=f"user-{n % 50}",
            phase=phases[n % len(phases)], created=row.created + n,
        )
        for n in range(count)
    ]  # fmt: skip
    room.board._everywhere = True
    room.board._put(*made)


@contextmanager
def serving(count: int) -> Iterator[tuple[str, Gate]]:
    """Yield a server whose board holds so many jobs; nothing else changes it."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    gate = Gate("maria", [f"127.0.0.1:{port}"], cookie="session")
    room = Room(AsyncClient(MemoryBackend(), settings=Settings(home="/nowhere")), gate)
    room.limits.count = lambda user: None  # type: ignore[method-assign]  # one visitor stands for many here
    config = uvicorn.Config(application(room), log_level="error", lifespan="off", timeout_graceful_shutdown=0)
    server = uvicorn.Server(config)

    async def main() -> None:
        await _filled(room, count)
        await server.serve(sockets=[listening])

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}", gate
    finally:
        server.should_exit = True
        thread.join(10)


def answers(base: str, gate: Gate) -> list[float]:
    """Return the seconds of many list answers, each another question so that none is remembered."""
    secret, _ = gate.enter(gate.invite())
    taken = []
    for number in range(ROUNDS):
        request = urllib.request.Request(
            f"{base}/api/v1/trainjobs?since={number}", headers={"cookie": f"session={secret}"}
        )
        begun = time.perf_counter()
        urllib.request.urlopen(request, timeout=30).read()
        taken.append(time.perf_counter() - begun)
    return taken


def _note(answer: Any) -> None:
    FETCHED.add(answer.url.rpartition("/")[2])


def loads(base: str, gate: Gate, rounds: int = 5) -> list[float]:
    """Return the seconds from opening the address until rows are seen; the first time says what was fetched."""
    from playwright.sync_api import sync_playwright

    taken: list[float] = []
    with sync_playwright() as playwright:
        chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        for _ in range(rounds):
            page = browser.new_context().new_page()
            if not taken:
                page.on("response", _note)
            begun = time.perf_counter()
            page.goto(f"{base}/#token={gate.invite()}")
            page.locator("tr[data-job]").first.wait_for()
            taken.append(time.perf_counter() - begun)
            page.context.close()
        browser.close()
    return taken


def viewers(base: str, gate: Gate) -> int:
    """Return how many event streams are open at once and have each had their first event."""
    limits.STREAMS = VIEWERS  # they are one user here
    secret, _ = gate.enter(gate.invite())
    request = urllib.request.Request(f"{base}/api/v1/stream", headers={"cookie": f"session={secret}"})
    streams = [urllib.request.urlopen(request, timeout=30) for _ in range(VIEWERS)]
    told = 0
    for stream in streams:
        while not (line := stream.readline()).startswith(b"event:"):
            assert line
        told += 1
    for stream in streams:
        stream.close()
    return told


def main() -> None:
    """Measure and print."""
    for count in SIZES:
        with serving(count) as (base, gate):
            taken = sorted(answers(base, gate))
            print(
                f"list of {count} jobs: p50 {taken[len(taken) // 2] * 1e3:.1f} ms, p99 {taken[-3] * 1e3:.1f} ms"
            )
            seen = loads(base, gate)
            print(f"first load with {count} jobs: median {statistics.median(seen):.2f} s of {len(seen)}")
            if count == SIZES[-1]:
                print(f"event streams open at once: {viewers(base, gate)}")
    files = [path for path in PLACE.rglob("*") if path.name in FETCHED]
    for kind in ("js", "css"):
        size = sum(len(gzip.compress(path.read_bytes(), 9)) for path in files if path.suffix == f".{kind}")
        print(f"fetched until the list is seen, {kind}: {size / 1000:.0f} kB gzip")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"memory of server and measuring together: {memory:.0f} MiB; Python {sys.version_info[0]}.{sys.version_info[1]}"
    )


if __name__ == "__main__":
    main()
