"""What to ask for next time, from what runs of the same program used: memory, cores, GPUs, time, size; with reasons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import msgspec

from mpijob.model import MPIJob, Phase
from mpijob.model.spec import quantity
from mpijob.model.spec.quantity import as_bytes
from mpijob.model.status.accounts import HOUR, Account

_MARGIN = 1.25  # above the highest peak that was measured
_MUCH = 0.5  # of the memory asked for: what is less is worth giving back
_CLOSE = 0.9
_BUSY = 0.5  # of the cores held: what is less is worth telling
_IDLE_GPU = 0.3
_SHORTEST_SECONDS = 30.0  # shorter runs are mostly start and end
_MIB = 1 << 20
_KILLED = ("OOM_KILLED", "MEMORY_LIMIT")


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """One change of the job that runs of its program speak for; `value` is what to write into the field."""

    field: str
    now: str
    value: str
    reason: str


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one size: the middle of their times, speed-up and efficiency against the smallest size that ran."""

    workers: int
    ranks: int
    runs: int
    seconds: float
    speedup: float
    efficiency: float
    core_hours: float


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """How a program scales: the sizes that ran, the share that does not get faster (Amdahl), which size pays."""

    sizes: tuple[Size, ...]
    serial_share: float | None = None
    best: int | None = None
    sentences: tuple[str, ...] = ()


class SizingReport(msgspec.Struct, frozen=True, kw_only=True):
    """All that earlier runs of a program say about the next one."""

    program: str
    runs: int
    advice: tuple[Advice, ...] = ()
    scaling: Scaling | None = None


def counsel(job: MPIJob, program: str, accounts: Sequence[Account]) -> SizingReport:
    """Return what the runs of a job's program speak for."""
    good = [one for one in accounts if one.phase is Phase.SUCCEEDED]
    same = [one for one in good if one.workers == job.workers]
    advice = [*_memory(job, [one for one in accounts if one.measured]), *_cores(job, same), *_gpus(job, same),
              *_deadline(job, same)]  # fmt: skip
    return SizingReport(program=program, runs=len(accounts), advice=tuple(advice), scaling=scaling(good))


def _memory(job: MPIJob, runs: Sequence[Account]) -> list[Advice]:
    asked = job.resources.asked.memory_bytes
    killed = [one for one in runs if one.cause in _KILLED and one.peak_bytes]
    others = [one for one in runs if one.cause not in _KILLED and one.peak_bytes]
    if not asked:
        return []
    if killed and not any(0 < one.worker_memory_bytes <= asked for one in others):
        return _after_kill(job, asked, killed)
    return _by_peak(job, asked, others)


def _after_kill(job: MPIJob, asked: int, killed: Sequence[Account]) -> list[Advice]:
    """Return the amount that the fix of such a failure proposes; nothing where the job asks for that already."""
    run = max(killed, key=lambda one: one.worker_memory_bytes)
    limit = run.worker_memory_bytes or asked
    value = quantity.doubled(max(run.peak_bytes, limit))
    if asked >= quantity.parse(value):
        return []
    reached = f" ({as_bytes(run.peak_bytes)} of {as_bytes(limit)})" if run.peak_bytes > limit else ""
    reason = f"a previous run exceeded its memory limit{reached or f' of {as_bytes(limit)}'}"
    return [Advice(field="resources.memory", now=str(job.resources.memory), value=value, reason=reason)]


def _by_peak(job: MPIJob, asked: int, runs: Sequence[Account]) -> list[Advice]:
    peak = max((one.peak_bytes for one in runs), default=0)
    if not peak or _MUCH * asked <= peak <= _CLOSE * asked:
        return []
    wanted = math.ceil(max(peak * _MARGIN, 64 * _MIB) / (64 * _MIB)) * 64
    if peak > _CLOSE * asked:
        reason = (
            f"the highest peak of a worker was {as_bytes(peak)}, close to the {as_bytes(asked)} requested"
        )
    else:
        reason = (
            f"no worker of {_runs(runs)} used more than {as_bytes(peak)} of the {as_bytes(asked)} requested"
        )
    value = f"{wanted}Mi" if wanted % 1024 else f"{wanted // 1024}Gi"
    if wanted * _MIB == asked:
        return []
    return [Advice(field="resources.memory", now=str(job.resources.memory), value=value, reason=reason)]


def _runs(runs: Sequence[Account]) -> str:
    return "1 run" if len(runs) == 1 else f"{len(runs)} runs"


