"""Measure the network between workers by a short job; and show the MPI traffic of a job.

Results are stored by machine, so that a machine that was slow last week is known.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mpijob import codec
from mpijob.errors import JobFailed, NotFound
from mpijob.model import Code, MPIJob, Phase
from mpijob.observation.health import mpi_monitoring, network_probe
from mpijob.observation.health.mpi_monitoring import MpiTraffic
from mpijob.observation.health.network_probe import Matrix

if TYPE_CHECKING:
    from mpijob.client.base import Target
    from mpijob.client.client import Client

_SCRIPT = Path(__file__).parent / "probes" / "network.py"
_FILE = "network_probe.py"
# Each pair is measured alone: 64 workers have two thousand pairs, which take minutes.
MOST_WORKERS = 64


class Seen(msgspec.Struct, frozen=True):
    """A stored result: the links of a machine at one time."""

    time: float
    place: str
    machine: str
    links: int
    slow: int
    latency_us: float
    bandwidth_mb: float


def job(like: MPIJob) -> MPIJob:
    """Return the probe on workers as the job would have: one rank each."""
    return like.replace(
        slots=1,
        ranks=None,
        programs=(),
        command=("python3", _FILE),
        args=(),
        code=Code(files={_FILE: _SCRIPT.read_text(encoding="utf-8")}),
    )


def measure(client: Client, like: MPIJob, timeout: float | None = None, *, keep: bool = False) -> Matrix:
    """Run the probe and return its result; the job is deleted on success."""
    handle = client.submit(job(like))
    state = handle.wait(timeout)
    if state.phase is not Phase.SUCCEEDED:
        raise JobFailed(
            f"the probe '{handle.name}' did not succeed: {state.message}",
            hint=f"see why with: mpijob why {handle.name}",
            findings=state.findings,
        )
    workers = {worker.index: worker.node for worker in state.workers}
    nodes = {rank.rank: workers.get(rank.worker, "") or rank.node for rank in state.ranks}
    found = network_probe.read((line.text for line in handle.logs()), nodes)
    note(client, found)
    if not keep:
        handle.delete(0)
    return found


def note(client: Client, found: Matrix) -> None:
    """Store the result of each machine's links."""
    slow = {(one.link.low, one.link.high) for one in found.slow}
    now, lines = time.time(), []
    for rank, machine in enumerate(found.nodes):
        mine = [link for link in found.links if rank in (link.low, link.high)]
        if not machine or not mine:
            continue
        bad = sum((link.low, link.high) in slow for link in mine)
        latency = sum(link.latency_us for link in mine) / len(mine)
        bandwidth = sum(link.bandwidth_mb for link in mine) / len(mine)
        one = Seen(now, client.backend.name, machine, len(mine), bad, round(latency, 2), round(bandwidth, 2))
        lines.append(msgspec.json.encode(one) + b"\n")
    if lines:
        path = _ledger(client)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "ab") as file:
            file.write(b"".join(lines))


def ledger(client: Client) -> tuple[Seen, ...]:
    """Return the stored results of this engine, oldest first."""
    try:
        written = _ledger(client).read_bytes().splitlines()
    except FileNotFoundError:
        return ()
    return tuple(_read(written, client.backend.name))


def _read(lines: Iterable[bytes], place: str) -> Iterable[Seen]:
    for line in lines:
        try:
            one = codec.decode(line, Seen)
        except msgspec.DecodeError:
            # A line that was truncated because the disk was full.
            continue
        if one.place == place:
            yield one


def _ledger(client: Client) -> Path:
    return Path(client.settings.home) / "network.jsonl"


def profile(client: Client, name: Target) -> MpiTraffic:
    """Return the MPI traffic of a job with Open MPI's monitoring; raise NotFound for any other job."""
    found = mpi_monitoring.read(line.text for line in client.logs(name))
    if not (found.flows or found.inner or found.collective):
        flags = " ".join(f"--set {key}={value}" for key, value in mpi_monitoring.SETTINGS.items())
        raise NotFound(
            f"job '{name if isinstance(name, str) else name.name}' recorded no MPI traffic between ranks",
            hint=f"run it with Open MPI and its monitoring: mpijob run … --mpi openmpi {flags}",
        )
    return found
