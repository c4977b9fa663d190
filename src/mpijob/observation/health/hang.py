"""Ranks that say nothing and do nothing: all of them, some while others are busy, one while others talk.

Silence alone proves little: many programs print nothing for hours, or on rank 0 only. So a rank is compared
with what it did before and with what the others do now.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpijob.errors import Finding, Fix, Severity
from mpijob.observation.health.health_sample import (
    BUSY_CORES,
    IDLE_CORES,
    REGULAR_BEATS,
    HealthSample,
    Load,
    Traffic,
    command_fix,
    pace,
    span,
)

_STILL_SHARE = 0.02
HELD_LABEL = "mpijob/alloc"  # workers that are held for a shell are idle by intent


def quiet(seen: HealthSample) -> Iterator[Finding]:
    """Yield what silence and idle ranks mean: of the same silence only the most telling is told."""
    if HELD_LABEL in seen.state.labels:
        return
    loads = _loads(seen)
    idle = [load for load in loads if load.cores < IDLE_CORES]
    busy = [load for load in loads if load.cores >= BUSY_CORES]
    if loads and len(idle) == len(loads) and _lasts(seen) and _stands_still(seen):
        yield _all_idle(seen, loads)
    elif idle and len(idle) + len(busy) == len(loads) and _few(idle, busy) and _lasts(seen):
        yield from (_idle(seen, load, busy) for load in idle)
    elif silent := _silent_job(seen):
        yield silent
    else:
        yield from _silent_ranks(seen)


def _loads(seen: HealthSample) -> list[Load]:
    """Return what the ranks that run keep busy; nothing where that is not known of all of them."""
    known = seen.ended.union(*(load.ranks for load in seen.loads))
    if not {one.rank for one in seen.state.ranks} <= known:
        return []
    return [load for load in seen.loads if not seen.ended.issuperset(load.ranks)]


def _ran(seen: HealthSample) -> float:
    return seen.now - (seen.state.running or seen.now)


def _few(idle: Sequence[Load], busy: Sequence[Load]) -> bool:
    return sum(len(load.ranks) for load in idle) <= sum(len(load.ranks) for load in busy)


def _stands_still(seen: HealthSample) -> bool:
    """Whether no worker's memory changes: one that fills it is not idle, however little it computes."""
    sizes: dict[int, list[int]] = {}
    for sample in seen.samples:
        if sample.time >= seen.now - seen.quiet_seconds:
            sizes.setdefault(sample.worker, []).append(sample.memory_bytes)
    return all(max(mine) - min(mine) <= _STILL_SHARE * max(mine) for mine in sizes.values())


def _lasts(seen: HealthSample) -> bool:
    """Whether it has been so for long: longer where nobody ever spoke or computed, which may be by intent."""
    patience = seen.quiet_seconds if seen.was_busy or seen.talks else 5 * seen.quiet_seconds
    return min(seen.silence, _ran(seen)) >= patience


def _stacks(seen: HealthSample) -> Fix:
    return command_fix("capture stacks", f"mpijob stacks {seen.state.ref.name}")


def _all_idle(seen: HealthSample, loads: Sequence[Load]) -> Finding:
    count = sum(len(load.ranks) for load in loads)
    who = {1: "The only rank has", 2: "Both ranks have"}.get(count, f"All {count} ranks have")
    wanted = "each other, for data or" if count > 1 else "data or"
    quiet = span(min(seen.silence, _ran(seen)))
    return Finding(
        "ALL_IDLE",
        f"{who} been idle and silent for {quiet}: waiting for {wanted} for the network.",
        _stacks(seen).text,
        severity=Severity.WARNING,
        fixes=(_stacks(seen), Fix("check what they read: a file system or a server that does not respond")),
        confidence=0.8 if seen.was_busy or seen.talks else 0.5,
    )


def _idle(seen: HealthSample, load: Load, busy: Sequence[Load]) -> Finding:
    one = load.ranks[0] if len(load.ranks) == 1 else None
    who = f"Rank {one} on worker {load.worker}" if one is not None else f"Worker {load.worker}"
    others = sum(len(other.ranks) for other in busy)
    ranks = f"{others} other ranks are" if others > 1 else "another is"
    return Finding(
        "RANK_IDLE",
        f"{who} is idle and no rank has written output for {span(seen.quiet_seconds)}, while {ranks} busy: "
        "ranks that wait in MPI are busy, so they may be waiting for it.",
        _stacks(seen).text,
        severity=Severity.WARNING,
        worker=load.worker,
        rank=one,
        fixes=(_stacks(seen), Fix("check what it waits for: a file, a lock, a download, a prompt")),
        confidence=0.6,
    )


def _silent_job(seen: HealthSample) -> Finding | None:
    """Return that nobody says anything any more, where somebody used to do so regularly."""
    regular = [talk for talk in seen.talks if talk.beats >= 2 * REGULAR_BEATS and talk.rank not in seen.ended]
    if not regular:
        return None
    pause = max(talk.pause for talk in regular)
    if seen.silence < max(2.5 * seen.quiet_seconds, 20 * pause):
        return None
    return Finding(
        "JOB_SILENT",
        f"No rank has printed anything for {span(seen.silence)}; before, output came {pace(pause)}.",
        _stacks(seen).text,
        severity=Severity.WARNING,
        fixes=(_stacks(seen),),
        confidence=0.6,
    )


def _silent_ranks(seen: HealthSample) -> Iterator[Finding]:
    """Yield the ranks that fell silent while others go on; silence is measured against the last word of anybody."""
    alive = [talk for talk in seen.talks if talk.rank not in seen.ended]
    for talk in alive:
        others = [other for other in alive if other.rank != talk.rank and other.regular]
        silence = seen.last_word - talk.last
        going = [other for other in others if seen.last_word - other.last <= max(3 * other.pause, 1.0)]
        most = len(going) * 2 > len(others) and bool(going)
        if talk.regular and most and silence >= max(seen.quiet_seconds, 10 * talk.pause):
            on = f"{len(going)} others keep printing" if len(going) > 1 else "another keeps printing"
            before = f"and printed {pace(talk.pause)} before; {on}"
            yield _silent(seen, talk.rank, f"has printed nothing for {span(silence)}, {before}", 0.7)
    yield from _mute_rank(seen, alive)


def _mute_rank(seen: HealthSample, alive: Sequence[Traffic]) -> Iterator[Finding]:
    """Yield a single rank that never said anything although all the others do, and do so regularly."""
    ranks = {one.rank for one in seen.state.ranks} - seen.ended
    mute = ranks - {talk.rank for talk in seen.talks}
    lasted = seen.last_word - (seen.state.running or seen.last_word)
    alone = len(mute) == 1 and len(ranks) >= 4 and all(talk.regular for talk in alive)
    if alone and lasted >= seen.quiet_seconds:
        what = f"has never printed anything, but the {len(alive)} other ranks do"
        yield _silent(seen, mute.pop(), what, 0.5)


def _silent(seen: HealthSample, rank: int, what: str, confidence: float) -> Finding:
    worker = next((one.worker for one in seen.state.ranks if one.rank == rank), None)
    who = f"Rank {rank}" if worker is None else f"Rank {rank} on worker {worker}"
    look = command_fix("show its call stack", f"mpijob stacks {seen.state.ref.name} --rank {rank}")
    return Finding(
        "RANK_SILENT",
        f"{who} {what}.",
        look.text,
        severity=Severity.WARNING,
        worker=worker,
        rank=rank,
        fixes=(look,),
        confidence=confidence,
    )
