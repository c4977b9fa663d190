"""`make soak`: play days of events against controller, operator and recorder; print how their memory grows.

The slope is that of the best line through each hour's measure, the first quarter left out: caches fill then.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench.line import Line, at_most
from bench.record import store, this_run
from bench.report import table
from bench.soak import standin
from bench.soak.day import Day

MOST_MEGABYTES_A_DAY = 1.0
MOST_MEGABYTES_AN_HOUR = 1.0  # what is asked for; the line above is what we want
DAY = 24
DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
SERVICES = {
    "controller": ("controller", "--all-namespaces", "--lease-namespace=mpijob-system"),
    "recorder": ("recorder", "--all-namespaces"),
    "operator": ("operator", "--namespace=mpijob-system", f"--deploy={DEPLOY}"),
}
RESULTS = Path(__file__).parent / "results.json"


def main() -> int:
    """Play, measure, print; return 1 where a service grows by more than is allowed, or jobs were not told."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=int, default=DAY)
    parser.add_argument("--jobs-per-hour", type=int, default=40)
    parser.add_argument("--only", nargs="+", choices=SERVICES, default=[*SERVICES])
    asked = parser.parse_args()
    world = standin.World()
    server = standin.serve(world)
    with tempfile.TemporaryDirectory() as home:
        config = _kubeconfig(Path(home), int(server.server_address[1]))
        running: dict[str, subprocess.Popen[bytes]] = {}
        day = Day(
            world,
            asked.jobs_per_hour,
            operated="operator" in asked.only,
            alive=lambda: all(one.poll() is None for one in running.values()),
        )
        running |= {name: _start(name, home, config) for name in asked.only}
        try:
            sizes, told = _play(day, asked.hours, running, Path(home))
        finally:
            for one in running.values():
                one.kill()
                one.wait()
    wanted = len(next(iter(sizes.values()))) * asked.jobs_per_hour
    lines = [line_of(name, sizes[name], wanted) for name in asked.only]
    print(table(lines))
    print(
        f"{told} of {wanted} jobs were told to their end, {day.looks} looks at the platform; {world.version} changes"
    )
    for line, name in zip(lines, asked.only, strict=True):  # each service is a part: one may be played alone
        store(RESULTS, this_run(name, quick=len(sizes[name]) < DAY), [line])
    return 0 if all(line.must_holds for line in lines) and told == wanted else 1


def _play(
    day: Day, hours: int, running: dict[str, subprocess.Popen[bytes]], home: Path
) -> tuple[dict[str, list[float]], int]:
    sizes: dict[str, list[float]] = {name: [] for name in running}
    told, enough = 0, threading.Event()
    signal.signal(
        signal.SIGTERM, lambda *_: enough.set()
    )  # who has no more time sees what was measured so far
    for hour in range(hours):
        if enough.is_set():
            break
        begun = time.monotonic()
        told += day.hour(hour)
        for name, one in running.items():
            if one.poll() is not None:
                raise SystemExit(_ended(name, one.returncode, home))
            sizes[name].append(_megabytes(one.pid))
        now = ", ".join(f"{name} {sizes[name][-1]:.1f} MB" for name in running)
        print(f"hour {hour + 1}: {time.monotonic() - begun:.1f} s; {now}", file=sys.stderr, flush=True)
    return sizes, told


def _ended(name: str, status: int, home: Path) -> str:
    said = (home / f"{name}.log").read_text(errors="replace").splitlines()[-40:]
    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with {status}"
    return "\n".join([f"the {name} {how}; it said last:", *said])


def _start(name: str, home: str, config: Path) -> subprocess.Popen[bytes]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("MPIJOB_")}
    environ |= {"KUBECONFIG": str(config), "MPIJOB_ENGINE": "kubernetes", "MPIJOB_HOME": f"{home}/{name}"}
    environ["PYTHONFAULTHANDLER"] = "1"
    with Path(home, f"{name}.log").open("wb") as log:
        return subprocess.Popen([sys.executable, "-m", "mpijob", *SERVICES[name]], env=environ, stderr=log)


def _kubeconfig(home: Path, port: int) -> Path:
    named = {"name": "soak"}
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "soak",
        "clusters": [{**named, "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{**named, "user": {}}],
        "contexts": [{**named, "context": {"cluster": "soak", "user": "soak"}}],
    }  # fmt: skip
    path = home / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


def _megabytes(process: int) -> float:
    """Return what a process holds of its own: pages that nobody shares with it."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def line_of(name: str, sizes: list[float], jobs: int) -> Line:
    """Return how a service grew; less than a day shows nothing of what is asked for a day."""
    kept = sizes[len(sizes) // 4 :]
    slope = _slope(kept) * DAY
    note = (
        f"{jobs} jobs in {len(sizes)} h; from {kept[0]:.1f} to {kept[-1]:.1f} MB, at most {max(sizes):.1f} MB"
    )
    goal, must = at_most(MOST_MEGABYTES_A_DAY), at_most(MOST_MEGABYTES_AN_HOUR * DAY)
    rows = ("D-soak",) if len(sizes) >= DAY else ()
    title = f"{name}: memory in {DAY} h of events"
    return Line(title, "MB", slope, MOST_MEGABYTES_A_DAY, slope, goal, must, note, rows=rows)


def _slope(sizes: list[float]) -> float:
    """Return the slope of the best line, for each hour."""
    middle_x, middle_y = (len(sizes) - 1) / 2, sum(sizes) / len(sizes)
    width = sum((x - middle_x) ** 2 for x in range(len(sizes)))
    return sum((x - middle_x) * (y - middle_y) for x, y in enumerate(sizes)) / width if width else 0.0


if __name__ == "__main__":
    sys.exit(main())
