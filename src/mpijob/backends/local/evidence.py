"""What the supervisor has seen of a failed attempt, in the words that `diagnosis` understands."""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections.abc import Iterable, Iterator

import msgspec

from mpijob import diagnosis
from mpijob.backends.local import logs
from mpijob.backends.local.ledger import Ledger
from mpijob.backends.local.orders import Orders
from mpijob.diagnosis.evidence import Evidence, Memory, World
from mpijob.errors import Finding
from mpijob.model import Exit, LogLine
from mpijob.observation import phase

LINES_PER_STREAM = 60
TOGETHER_SECONDS = 0.1
FULL_BYTES = 64 << 10
_PEER_LOST = re.compile(
    rb"(?i)socket closed|connection reset|connection closed|broken pipe|lost connection|peer"
)


def findings_for(orders: Orders, ledger: Ledger, standing: phase.Standing) -> tuple[Finding, ...]:
    """Return why the attempt failed, first cause first."""
    return diagnosis.explain(_evidence(orders, ledger, standing))


def _evidence(orders: Orders, ledger: Ledger, standing: phase.Standing) -> Evidence:
    plan = orders.plan
    said = tuple(logs.tails(orders.logs, orders.attempt, ledger.ranks, LINES_PER_STREAM))
    workers = [*ledger.lost.values(), *(e for i, e in ledger.daemon_exits.items() if i not in ledger.lost)]
    return Evidence(
        spec=plan.job,
        family=plan.family,
        attempt=orders.attempt,
        reason=_reason(orders, ledger, standing),
        message=standing.message,
        worker=ledger.failed_worker(),
        launcher=ledger.launcher,
        workers=tuple(workers),
        ranks=tuple(_consequences(ledger.rank_exits.values(), said)),
        memory=_memory(orders, ledger, standing),
        world=World(planned=plan.world, proved=ledger.proved),
        logs=said,
    )


def _consequences(exits: Iterable[Exit], said: Iterable[LogLine]) -> Iterator[Exit]:
    """Yield the exits with those marked that followed from another's.

    MPI ends the other ranks itself when one has failed. And a rank that lost its peer may be gone before
    the kernel has finished with that peer: it has said so.
    """
    exits = tuple(exits)
    bad = sorted((e for e in exits if not e.good and not e.by_us), key=lambda e: (e.time, not e.signal))
    mourners = {line.rank for line in said if _PEER_LOST.search(line.text)}
    together = [e for e in bad if e.time - bad[0].time < TOGETHER_SECONDS]
    first = next((e for e in together if e.index not in mourners), bad[0] if bad else None)
    for exit in exits:
        ended_by_mpi = exit.signal in (signal.SIGKILL, signal.SIGTERM) or exit.index in mourners
        followed = first is not None and exit is not first and ended_by_mpi
        yield msgspec.structs.replace(exit, by_us=True) if followed else exit


def _reason(orders: Orders, ledger: Ledger, standing: phase.Standing) -> str:
    """Return the verdict; a worker that failed while its process lives has lost its MPI daemon."""
    if _disk_is_full(orders):
        return phase.Reason.DISK_FULL.value
    if standing.reason is not phase.Reason.WORKER_FAILED:
        return standing.reason.value
    first = min((e for e in ledger.daemon_exits.values() if not e.good), key=lambda e: e.time)
    return "DaemonLost" if first.signal or (first.code or 0) > 128 else standing.reason.value


def _disk_is_full(orders: Orders) -> bool:
    """Whether there is no room: then the program's own words about it could not be kept either."""
    return shutil.disk_usage(orders.work).free < FULL_BYTES


def _memory(orders: Orders, ledger: Ledger, standing: phase.Standing) -> tuple[Memory, ...]:
    limit = orders.plan.job.resources.memory_bytes
    over = standing.reason is phase.Reason.MEMORY_EXCEEDED
    now = time.time()
    return tuple(
        Memory(worker=index, peak_bytes=peak, limit_bytes=limit, exceeded=over and peak > limit, time=now)
        for index, peak in ((w.index, ledger.peak_bytes.get(w.index, 0)) for w in orders.plan.workers)
    )
