"""What is worrying about a job that runs, before it fails: memory, disk, silence, idleness, stragglers, restarts.

Pure functions over what an engine has seen (`HealthSample`); the local supervisor and the cluster client fill it from
what each can see. A warning must be true of what was measured, and quiet on healthy runs: each rule wants a
trend that lasts, a rank that used to behave otherwise, or most of the others to differ from it. Why a job that
has failed did so is said by `diagnosis`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpijob.errors import Finding, Fix, Severity
from mpijob.model import Phase
from mpijob.observation.health import exhaustion, hang
from mpijob.observation.health.health_sample import HealthSample, command_fix

Key = tuple[str, int | None, int | None]


def judge(seen: HealthSample) -> tuple[Finding, ...]:
    """Return the warnings that hold now, the most certain first; none for a job that does not run."""
    if seen.state.phase is not Phase.RUNNING:
        return ()
    found = [
        *exhaustion.memory(seen),
        *exhaustion.disk(seen),
        *hang.quiet(seen),
        *_behind(seen),
        *_restarts(seen),
    ]
    return tuple(sorted(found, key=lambda finding: -finding.confidence))


def key(finding: Finding) -> Key:
    """Return what makes two warnings the same one, however their numbers have changed."""
    return finding.code, finding.worker, finding.rank


def event_reason(finding: Finding) -> str:
    """Return the one word that the event of a warning carries: `MemoryNearLimit`."""
    return "".join(word.capitalize() for word in finding.code.split("_"))


def _behind(seen: HealthSample) -> Iterator[Finding]:
    """Yield ranks whose step counter is far behind that of the others, and was so before, and does not catch up."""
    now, before = _counters(seen, seen.now), _counters(seen, seen.now - seen.quiet_seconds / 2)
    for rank, step in now.items():
        others = [count for other, count in now.items() if other != rank]
        past = [count for other, count in before.items() if other != rank]
        if len(others) < 2 or rank not in before or len(past) != len(others):
            continue
        gap, gap_before = _middle(others) - step, _middle(past) - before[rank]
        together = max(others) - min(others) <= gap / 3
        if together and gap >= gap_before > 0 and gap >= max(5, 0.1 * _middle(others)):
            yield _straggler(seen, rank, step, int(_middle(others)))


def _counters(seen: HealthSample, moment: float) -> dict[int, int]:
    """Return the last step that each rank had told at a moment."""
    return {one.rank: one.step for one in seen.steps if one.time <= moment and one.rank not in seen.ended}


def _straggler(seen: HealthSample, rank: int, step: int, others: int) -> Finding:
    worker = next((one.worker for one in seen.state.ranks if one.rank == rank), None)
    stacks = command_fix("compare its call stack with another", f"mpijob stacks {seen.state.ref.name}")
    usage = command_fix("compare its usage with another", f"mpijob top {seen.state.ref.name}")
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


def _restarts(seen: HealthSample) -> Iterator[Finding]:
    for worker in seen.state.workers:
        if worker.restarts:
            times = "once" if worker.restarts == 1 else f"{worker.restarts} times"
            yield _restarted(
                seen, f"Worker {worker.index} was restarted {times} while the job ran.", worker.index
            )
    if seen.retries:
        tries = "an attempt" if seen.retries == 1 else f"{seen.retries} attempts"
        yield _restarted(seen, f"The job was tried again after {tries} that failed.", None)


def _restarted(seen: HealthSample, text: str, worker: int | None) -> Finding:
    events = command_fix("show what happened before", f"mpijob events {seen.state.ref.name}")
    logs = command_fix("read the log of the first attempt", f"mpijob logs {seen.state.ref.name} --attempt 1")
    return Finding(
        "RESTARTED",
        text,
        events.text,
        severity=Severity.WARNING,
        worker=worker,
        fixes=(events, logs),
        confidence=0.9,
    )


def _middle(numbers: Sequence[int]) -> float:
    ordered, half = sorted(numbers), len(numbers) // 2
    return ordered[half] if len(numbers) % 2 else (ordered[half - 1] + ordered[half]) / 2
