"""Links between workers: what is read of a probe, which links stand out and which do not, who talked to whom."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cli_support import Cli

from mpijob import Client
from mpijob.backends.memory import MemoryBackend
from mpijob.client.admin import network_probe as probing
from mpijob.errors import NotFound
from mpijob.observation.health import mpi_monitoring
from mpijob.observation.health import network_probe as network
from mpijob.observation.health.network_probe import Link, Matrix, with_slow_links
from mpijob.settings import Settings

NODES = {rank: f"node-{rank}" for rank in range(4)}


def said(*pairs: tuple[int, int, float, float]) -> list[bytes]:
    hosts = [b"mpijob-network host %d w%d -" % (rank, rank) for rank in range(4)]
    return hosts + [f"mpijob-network pair {a} {b} {c} {d}".encode() for a, b, c, d in pairs]


def links(slow: dict[tuple[int, int], tuple[float, float]]) -> list[bytes]:
    pairs = [(low, high) for low in range(4) for high in range(low + 1, 4)]
    return said(*((low, high, *slow.get((low, high), (30.0, 900.0))) for low, high in pairs))


@pytest.mark.req("PMV-012")
def test_equal_links_do_not_stand_out() -> None:
    found = network.read(links({}), NODES)
    assert (len(found.links), found.slow, found.suspects) == (6, (), ())


def test_a_slow_link_is_named_with_what_is_usual() -> None:
    found = network.read(links({(1, 2): (400.0, 90.0)}), NODES)
    assert [one.message for one in found.slow] == [
        "slow link between worker 1 (node-1) and worker 2 (node-2): 400 µs (median 30 µs between machines), "
        "90 MB/s (median 900 MB/s between machines)"
    ]
    assert found.suspects == ()


def test_a_machine_of_which_every_link_is_slow_is_a_suspect() -> None:
    bad = {(0, 3): (30.0, 90.0), (1, 3): (30.0, 80.0), (2, 3): (30.0, 70.0)}
    usual = {(0, 1): (30.0, 900.0), (0, 2): (30.0, 910.0), (1, 2): (30.0, 890.0)}
    five = [*links(bad | usual), b"mpijob-network host 4 w4 -"]
    five += [f"mpijob-network pair {low} 4 30.0 {90.0 if low == 3 else 900.0}".encode() for low in range(4)]
    found = network.read(five, NODES | {4: "node-4"})
    assert found.suspects == ("node-3",)
    assert len(found.slow) == 4


def test_shared_memory_is_not_what_a_network_is_measured_by() -> None:
    together = {0: "a", 1: "a", 2: "b", 3: "b"}
    found = network.read(links({(0, 1): (1.0, 9000.0), (2, 3): (1.0, 9000.0)}), together)
    assert found.slow == ()


def test_a_difference_of_a_few_microseconds_is_no_slow_link() -> None:
    assert network.read(links({(0, 1): (45.0, 900.0)}), NODES).slow == ()


@pytest.mark.security
@given(st.lists(st.binary(max_size=60)))
def test_whatever_a_program_prints_is_no_measurement_or_a_whole_one(lines: list[bytes]) -> None:
    found = network.read([b"mpijob-network " + line for line in lines], {})
    assert all(isinstance(link.latency_us, float) for link in found.links)


def test_the_ledger_keeps_each_machine_and_only_those_of_the_place(tmp_path: Path) -> None:
    client = Client(MemoryBackend(), settings=Settings(home=str(tmp_path)))
    found = with_slow_links(
        Matrix(("w0", "w1"), ("node-0", "node-1"), (Link(0, 1, 30.0, 900.0),)),
    )
    probing.note(client, found)
    probing.note(client, found)
    with open(tmp_path / "network.jsonl", "ab") as file:
        file.write(
            b'{"time": 1, "place": "elsewhere", "machine": "x", "links": 1, "slow": 0, "latency_us": 1,'
        )
    seen = probing.ledger(client)
    assert [(one.machine, one.links, one.slow) for one in seen] == [("node-0", 1, 0), ("node-1", 1, 0)] * 2


# what Open MPI 5.0.11 wrote for a job that sent one message, one Allreduce and one Bcast
PROFILE = b"""\
# POINT TO POINT
E\t0\t1\t8000 bytes\t1 msgs sent\t0,0,0,2,0
I\t0\t1\t16000 bytes\t3 msgs sent
# COLLECTIVES
C\t0\t1\t16000 bytes\t2 msgs sent
D\tMPI_COMM_WORLD\tprocs: 0,1
O2A\t0\t8000 bytes\t1 msgs sent
A2O\t0\t0 bytes\t0 msgs sent
A2A\t0\t8000 bytes\t1 msgs sent
I\t1\t0\t8000 bytes\t2 msgs sent\t0,0,0,2,0
A2A\t1\t8000 bytes\t1 msgs sent
"""


@pytest.mark.req("PMV-012")
def test_who_talked_to_whom_is_read_from_what_open_mpi_wrote() -> None:
    found = mpi_monitoring.read(PROFILE.splitlines())
    assert [(one.sender, one.receiver, one.messages, one.size) for one in found.flows] == [(0, 1, 1, 8000)]
    assert {(one.sender, one.receiver): one.size for one in found.inner} == {(0, 1): 16000, (1, 0): 8000}
    assert found.collective == {"one to all": (8000, 1), "all to all": (16000, 2)}
    assert found.size == 32000


def test_a_job_that_told_nothing_is_told_how_to_tell_it() -> None:
    cli = Cli()
    cli.finished("plain")
    refused = cli("network", "talk", "plain")
    assert refused.exit_code == 3
    assert "--set pml=ob1,monitoring" in refused.stderr
    with pytest.raises(NotFound):
        probing.profile(cli.connect(), "plain")


def test_a_probe_takes_two_workers_at_least_and_not_thousands() -> None:
    assert "a probe takes 2 to 64 workers, not 1" in Cli()("network", "probe", "--workers", "1").stderr
