"""What the supervisor has seen of a failed attempt, in the words that `diagnosis` understands."""

from __future__ import annotations

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
from mpijob.model import Exit
from mpijob.observation import phase

LINES_PER_STREAM = 60


def findings_for(orders: Orders, ledger: Ledger, standing: phase.Standing) -> tuple[Finding, ...]:
    """Return why the attempt failed, first cause first."""
    return diagnosis.explain(_evidence(orders, ledger, standing))


def _evidence(orders: Orders, ledger: Ledger, standing: phase.Standing) -> Evidence:
    plan = orders.plan
    workers = [*ledger.lost.values(), *(e for i, e in ledger.daemon_exits.items() if i not in ledger.lost)]
    return Evidence(
        spec=plan.job,
        family=plan.family,
        attempt=orders.attempt,
        reason=_reason(ledger, standing),
        message=standing.message,
        worker=next(iter(ledger.failed_workers()), None),
        launcher=ledger.launcher,
        workers=tuple(workers),
        ranks=tuple(_consequences(ledger.rank_exits.values())),
        memory=_memory(orders, ledger, standing),
        world=World(planned=plan.world, proved=ledger.proved),
        logs=tuple(logs.tails(orders.logs, orders.attempt, ledger.ranks, LINES_PER_STREAM)),
    )


def _consequences(exits: Iterable[Exit]) -> Iterator[Exit]:
    """Yield the exits with those marked that followed from the first: MPI ends the other ranks itself."""
    exits = tuple(exits)
    first = min((e.time for e in exits if not e.good and not e.by_us), default=0.0)
    for exit in exits:
        followed = exit.signal in (signal.SIGKILL, signal.SIGTERM) and exit.time > first
        yield msgspec.structs.replace(exit, by_us=True) if followed else exit


def _reason(ledger: Ledger, standing: phase.Standing) -> str:
    """Return the verdict; a worker that failed while its process lives has lost its MPI daemon."""
    if standing.reason is not phase.Reason.WORKER_FAILED:
        return standing.reason.value
    first = min((e for e in ledger.daemon_exits.values() if not e.good), key=lambda e: e.time)
    return "DaemonLost" if first.signal or (first.code or 0) > 128 else standing.reason.value


def _memory(orders: Orders, ledger: Ledger, standing: phase.Standing) -> tuple[Memory, ...]:
    limit = orders.plan.job.resources.memory_bytes
    over = standing.reason is phase.Reason.MEMORY_EXCEEDED
    now = time.time()
    return tuple(
        Memory(worker=index, peak_bytes=peak, limit_bytes=limit, exceeded=over and peak > limit, time=now)
        for index, peak in ((w.index, ledger.peak_bytes.get(w.index, 0)) for w in orders.plan.workers)
    )
