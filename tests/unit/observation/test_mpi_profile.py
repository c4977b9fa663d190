"""What a rank counted of its MPI calls: the file as it is read, and what a world of them tells."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.unit.mpi_profiles import BEGAN, RATE, a_file

from mpijob.model.status.mpi_profile import CallKind, MpiCall, MpiPeer, RankProfile
from mpijob.observation.metrics import mpi_profile, mpi_profile_file
from mpijob.observation.metrics.mpi_profile_file import BadProfile

NAME = "rank-0.mpiprofile"
SECOND = RATE


def read(data: bytes, name: str = NAME, until: float = BEGAN + 10) -> RankProfile:
    return mpi_profile_file.read(name, data, until)


def test_calls_peers_and_shares_are_read() -> None:
    calls = {"MPI_Init": (1, SECOND, 0), "MPI_Send": (3, SECOND, 300), "MPI_Allreduce": (2, 3 * SECOND, 80)}
    peers = {
        1: {
            "size": 300,
            "messages": 3,
            "waited": SECOND // 2,
            "bulk": 1 << 20,
            "ticks": SECOND,
            "best": RATE // 2,
        }
    }
    found = read(a_file(calls=calls, flows=peers, small_calls=4, small_ticks=8))
    assert (found.rank, found.world, found.ended, found.library) == (0, 2, True, "Some MPI 1.0")
    assert (found.seconds, found.mpi_seconds, found.setup_seconds, found.share) == (10.0, 4.0, 1.0, 0.4)
    assert found.calls[1] == MpiCall("MPI_Send", CallKind.POINT_TO_POINT, 3, 1.0, 300)
    assert found.peers == (
        MpiPeer(
            1, 300, 3, waited_seconds=0.5, bulk_size=1 << 20, bulk_seconds=1.0, best_bandwidth=2 * (1 << 20)
        ),
    )
    assert found.latency_seconds == pytest.approx(2e-6)
    assert found.seconds_in(CallKind.COLLECTIVE, CallKind.POINT_TO_POINT) == 4.0


def test_what_went_to_a_whole_communicator_is_told_of_each_of_its_members() -> None:
    found = read(a_file(1, 4, shared=[(100, 2, ()), (50, 1, (3, 1))]))
    assert {peer.rank: (peer.collective_size, peer.collective_messages) for peer in found.peers} == {
        0: (100, 2),
        2: (100, 2),
        3: (150, 3),
    }


def test_a_rank_that_runs_is_in_a_call_as_long_as_that_lasts() -> None:
    data = a_file(calls={"MPI_Wait": (1, SECOND, 0)}, ended=False, seconds=4, current=3, current_peer=1,
                  current_since=4 * SECOND)  # fmt: skip
    found = read(data, until=BEGAN + 10)
    assert (found.calling, found.calling_peer, found.calling_seconds) == ("MPI_Wait", 1, 6.0)
    assert (found.seconds, found.mpi_seconds) == (10.0, 7.0)
    assert [(call.name, call.calls) for call in found.calls] == [("MPI_Wait", 2)]


def test_a_pause_is_no_part_of_the_time() -> None:
    assert read(a_file(paused=3 * SECOND)).seconds == 7.0
    assert read(a_file(ended=False, paused_since=8 * SECOND), until=BEGAN + 10).seconds == 8.0


@pytest.mark.parametrize(
    ("name", "step", "again", "spawned"),
    [
        ("rank-0.mpiprofile", None, 1, False),
        ("step-4-rank-0.2.mpiprofile", 4, 2, False),
        ("spawned-817.mpiprofile", None, 1, True),
    ],
)
def test_the_name_of_a_file_tells_the_step_and_the_world(
    name: str, step: int | None, again: int, spawned: bool
) -> None:
    found = read(a_file(spawned=int(spawned)), name)
    assert (found.step, found.again, found.spawned) == (step, again, spawned)


@pytest.mark.security
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x" * 296,
        a_file()[:-1],
        a_file(version=2),
        a_file(rate=0),
        a_file(rank=5, world=2),
        a_file(functions=2**31),
        a_file(peers=3),
        a_file(header_size=8),
    ],
)
def test_what_is_no_profile_is_refused(data: bytes) -> None:
    with pytest.raises(BadProfile):
        read(data)


@pytest.mark.security
@given(some.binary(max_size=64), some.integers(0, 800))
def test_a_file_that_a_program_has_written_over_is_read_or_refused(junk: bytes, at: int) -> None:
    data = bytearray(a_file(shared=[(5, 1, (1, 0))]))
    data[at : at + len(junk)] = junk
    try:
        found = read(bytes(data[:4000]))
    except BadProfile:
        return
    assert found.seconds >= 0.0
    assert all(0 <= peer.rank < found.world for peer in found.peers)
    msgspec.json.encode(found)


# -- a world -----------------------------------------------------------------------------------------------------
def a_rank(rank: int, share: float, *peers: MpiPeer, **fields: object) -> RankProfile:
    calls = (MpiCall("MPI_Allreduce", CallKind.COLLECTIVE, 10, 10 * share, 100),)
    values = {"seconds": 10.0, "mpi_seconds": 10 * share, "calls": calls, "peers": peers, "world": 4} | fields
    return RankProfile(rank=rank, **values)  # type: ignore[arg-type]  # a builder


def test_the_rank_that_the_others_wait_for_is_named() -> None:
    found = mpi_profile.profile([a_rank(0, 0.6), a_rank(1, 0.62), a_rank(2, 0.05), a_rank(3, 0.58)])
    assert found.share == pytest.approx(0.4625)
    assert found.remarks == (
        "other ranks wait because rank 2 is slow: it spends 5% of the time in MPI, the others 60%",
    )


def test_an_even_world_and_one_of_two_halves_tell_nobody() -> None:
    assert mpi_profile.profile([a_rank(0, 0.40), a_rank(1, 0.45)]).remarks == ()
    assert mpi_profile.profile([a_rank(n, 0.1 if n < 3 else 0.6) for n in range(4)]).remarks == ()


def test_a_pair_of_which_one_waits_long_is_told() -> None:
    late = a_rank(1, 0.5, MpiPeer(0, waited_seconds=4.0))
    found = mpi_profile.profile([a_rank(0, 0.45), late])
    assert found.remarks == ("rank 1 waits for rank 0 for 40% of its time",)


def test_the_slowest_link_is_told_where_it_is_far_from_the_others() -> None:
    def linked(rank: int, megabytes: float) -> RankProfile:
        peer = MpiPeer((rank + 1) % 4, 8 << 20, 8, bulk_size=8 << 20, bulk_seconds=8 / megabytes)
        return a_rank(rank, 0.3, peer)

    found = mpi_profile.profile([linked(0, 900), linked(1, 1000), linked(2, 100), linked(3, 950)])
    assert found.slowest is not None
    assert (found.slowest.sender, found.slowest.receiver) == (2, 3)
    assert found.remarks == ("the slowest link is that of ranks 2 and 3: 100 MiB/s (median 925 MiB/s)",)


def test_what_a_rank_fetched_was_sent_by_the_rank_that_had_it() -> None:
    found = mpi_profile.profile([a_rank(0, 0.1, MpiPeer(1, 10, 1, got_size=70, gets=2)), a_rank(1, 0.1)])
    assert {(pair.sender, pair.receiver): (pair.size, pair.messages) for pair in found.pairs} == {
        (0, 1): (10, 1),
        (1, 0): (70, 2),
    }


def test_of_several_worlds_the_last_is_told_and_of_a_script_the_step() -> None:
    ranks = [a_rank(0, 0.1, again=1), a_rank(0, 0.9, again=2)]
    assert [one.share for one in mpi_profile.profile(ranks).ranks] == [0.9]
    steps = [a_rank(0, 0.1, step=0, world=1), a_rank(0, 0.5, step=3, world=1)]
    last = mpi_profile.profile(steps)
    assert (last.steps, [one.step for one in last.ranks]) == ((0, 3), [3])
    assert [one.step for one in mpi_profile.profile(steps, step=0).ranks] == [0]


def test_what_could_not_be_seen_is_said() -> None:
    ranks = [
        a_rank(0, 0.1, unattributed_size=4096, threads=True),
        a_rank(1, 0.1),
        a_rank(0, 0.1, spawned=True),
    ]
    found = mpi_profile.profile(ranks, world=4, lacks=("worker 1: the image lacks gzip or base64",))
    assert [lack.split(":")[0].split(" no ")[0].split(" were ")[0] for lack in found.lacks] == [
        "worker 1",
        "ranks 2-3 have",
        "1 spawned ranks are separate MPI worlds and not included",
        "4 KiB",
        "several threads may be in MPI at once, so a rank's share can exceed 100 %",
    ]
