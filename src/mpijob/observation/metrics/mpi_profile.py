"""The profiles of a world's ranks put together: shares, pairs, what stands out, what could not be seen. Pure.

Who is waited for is told twice: by calls that wait for one rank, and by collective calls, in which the rank that comes
last spends the least time. Bandwidth is that of large blocking messages, so it includes waiting for the other side:
the slowest link is one to look at, not yet one that is broken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean, median

import msgspec

from mpijob.model.spec.quantity import as_bytes
from mpijob.model.status.mpi_profile import CallKind, MpiCall, MpiPeer, MpiProfile, RankPair, RankProfile
from mpijob.model.status.records import spans

_APART = 0.10  # of a rank's time: less is no imbalance
_WAITS = 0.10
_SLOW, _FEWEST_LINKS, _BULK = 0.5, 3, 1 << 20
_MOST_REMARKS = 3


def profile(
    ranks: Iterable[RankProfile], *, world: int = 0, step: int | None = None, lacks: Sequence[str] = ()
) -> MpiProfile:
    """Return what the ranks of one world tell: that of a script's step, or the last that there was.

    `world` is how many ranks the job has, where that is known; `lacks` say what the engine could not count.
    """
    everybody = tuple(ranks)
    steps = tuple(sorted({one.step for one in everybody if one.step is not None}))
    wanted = step if step is not None else (steps[-1] if steps else None)
    mine = _last_world([one for one in everybody if one.step == wanted and not one.spawned])
    pairs = tuple(_pairs(mine))
    slowest = _slowest(pairs)
    return MpiProfile(
        ranks=mine,
        calls=_calls(mine),
        pairs=pairs,
        share=mean(one.share for one in mine) if mine else None,
        slowest=slowest,
        remarks=tuple(_remarks(mine, pairs, slowest)),
        lacks=(*lacks, *_lacks(mine, everybody, 0 if wanted is not None else world)),
        steps=steps,
    )


def _last_world(ranks: Sequence[RankProfile]) -> tuple[RankProfile, ...]:
    last = max((one.again for one in ranks), default=1)
    return tuple(sorted((one for one in ranks if one.again == last), key=lambda one: one.rank))


def _calls(ranks: Iterable[RankProfile]) -> tuple[MpiCall, ...]:
    sums: dict[str, MpiCall] = {}
    for call in (call for one in ranks for call in one.calls):
        before = sums.get(call.name, MpiCall(call.name, call.kind, 0, 0.0))
        sums[call.name] = MpiCall(
            call.name, call.kind, before.calls + call.calls, before.seconds + call.seconds, before.size + call.size
        )  # fmt: skip
    return tuple(sorted(sums.values(), key=lambda call: -call.seconds))


def _pairs(ranks: Iterable[RankProfile]) -> Iterable[RankPair]:
    """Return who sent how much to whom; what was fetched was sent by the rank that it came from."""
    found: dict[tuple[int, int], RankPair] = {}
    for one in ranks:
        for peer in one.peers:
            _add(found, one.rank, peer.rank, _sent(one.rank, peer))
            if peer.gets:
                _add(found, peer.rank, one.rank, RankPair(0, 0, peer.got_size, peer.gets))
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
    yield from _late(ranks)
    seconds = {one.rank: one.seconds for one in ranks}
    waits = sorted(pairs, key=lambda pair: -pair.waited_seconds)
    for pair in waits[:_MOST_REMARKS]:
        if (share := pair.waited_seconds / (seconds.get(pair.sender) or 1.0)) >= _WAITS:
            yield f"rank {pair.sender} waits for rank {pair.receiver} for {share:.0%} of its time"
    rates = [pair.bandwidth for pair in pairs if pair.bandwidth is not None]
    if slowest is None or slowest.bandwidth is None or len(rates) < _FEWEST_LINKS:
        return
    if slowest.bandwidth < _SLOW * median(rates):
        yield (
            f"the slowest link is that of ranks {slowest.sender} and {slowest.receiver}: "
            f"{as_bytes(int(slowest.bandwidth))}/s (median {as_bytes(int(median(rates)))}/s)"
        )


def _late(ranks: Sequence[RankProfile]) -> Iterable[str]:
    """Tell for whom the others wait: who is last at every meeting spends the least time there."""
    if len(ranks) < 2:
        return
    shares = {one.rank: one.share for one in ranks}
    low, high = min(shares.values()), max(shares.values())
    if high - low < _APART:
        return
    late = [rank for rank, share in shares.items() if share - low < (high - low) / 4]
    others = [share for rank, share in shares.items() if rank not in late]
    if others and len(late) <= len(others):
        who = f"rank {late[0]} is" if len(late) == 1 else f"ranks {spans(late)} are"
        spend = "spends" if len(late) == 1 else "spend"
        share = mean(shares[rank] for rank in late)
        they = "it" if len(late) == 1 else "they"
        yield (
            f"other ranks wait because {who} slow: {they} {spend} {share:.0%} of the time in MPI, "
            f"the others {mean(others):.0%}"
        )


def _lacks(ranks: Sequence[RankProfile], everybody: Sequence[RankProfile], world: int) -> Iterable[str]:
    seen = {one.rank for one in ranks}
    missing = [rank for rank in range(max([world, *(one.world for one in ranks)])) if rank not in seen]
    if missing:
        who = f"rank {missing[0]} has" if len(missing) == 1 else f"ranks {spans(missing)} have"
        yield (
            f"{who} no profile: MPI was not started, or the program links MPI statically or looks up "
            "MPI functions itself (dlsym)"
        )
    if spawned := sum(one.spawned for one in everybody):
        yield f"{spawned} spawned ranks are separate MPI worlds and not included"
    if unknown := sum(one.unattributed_size for one in ranks):
        yield f"{as_bytes(unknown)} were sent to other MPI worlds, or by calls whose receivers are unknown"
    if any(_neighbours(one) for one in ranks):
        yield "neighbourhood collectives are counted in time and calls, not by pair"
    if any(one.threads for one in ranks):
        yield "several threads may be in MPI at once, so a rank's share can exceed 100 %"


def _neighbours(one: RankProfile) -> bool:
    return any("eighbor" in call.name for call in one.calls if call.kind is CallKind.COLLECTIVE)
