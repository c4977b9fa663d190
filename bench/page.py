"""How fast the page is: `make bench-ui` measures list answers and first loads, and what the page weighs; and of a
server with many visitors how long they wait and what it holds.

Jobs are rows put onto the board directly, so that only the page is measured; the browser is Debian's Chromium.
Numbers of a busy machine say little: run it alone.
"""

from __future__ import annotations

import asyncio
import gzip
import socket
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from tools.browsers import chromium

from bench.board import filled
from bench.line import Line, at_most, bounded, compared
from bench.pagelive import live
from bench.pageload import answers as answered
from bench.pageload import cpu_seconds, percentile, resident_mb, spread, watching
from bench.pageload import serving as started
from bench.record import store, this_run
from bench.report import table
from mpijob import AsyncClient
from mpijob.api.app import application
from mpijob.api.auth.sessions import CookieAuth
from mpijob.api.request_context import AppState
from mpijob.api.static import PLACE
from mpijob.backends.memory import MemoryBackend
from mpijob.settings import Settings

SIZES = (100, 10_000)
ROUNDS = 200
VIEWERS = 200
SESSIONS = 1000
LIST_MS, LOAD_SECONDS, GROWTH, SERVER_MB = 20.0, 2.0, 1.2, 200.0
WEIGHTS_KB = {"js": 220.0, "css": 110.0}
FETCHED: set[str] = set()
RESULTS = Path(__file__).parent / "page-results.json"


@contextmanager
def serving(count: int) -> Iterator[tuple[str, CookieAuth]]:
    """Yield a server whose board holds so many jobs; nothing else changes it."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    gate = CookieAuth("maria", [f"127.0.0.1:{port}"], cookie="session")
    room = AppState(AsyncClient(MemoryBackend(), settings=Settings(home="/nowhere")), gate)
    room.limits.count = lambda user: None  # type: ignore[method-assign]  # one visitor stands for many here
    config = uvicorn.Config(application(room), log_level="error", lifespan="off", timeout_graceful_shutdown=0)
    server = uvicorn.Server(config)

    async def main() -> None:
        await filled(room, count)
        room.job_index._everywhere = True
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


def answers(base: str, gate: CookieAuth) -> list[float]:
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


def loads(base: str, gate: CookieAuth, rounds: int = 5) -> list[float]:
    """Return the seconds from opening the address until rows are seen; the first time says what was fetched."""
    taken: list[float] = []
    with chromium() as browser:
        for _ in range(rounds):
            page = browser.new_context().new_page()
            if not taken:
                page.on("response", _note)
            begun = time.perf_counter()
            page.goto(f"{base}/#token={gate.invite()}")
            page.locator("tr[data-job]").first.wait_for()
            taken.append(time.perf_counter() - begun)
            page.context.close()
    return taken


async def crowd(base: str, pid: int, jobs: int) -> list[Line]:
    """Open streams of many people and let many others ask; return what they wait for and what it takes."""
    people = [{"x-forwarded-access-token": f"{number}-token"} for number in range(SESSIONS)]
    empty = resident_mb(pid)
    streams = await asyncio.gather(*(watching(base, one) for one in people[:VIEWERS]))
    found = [Line("page: event streams open at once", "streams", len(streams), note="in one process")]
    told = sorted([await spread(base, streams[::20], people[0], f"fresh-{n}") for n in range(5)])
    note = "median; held back 250 ms"
    found.append(Line("page: a new job reaches all who may see it", "ms", told[2] * 1e3, note=note))
    same, others = ["/trainjobs"] * SESSIONS, [f"/trainjobs?since={n}" for n in range(SESSIONS)]
    for what, paths, at_once in (
        ("come in", same, 8),
        ("ask again", same, 8),
        ("ask, each something else", others, 1),
    ):
        before = cpu_seconds(pid)
        taken = await answered(base, people, paths, at_once)
        busy = (cpu_seconds(pid) - before) / SESSIONS
        note = f"p50 {percentile(taken, 0.5) * 1e3:.1f} ms; the server computes {busy * 1e3:.1f} ms for each"
        title = f"page: {SESSIONS} sessions {what}, {at_once} at once, p99"
        found.append(Line(title, "ms", percentile(taken, 0.99) * 1e3, note=note))
    note = f"{jobs} jobs, {VIEWERS} viewers, {SESSIONS} sessions; {empty:.0f} MB before anybody came"
    return [*found, bounded("page: memory of the server", "MB", resident_mb(pid), SERVER_MB, note)]


def seen(count: int) -> Iterator[Line]:
    """Yield how fast a list is answered and first seen, with so many jobs; the last line is of the first load."""
    with serving(count) as (base, gate):
        taken = sorted(answers(base, gate))
        note = f"p50 {taken[len(taken) // 2] * 1e3:.1f} ms"
        yield bounded(f"page: list of {count} jobs, p99", "ms", taken[-3] * 1e3, LIST_MS, note)
        loaded = loads(base, gate)
        note = f"median of {len(loaded)}, Debian's Chromium"
        rows = ("SC-003",) if count == SIZES[0] else ()
        title, median = f"page: first load with {count} jobs", statistics.median(loaded)
        yield bounded(title, "s", median, LOAD_SECONDS, note, rows)


def weights() -> Iterator[Line]:
    """Yield what was fetched until the list was seen."""
    files = [path for path in PLACE.rglob("*") if path.name in FETCHED]
    for kind, most in WEIGHTS_KB.items():
        size = sum(len(gzip.compress(path.read_bytes(), 9)) for path in files if path.suffix == f".{kind}")
        yield bounded(f"page: fetched until the list is seen, {kind}", "kB", size / 1000, most, "gzip")


def grown() -> Iterator[Line]:
    """Yield what is seen of few and of many jobs, and how much longer the first load of many takes."""
    first: list[float] = []
    for count in SIZES:
        lines = [*seen(count)]
        first.append(lines[-1].ours)
        yield from lines
    yield compared(
        f"page: first load, {SIZES[-1]} jobs to {SIZES[0]}",
        "s",
        first[-1],
        first[0],
        at_most(GROWTH),
        note="same run",
    )


def main() -> int:
    """Measure, print and record; `--server` leaves the browser out."""
    browser = sys.argv[1:] != ["--server"]
    lines = [*grown(), *weights(), *live()] if browser else []
    if browser:
        store(RESULTS, this_run("browser", quick=False), lines)
    with started("bench.pageserver", str(SIZES[-1])) as (base, pid):
        served = asyncio.run(crowd(base, pid, SIZES[-1]))
    store(RESULTS, this_run("server", quick=False), served)
    print(table([*lines, *served]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