def _long(runs: Sequence[Account]) -> list[Account]:
    return [one for one in runs if one.measured and one.held_seconds >= _SHORTEST_SECONDS]


def _cores(job: MPIJob, runs: Sequence[Account]) -> list[Advice]:
    known = [one for one in _long(runs) if one.core_hours and job.workers]
    if not known:
        return []
    used = median(one.core_hours_used / (one.held_seconds / HOUR) / job.workers for one in known)
    asked = job.resources.asked.cores
    if used >= _BUSY * asked:
        return []
    wanted = max(0.1, math.ceil(used * _MARGIN * 10) / 10)
    reason = f"a worker used {used:.2g} of {asked:g} cores (median of {_runs(known)})"
    return [
        Advice(
            field="resources.cpu", now=str(job.resources.cpu), value=f"{round(wanted * 1000)}m", reason=reason
        )
    ]


def _gpus(job: MPIJob, runs: Sequence[Account]) -> list[Advice]:
    known = [one for one in _long(runs) if one.gpu_hours]
    if not known or not job.resources.gpu:
        return []
    share = median(one.gpu_hours_used / one.gpu_hours for one in known)
    if share >= _IDLE_GPU:
        return []
    wanted = max(1, math.ceil(job.resources.gpu * share * _MARGIN))
    if wanted == job.resources.gpu:
        return []
    reason = f"the GPUs were busy {share:.0%} of the time (median of {_runs(known)})"
    return [Advice(field="resources.gpu", now=str(job.resources.gpu), value=str(wanted), reason=reason)]


def _deadline(job: MPIJob, runs: Sequence[Account]) -> list[Advice]:
    longest = max((one.held_seconds for one in runs), default=0.0)
    if job.deadline_seconds is None or not longest or longest <= _CLOSE * job.deadline_seconds:
        return []
    reason = f"the longest of {_runs(runs)} took {longest:.0f} s of the {job.deadline_seconds:.0f} s allowed"
    value = f"{math.ceil(longest * 1.5)}"
    return [Advice(field="deadline_seconds", now=f"{job.deadline_seconds:g}", value=value, reason=reason)]


# -- scaling ----------------------------------------------------------------------------------------
def scaling(runs: Sequence[Account]) -> Scaling | None:
    """Return how a program scales; None where it ran in one size only."""
    groups: dict[int, list[Account]] = {}
    for one in runs:
        if one.ranks and one.held_seconds > 0:
            groups.setdefault(one.ranks, []).append(one)
    if len(groups) < 2:
        return None
    smallest = min(groups)
    base = median(one.held_seconds for one in groups[smallest])
    sizes = tuple(_size(found, smallest, base) for _, found in sorted(groups.items()))
    return Scaling(sizes=sizes, serial_share=_serial(sizes), best=_best(sizes), sentences=_sentences(sizes))


def _size(found: Sequence[Account], smallest: int, base: float) -> Size:
    seconds, ranks = median(one.held_seconds for one in found), found[0].ranks
    speedup = base / seconds
    return Size(
        workers=found[0].workers, ranks=ranks, runs=len(found), seconds=seconds, speedup=speedup,
        efficiency=speedup / (ranks / smallest), core_hours=median(one.core_hours for one in found),
    )  # fmt: skip


def _serial(sizes: Sequence[Size]) -> float | None:
    """Return the share of the smallest run's time that more ranks do not shorten: T(n) = a + b/n, by least squares."""
    first = sizes[0].ranks
    xs = [first / one.ranks for one in sizes]
    ys = [one.seconds for one in sizes]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    fixed = mean_y - slope * mean_x
    return min(1.0, max(0.0, fixed / (fixed + slope))) if fixed + slope > 0 else None


def _best(sizes: Sequence[Size]) -> int:
    """Return the largest number of ranks whose step from the size before gained at least half of what it cost."""
    best = sizes[0]
    for one in sizes[1:]:
        if best.seconds / one.seconds - 1 < 0.5 * (one.ranks / best.ranks - 1):
            break
        best = one
    return best.ranks


def _sentences(sizes: Sequence[Size]) -> tuple[str, ...]:
    told = []
    for less, more in pairwise(sizes):
        gain = less.seconds / more.seconds - 1
        dearer = more.ranks / less.ranks / (1 + gain) - 1
        word = f"{gain:.0%} faster" if gain >= 0 else f"{-gain:.0%} slower"
        price = f"cost {dearer:.0%} more" if dearer > 0.005 else "cost no more"
        told.append(f"{more.ranks} ranks are {word} than {less.ranks} and {price}")
    return tuple(told)
