"""Finds ranks without output and load: all of them, some while others are busy, one while others write.

Silence alone proves little: many programs write nothing for hours, or on rank 0 only. So a rank is compared
with what it did before and with what the others do now.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpijob.errors import Finding, Fix, Severity
from mpijob.observation.health.health_sample import (
    BUSY_CORES,
    IDLE_CORES,
    REGULAR_LINES,
    HealthSample,
    Load,
    RankOutput,
    command_fix,
    pace,
    span,
)

_STILL_SHARE = 0.02
# Workers that are kept for a shell (`mpijob alloc`) are idle on purpose.
HELD_LABEL = "mpijob/alloc"


def idle_or_silent(sample: HealthSample) -> Iterator[Finding]:
    """Yield warnings about idle and silent ranks; of one silence only the most specific."""
    if HELD_LABEL in sample.state.labels:
        return
    loads = _loads(sample)
    idle = [load for load in loads if load.cores < IDLE_CORES]
    busy = [load for load in loads if load.cores >= BUSY_CORES]
    if loads and len(idle) == len(loads) and _has_lasted(sample) and _memory_is_constant(sample):
        yield _all_idle(sample, loads)
    elif idle and len(idle) + len(busy) == len(loads) and _idle_are_fewer(idle, busy) and _has_lasted(sample):
        yield from (_idle(sample, load, busy) for load in idle)
    elif silent := _silent_job(sample):
        yield silent
    else:
        yield from _silent_ranks(sample)


def _loads(sample: HealthSample) -> list[Load]:
    # Without the load of every rank nothing follows: the unknown one may be the busy one.
    known = sample.ended.union(*(load.ranks for load in sample.loads))
    if not {rank.rank for rank in sample.state.ranks} <= known:
        return []
    return [load for load in sample.loads if not sample.ended.issuperset(load.ranks)]


def _run_seconds(sample: HealthSample) -> float:
    return sample.now - (sample.state.running or sample.now)


def _idle_are_fewer(idle: Sequence[Load], busy: Sequence[Load]) -> bool:
    return sum(len(load.ranks) for load in idle) <= sum(len(load.ranks) for load in busy)


def _memory_is_constant(sample: HealthSample) -> bool:
    # A worker whose memory changes is not idle, however little it computes: it may read data.
    sizes: dict[int, list[int]] = {}
    for usage in sample.samples:
        if usage.time >= sample.now - sample.quiet_seconds:
            sizes.setdefault(usage.worker, []).append(usage.memory_bytes)
    return all(max(values) - min(values) <= _STILL_SHARE * max(values) for values in sizes.values())


def _has_lasted(sample: HealthSample) -> bool:
    # Longer if no rank ever wrote or computed, which may be on purpose.
    patience = sample.quiet_seconds if sample.was_busy or sample.outputs else 5 * sample.quiet_seconds
    return min(sample.silence, _run_seconds(sample)) >= patience


def _stacks(sample: HealthSample) -> Fix:
    return command_fix("capture stacks", f"mpijob stacks {sample.state.ref.name}")


def _all_idle(sample: HealthSample, loads: Sequence[Load]) -> Finding:
    count = sum(len(load.ranks) for load in loads)
    subject = {1: "The only rank has", 2: "Both ranks have"}.get(count, f"All {count} ranks have")
    awaited = "each other, for data or" if count > 1 else "data or"
    quiet = span(min(sample.silence, _run_seconds(sample)))
    return Finding(
        "ALL_IDLE",
        f"{subject} been idle and silent for {quiet}: waiting for {awaited} for the network.",
        _stacks(sample).text,
        severity=Severity.WARNING,
        fixes=(_stacks(sample), Fix("check what they read: a file system or a server that does not respond")),
        confidence=0.8 if sample.was_busy or sample.outputs else 0.5,
    )


def _idle(sample: HealthSample, load: Load, busy: Sequence[Load]) -> Finding:
    rank = load.ranks[0] if len(load.ranks) == 1 else None
    subject = f"Rank {rank} on worker {load.worker}" if rank is not None else f"Worker {load.worker}"
    others = sum(len(other.ranks) for other in busy)
    ranks = f"{others} other ranks are" if others > 1 else "another is"
    return Finding(
        "RANK_IDLE",
        f"{subject} is idle and no rank has written output for {span(sample.quiet_seconds)}, while {ranks} busy: "
        "ranks that wait in MPI are busy, so they may be waiting for it.",
        _stacks(sample).text,
        severity=Severity.WARNING,
        worker=load.worker,
        rank=rank,
        fixes=(_stacks(sample), Fix("check what it waits for: a file, a lock, a download, a prompt")),
        confidence=0.6,
    )


def _silent_job(sample: HealthSample) -> Finding | None:
    # Only if ranks wrote regularly before.
    regular = [
        output
        for output in sample.outputs
        if output.lines >= 2 * REGULAR_LINES and output.rank not in sample.ended
    ]
    if not regular:
        return None
    pause = max(output.pause for output in regular)
    if sample.silence < max(2.5 * sample.quiet_seconds, 20 * pause):
        return None
    return Finding(
        "JOB_SILENT",
        f"No rank has printed anything for {span(sample.silence)}; before, output came {pace(pause)}.",
        _stacks(sample).text,
        severity=Severity.WARNING,
        fixes=(_stacks(sample),),
        confidence=0.6,
    )


def _silent_ranks(sample: HealthSample) -> Iterator[Finding]:
    # Silence is measured against the last line of any rank, not the clock: that of all ranks is another
    # warning.
    alive = [output for output in sample.outputs if output.rank not in sample.ended]
    for output in alive:
        others = [other for other in alive if other.rank != output.rank and other.regular]
        silence = sample.last_output - output.last
        active = [other for other in others if sample.last_output - other.last <= max(3 * other.pause, 1.0)]
        most_are_active = len(active) * 2 > len(others) and bool(active)
        if output.regular and most_are_active and silence >= max(sample.quiet_seconds, 10 * output.pause):
            continues = f"{len(active)} others keep printing" if len(active) > 1 else "another keeps printing"
            before = f"and printed {pace(output.pause)} before; {continues}"
            yield _silent(sample, output.rank, f"has printed nothing for {span(silence)}, {before}", 0.7)
    yield from _mute_rank(sample, alive)


def _mute_rank(sample: HealthSample, alive: Sequence[RankOutput]) -> Iterator[Finding]:
    # A single rank without any output, although all others write regularly. Several silent ranks are common:
    # many programs write on some ranks only.
    ranks = {rank.rank for rank in sample.state.ranks} - sample.ended
    silent = ranks - {output.rank for output in sample.outputs}
    lasted = sample.last_output - (sample.state.running or sample.last_output)
    is_exception = len(silent) == 1 and len(ranks) >= 4 and all(output.regular for output in alive)
    if is_exception and lasted >= sample.quiet_seconds:
        what = f"has never printed anything, but the {len(alive)} other ranks do"
        yield _silent(sample, silent.pop(), what, 0.5)


def _silent(sample: HealthSample, rank: int, what: str, confidence: float) -> Finding:
    worker = next((state.worker for state in sample.state.ranks if state.rank == rank), None)
    subject = f"Rank {rank}" if worker is None else f"Rank {rank} on worker {worker}"
    stacks = command_fix("show its call stack", f"mpijob stacks {sample.state.ref.name} --rank {rank}")
    return Finding(
        "RANK_SILENT",
        f"{subject} {what}.",
        stacks.text,
        severity=Severity.WARNING,
        worker=worker,
        rank=rank,
        fixes=(stacks,),
        confidence=confidence,
    )
