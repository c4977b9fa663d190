"""Prometheus metrics of running jobs' MPI calls: time and traffic by rank, time by kind of call, bandwidth.

Ranks are labels, so their number is bounded: of more ranks, those with the smallest and the largest share of
MPI are exported, which shows imbalance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Any

from mpijob.model.status.mpi_profile import CallKind, MpiProfile, RankProfile

# Of one job.
MOST_RANKS = 64
_RANKS: dict[str, str] = {
    "mpijob_rank_mpi_ratio": "Fraction of its time that a rank spent in MPI.",
    "mpijob_rank_mpi_seconds": "Time that a rank spent in MPI.",
    "mpijob_rank_sent_bytes": "Bytes that a rank sent through MPI.",
    "mpijob_rank_sent_messages": "Messages that a rank sent through MPI.",
}
_JOBS: dict[str, str] = {
    "mpijob_mpi_latency_seconds": "Mean latency of blocking messages of at most 1 KiB, including waits.",
    "mpijob_mpi_bandwidth_bytes": "Median bandwidth between two ranks in bytes per second (large blocking messages).",
    "mpijob_mpi_slowest_bandwidth_bytes": "Bandwidth of the slowest pair of ranks in bytes per second.",
}


def families(found: Iterable[tuple[str, str, MpiProfile]], gauge: Any) -> Iterator[Any]:
    """Yield the metrics of jobs, given by namespace and name."""
    ranks: dict[str, list[Any]] = {name: [] for name in _RANKS}
    jobs: dict[str, list[Any]] = {name: [] for name in _JOBS}
    kinds: list[Any] = []
    for namespace, job, profile in found:
        for one in _exported(profile.ranks):
            key = (namespace, job, str(one.rank))
            for name, value in zip(_RANKS, (one.share, one.mpi_seconds, one.sent, one.messages), strict=True):
                ranks[name].append((key, value))
        for name, number in zip(_JOBS, _of_job(profile), strict=True):
            jobs[name] += [((namespace, job), number)] if number is not None else []
        kinds += [((namespace, job, kind.value), _seconds(profile, kind)) for kind in CallKind]
    for name, text in _RANKS.items():
        yield gauge(name, text, ("namespace", "job", "rank"), ranks[name])
    for name, text in _JOBS.items():
        yield gauge(name, text, ("namespace", "job"), jobs[name])
    yield gauge("mpijob_mpi_kind_seconds", "Time of all ranks in MPI, by kind of call.",
                ("namespace", "job", "kind"), kinds)  # fmt: skip


def _exported(ranks: Sequence[RankProfile]) -> Sequence[RankProfile]:
    if len(ranks) <= MOST_RANKS:
        return ranks
    ordered = sorted(ranks, key=lambda one: one.share)
    return (*ordered[: MOST_RANKS // 2], *ordered[-MOST_RANKS // 2 :])


def _of_job(profile: MpiProfile) -> tuple[float | None, float | None, float | None]:
    latencies = [one.latency_seconds for one in profile.ranks if one.latency_seconds is not None]
    rates = [pair.bandwidth for pair in profile.pairs if pair.bandwidth is not None]
    slowest = profile.slowest.bandwidth if profile.slowest is not None else None
    return (median(latencies) if latencies else None, median(rates) if rates else None, slowest)


def _seconds(profile: MpiProfile, kind: CallKind) -> float:
    return sum(call.seconds for call in profile.calls if call.kind is kind)
