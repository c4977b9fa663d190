"""Recommend resources for the next run from what runs of the same program used, with reasons.

Run time and cost are estimated in `estimates`.
"""

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

# Factor above the highest measured peak.
_MARGIN = 1.25
# Memory use below this share of the request is worth a recommendation.
_LOW_MEMORY_SHARE = 0.5
_HIGH_SHARE = 0.9
# CPU use below this share of the held cores is worth a recommendation.
_LOW_CPU_SHARE = 0.5
_LOW_GPU_SHARE = 0.3
# Shorter runs are mostly start-up and shutdown.
_MIN_RUN_SECONDS = 30.0
_MIB = 1 << 20
_KILLED = ("OOM_KILLED", "MEMORY_LIMIT")


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """One recommended change of the job; `value` is the new value of the field."""

    field: str
    now: str
    value: str
    reason: str


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one size: median time, speed-up and efficiency relative to the smallest size."""

    workers: int
    ranks: int
    runs: int
    seconds: float
    speedup: float
    efficiency: float
    core_hours: float


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """How a program scales: the measured sizes, the serial share (Amdahl), the most economical size."""

    sizes: tuple[Size, ...]
    serial_share: float | None = None
    best: int | None = None
    sentences: tuple[str, ...] = ()


class SizingReport(msgspec.Struct, frozen=True, kw_only=True):
    """All recommendations from earlier runs of a program."""

    program: str
    runs: int
    advice: tuple[Advice, ...] = ()
    scaling: Scaling | None = None


def recommend(job: MPIJob, program: str, accounts: Sequence[Account]) -> SizingReport:
    succeeded = [account for account in accounts if account.phase is Phase.SUCCEEDED]
    same_size = [account for account in succeeded if account.workers == job.workers]
    measured = [account for account in accounts if account.measured]
    per_worker = (
        ()  # an account does not tell which group used what
        if job.groups
        else (*_memory(job, measured), *_cores(job, same_size), *_gpus(job, same_size))
    )
    advice = (*per_worker, *_deadline(job, same_size))
    return SizingReport(program=program, runs=len(accounts), advice=advice, scaling=scaling(succeeded))


def _memory(job: MPIJob, runs: Sequence[Account]) -> list[Advice]:
    requested = job.resources.asked.memory_bytes
    killed = [account for account in runs if account.cause in _KILLED and account.peak_bytes]
    others = [account for account in runs if account.cause not in _KILLED and account.peak_bytes]
    if not requested:
        return []
    # A run that was not killed with this much memory, or less, is better evidence than one that was.
    if killed and not any(0 < account.worker_memory_bytes <= requested for account in others):
        return _after_kill(job, requested, killed)
    return _by_peak(job, requested, others)


def _after_kill(job: MPIJob, requested: int, killed: Sequence[Account]) -> list[Advice]:
    """Return the amount that the fix of such a failure proposes; nothing if the job requests that already."""
    run = max(killed, key=lambda account: account.worker_memory_bytes)
    limit = run.worker_memory_bytes or requested
    value = quantity.doubled(max(run.peak_bytes, limit))
    if requested >= quantity.parse(value):
        return []
    reached = f" ({as_bytes(run.peak_bytes)} of {as_bytes(limit)})" if run.peak_bytes > limit else ""
    reason = f"a previous run exceeded its memory limit{reached or f' of {as_bytes(limit)}'}"
    return [Advice(field="resources.memory", now=str(job.resources.memory), value=value, reason=reason)]


def _by_peak(job: MPIJob, requested: int, runs: Sequence[Account]) -> list[Advice]:
    peak = max((account.peak_bytes for account in runs), default=0)
    if not peak or _LOW_MEMORY_SHARE * requested <= peak <= _HIGH_SHARE * requested:
        return []
    recommended = math.ceil(max(peak * _MARGIN, 64 * _MIB) / (64 * _MIB)) * 64
    if peak > _HIGH_SHARE * requested:
        reason = (
            f"the highest peak of a worker was {as_bytes(peak)}, close to the requested {as_bytes(requested)}"
        )
    else:
        reason = f"no worker of {_runs(runs)} used more than {as_bytes(peak)} of the requested {as_bytes(requested)}"
    value = f"{recommended}Mi" if recommended % 1024 else f"{recommended // 1024}Gi"
    if recommended * _MIB == requested:
        return []
    return [Advice(field="resources.memory", now=str(job.resources.memory), value=value, reason=reason)]


def _runs(runs: Sequence[Account]) -> str:
    return "1 run" if len(runs) == 1 else f"{len(runs)} runs"


def _long_runs(runs: Sequence[Account]) -> list[Account]:
    return [account for account in runs if account.measured and account.held_seconds >= _MIN_RUN_SECONDS]


def _cores(job: MPIJob, runs: Sequence[Account]) -> list[Advice]:
    measured = [account for account in _long_runs(runs) if account.core_hours and job.workers]
    if not measured:
        return []
    used = median(
        account.core_hours_used / (account.held_seconds / HOUR) / job.workers for account in measured
    )
    requested = job.resources.asked.cores
    if used >= _LOW_CPU_SHARE * requested:
        return []
    recommended = max(0.1, math.ceil(used * _MARGIN * 10) / 10)
    reason = f"a worker used {used:.2g} of {requested:g} cores (median of {_runs(measured)})"
    return [
        Advice(
            field="resources.cpu",
            now=str(job.resources.cpu),
            value=f"{round(recommended * 1000)}m",
            reason=reason,
        )
    ]


def _gpus(job: MPIJob, runs: Sequence[Account]) -> list[Advice]:
    measured = [account for account in _long_runs(runs) if account.gpu_hours]
    if not measured or not job.resources.gpu:
        return []
    share = median(account.gpu_hours_used / account.gpu_hours for account in measured)
    if share >= _LOW_GPU_SHARE:
        return []
    recommended = max(1, math.ceil(job.resources.gpu * share * _MARGIN))
    if recommended == job.resources.gpu:
        return []
    reason = f"the GPUs were busy {share:.0%} of the time (median of {_runs(measured)})"
    return [Advice(field="resources.gpu", now=str(job.resources.gpu), value=str(recommended), reason=reason)]


def _deadline(job: MPIJob, runs: Sequence[Account]) -> list[Advice]:
    longest = max((account.held_seconds for account in runs), default=0.0)
    if job.deadline_seconds is None or not longest or longest <= _HIGH_SHARE * job.deadline_seconds:
        return []
    reason = f"the longest of {_runs(runs)} took {longest:.0f} s of the {job.deadline_seconds:.0f} s allowed"
    value = f"{math.ceil(longest * 1.5)}"
    return [Advice(field="deadline_seconds", now=f"{job.deadline_seconds:g}", value=value, reason=reason)]


# -- scaling ----------------------------------------------------------------------------------------
def scaling(runs: Sequence[Account]) -> Scaling | None:
    """Return how a program scales; None if it ran in one size only."""
    groups: dict[int, list[Account]] = {}
    for account in runs:
        if account.ranks and account.held_seconds > 0:
            groups.setdefault(account.ranks, []).append(account)
    if len(groups) < 2:
        return None
    smallest = min(groups)
    base = median(account.held_seconds for account in groups[smallest])
    sizes = tuple(_size(found, smallest, base) for _, found in sorted(groups.items()))
    return Scaling(
        sizes=sizes, serial_share=_serial_share(sizes), best=_best(sizes), sentences=_sentences(sizes)
    )


def _size(accounts: Sequence[Account], smallest: int, base: float) -> Size:
    seconds, ranks = median(account.held_seconds for account in accounts), accounts[0].ranks
    speedup = base / seconds
    return Size(
        workers=accounts[0].workers, ranks=ranks, runs=len(accounts), seconds=seconds, speedup=speedup,
        efficiency=speedup / (ranks / smallest), core_hours=median(account.core_hours for account in accounts),
    )  # fmt: skip


def _serial_share(sizes: Sequence[Size]) -> float | None:
    """Return the share of the smallest run's time that more ranks do not reduce."""
    # T(n) = a + b/n, by least squares.
    first = sizes[0].ranks
    xs = [first / size.ranks for size in sizes]
    ys = [size.seconds for size in sizes]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    fixed = mean_y - slope * mean_x
    return min(1.0, max(0.0, fixed / (fixed + slope))) if fixed + slope > 0 else None


def _best(sizes: Sequence[Size]) -> int:
    """Return the largest size whose speed-up over the next smaller one is at least half of its extra ranks."""
    best = sizes[0]
    for size in sizes[1:]:
        if best.seconds / size.seconds - 1 < 0.5 * (size.ranks / best.ranks - 1):
            break
        best = size
    return best.ranks


def _sentences(sizes: Sequence[Size]) -> tuple[str, ...]:
    sentences = []
    for smaller, larger in pairwise(sizes):
        gain = smaller.seconds / larger.seconds - 1
        extra_cost = larger.ranks / smaller.ranks / (1 + gain) - 1
        gain_text = f"{gain:.0%} faster" if gain >= 0 else f"{-gain:.0%} slower"
        cost_text = f"cost {extra_cost:.0%} more" if extra_cost > 0.005 else "cost no more"
        sentences.append(f"{larger.ranks} ranks are {gain_text} than {smaller.ranks} and {cost_text}")
    return tuple(sentences)
