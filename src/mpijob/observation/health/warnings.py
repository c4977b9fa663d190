"""Early warnings for a running job: memory, disk, silence, idle ranks, stragglers, restarts.

Pure functions of a `HealthSample`, which the local supervisor and the Kubernetes backend fill. A warning must
be true of what was measured, and healthy runs must not get one: each rule requires a lasting trend, a rank
that behaved otherwise before, or one that differs from most others. `diagnosis` explains failures.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from mpijob.errors import Finding, Fix, Severity
from mpijob.model import Phase
from mpijob.observation.health import exhaustion, hang
from mpijob.observation.health.health_sample import HealthSample, command_fix

Key = tuple[str, int | None, int | None]


def find_warnings(sample: HealthSample) -> tuple[Finding, ...]:
    """Return the current warnings, the most certain first; none for a job that is not running."""
    if sample.state.phase is not Phase.RUNNING:
        return ()
    found = [
        *exhaustion.memory(sample),
        *exhaustion.disk(sample),
        *hang.idle_or_silent(sample),
        *_behind(sample),
        *_restarts(sample),
    ]
    return tuple(sorted(found, key=lambda finding: -finding.confidence))


def key(finding: Finding) -> Key:
    """Return what identifies a warning while its numbers change."""
    return finding.code, finding.worker, finding.rank


def event_reason(finding: Finding) -> str:
    """Return the reason of the warning's event: `MemoryNearLimit`."""
    return "".join(word.capitalize() for word in finding.code.split("_"))


def _behind(sample: HealthSample) -> Iterator[Finding]:
    # Ranks far behind the others now and half a quiet time ago, and not catching up. Where the others are far
    # apart as well, the counters mean something else.
    now, before = _counters(sample, sample.now), _counters(sample, sample.now - sample.quiet_seconds / 2)
    for rank, step in now.items():
        others = [count for other, count in now.items() if other != rank]
        others_before = [count for other, count in before.items() if other != rank]
        if len(others) < 2 or rank not in before or len(others_before) != len(others):
            continue
        gap, gap_before = median(others) - step, median(others_before) - before[rank]
        others_are_close = max(others) - min(others) <= gap / 3
        if others_are_close and gap >= gap_before > 0 and gap >= max(5, 0.1 * median(others)):
            yield _straggler(sample, rank, step, int(median(others)))


def _counters(sample: HealthSample, moment: float) -> dict[int, int]:
    return {
        step.rank: step.step for step in sample.steps if step.time <= moment and step.rank not in sample.ended
    }


def _straggler(sample: HealthSample, rank: int, step: int, others: int) -> Finding:
    worker = next((state.worker for state in sample.state.ranks if state.rank == rank), None)
    stacks = command_fix("compare its call stack with another", f"mpijob stacks {sample.state.ref.name}")
    usage = command_fix("compare its usage with another", f"mpijob top {sample.state.ref.name}")
    return Finding(
        "RANK_BEHIND",
        f"Rank {rank} is at step {step}, the others are at about {others}, and it does not catch up.",
        stacks.text,
        severity=Severity.WARNING,
        worker=worker,
        rank=rank,
        fixes=(stacks, usage, Fix("check its node: other load, a slow disk or network, a throttled GPU")),
        confidence=0.7,
    )


def _restarts(sample: HealthSample) -> Iterator[Finding]:
    for worker in sample.state.workers:
        if worker.restarts:
            times = "once" if worker.restarts == 1 else f"{worker.restarts} times"
            yield _restarted(
                sample, f"Worker {worker.index} was restarted {times} while the job ran.", worker.index
            )
    if sample.retries:
        tries = "an attempt" if sample.retries == 1 else f"{sample.retries} attempts"
        yield _restarted(sample, f"The job was tried again after {tries} that failed.", None)


def _restarted(sample: HealthSample, text: str, worker: int | None) -> Finding:
    events = command_fix("show what happened before", f"mpijob events {sample.state.ref.name}")
    logs = command_fix(
        "read the log of the first attempt", f"mpijob logs {sample.state.ref.name} --attempt 1"
    )
    return Finding(
        "RESTARTED",
        text,
        events.text,
        severity=Severity.WARNING,
        worker=worker,
        fixes=(events, logs),
        confidence=0.9,
    )
