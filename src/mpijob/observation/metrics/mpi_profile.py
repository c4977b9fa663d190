"""Combines the MPI profiles of a world's ranks: shares, pairs, remarks, and what was not counted. Pure.

Waiting is visible twice: in calls that wait for one rank, and in collective calls, in which the last rank to
arrive spends the least time. Bandwidth is that of large blocking messages, so it includes waiting for the
other side: the slowest link is a suspect, not proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean, median

import msgspec

from mpijob.model.spec.quantity import as_bytes
from mpijob.model.status.mpi_profile import CallKind, MpiCall, MpiPeer, MpiProfile, RankPair, RankProfile
from mpijob.model.status.records import spans

# A smaller difference in the ranks' shares is no imbalance.
_LEAST_IMBALANCE = 0.10
_LEAST_WAIT = 0.10
_SLOW, _FEWEST_LINKS, _BULK = 0.5, 3, 1 << 20
_MOST_REMARKS = 3


def profile(
    ranks: Iterable[RankProfile], *, world: int = 0, step: int | None = None, lacks: Sequence[str] = ()
) -> MpiProfile:
    """Return the profile of one world: that of a script's step, else the last one.

    `world` is the number of ranks of the job, if known; `lacks` are what the engine could not count.
    """
    all_ranks = tuple(ranks)
    steps = tuple(sorted({rank.step for rank in all_ranks if rank.step is not None}))
    chosen_step = step if step is not None else (steps[-1] if steps else None)
    of_world = _last_world([rank for rank in all_ranks if rank.step == chosen_step and not rank.spawned])
    pairs = tuple(_pairs(of_world))
    slowest = _slowest(pairs)
    return MpiProfile(
        ranks=of_world,
        calls=_calls(of_world),
        pairs=pairs,
        share=mean(rank.share for rank in of_world) if of_world else None,
        slowest=slowest,
        remarks=tuple(_remarks(of_world, pairs, slowest)),
        lacks=(*lacks, *_lacks(of_world, all_ranks, 0 if chosen_step is not None else world)),
        steps=steps,
    )


def _last_world(ranks: Sequence[RankProfile]) -> tuple[RankProfile, ...]:
    last = max((rank.again for rank in ranks), default=1)
    return tuple(sorted((rank for rank in ranks if rank.again == last), key=lambda rank: rank.rank))


def _calls(ranks: Iterable[RankProfile]) -> tuple[MpiCall, ...]:
    sums: dict[str, MpiCall] = {}
    for call in (call for rank in ranks for call in rank.calls):
        before = sums.get(call.name, MpiCall(call.name, call.kind, 0, 0.0))
        sums[call.name] = MpiCall(
            call.name, call.kind, before.calls + call.calls, before.seconds + call.seconds, before.size + call.size
        )  # fmt: skip
    return tuple(sorted(sums.values(), key=lambda call: -call.seconds))


def _pairs(ranks: Iterable[RankProfile]) -> Iterable[RankPair]:
    # A get was sent by the rank that it was fetched from.
    found: dict[tuple[int, int], RankPair] = {}
    for rank in ranks:
        for peer in rank.peers:
            _add(found, rank.rank, peer.rank, _sent(rank.rank, peer))
            if peer.gets:
                _add(found, peer.rank, rank.rank, RankPair(0, 0, peer.got_size, peer.gets))
    shown = (pair for pair in found.values() if pair.messages or pair.waited_seconds)
    return sorted(shown, key=lambda pair: (-pair.size, pair.sender, pair.receiver))


def _sent(rank: int, peer: MpiPeer) -> RankPair:
    return RankPair(
        rank,
        peer.rank,
        peer.size + peer.collective_size + peer.put_size,
        peer.messages + peer.collective_messages + peer.puts,
        peer.bulk_size / peer.bulk_seconds if peer.bulk_size >= _BULK and peer.bulk_seconds else None,
        peer.best_bandwidth or None,
        peer.waited_seconds,
    )


def _add(found: dict[tuple[int, int], RankPair], sender: int, receiver: int, more: RankPair) -> None:
    before = found.get((sender, receiver), RankPair(sender, receiver))
    found[sender, receiver] = msgspec.structs.replace(
        before,
        size=before.size + more.size,
        messages=before.messages + more.messages,
        bandwidth=before.bandwidth or more.bandwidth,
        best_bandwidth=before.best_bandwidth or more.best_bandwidth,
        waited_seconds=before.waited_seconds + more.waited_seconds,
    )


def _slowest(pairs: Iterable[RankPair]) -> RankPair | None:
    measured = [pair for pair in pairs if pair.bandwidth is not None]
    return min(measured, key=lambda pair: pair.bandwidth or 0.0, default=None)


def _remarks(
    ranks: Sequence[RankProfile], pairs: Sequence[RankPair], slowest: RankPair | None
) -> Iterable[str]:
    yield from _slow_ranks(ranks)
    seconds = {rank.rank: rank.seconds for rank in ranks}
    waits = sorted(pairs, key=lambda pair: -pair.waited_seconds)
    for pair in waits[:_MOST_REMARKS]:
        if (share := pair.waited_seconds / (seconds.get(pair.sender) or 1.0)) >= _LEAST_WAIT:
            yield f"rank {pair.sender} waits for rank {pair.receiver} for {share:.0%} of its time"
    rates = [pair.bandwidth for pair in pairs if pair.bandwidth is not None]
    if slowest is None or slowest.bandwidth is None or len(rates) < _FEWEST_LINKS:
        return
    if slowest.bandwidth < _SLOW * median(rates):
        yield (
            f"the slowest link is that of ranks {slowest.sender} and {slowest.receiver}: "
            f"{as_bytes(int(slowest.bandwidth))}/s (median {as_bytes(int(median(rates)))}/s)"
        )


def _slow_ranks(ranks: Sequence[RankProfile]) -> Iterable[str]:
    if len(ranks) < 2:
        return
    # A slow rank arrives last at every collective call and waits the least there.
    shares = {rank.rank: rank.share for rank in ranks}
    low, high = min(shares.values()), max(shares.values())
    if high - low < _LEAST_IMBALANCE:
        return
    slow = [rank for rank, share in shares.items() if share - low < (high - low) / 4]
    others = [share for rank, share in shares.items() if rank not in slow]
    if others and len(slow) <= len(others):
        subject = f"rank {slow[0]} is" if len(slow) == 1 else f"ranks {spans(slow)} are"
        spend = "spends" if len(slow) == 1 else "spend"
        share = mean(shares[rank] for rank in slow)
        pronoun = "it" if len(slow) == 1 else "they"
        yield (
            f"other ranks wait because {subject} slow: {pronoun} {spend} {share:.0%} of the time in MPI, "
            f"the others {mean(others):.0%}"
        )


def _lacks(ranks: Sequence[RankProfile], all_ranks: Sequence[RankProfile], world: int) -> Iterable[str]:
    known = {rank.rank for rank in ranks}
    missing = [rank for rank in range(max([world, *(rank.world for rank in ranks)])) if rank not in known]
    if missing:
        subject = f"rank {missing[0]} has" if len(missing) == 1 else f"ranks {spans(missing)} have"
        yield (
            f"{subject} no profile: MPI was not started, or the program links MPI statically or looks up "
            "MPI functions itself (dlsym)"
        )
    if spawned := sum(rank.spawned for rank in all_ranks):
        yield f"{spawned} spawned ranks are separate MPI worlds and not included"
    if unattributed := sum(rank.unattributed_size for rank in ranks):
        yield f"{as_bytes(unattributed)} were sent to other MPI worlds, or by calls whose receivers are unknown"
    if any(_has_neighbour_calls(rank) for rank in ranks):
        yield "neighbourhood collectives are counted in time and calls, not by pair"
    if any(rank.threads for rank in ranks):
        yield "several threads may be in MPI at once, so a rank's share can exceed 100 %"


def _has_neighbour_calls(rank: RankProfile) -> bool:
    return any("eighbor" in call.name for call in rank.calls if call.kind is CallKind.COLLECTIVE)
