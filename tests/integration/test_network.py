"""A network probe with real MPI libraries, by mpi4py and by the library itself; who talked to whom, by Open MPI."""

from __future__ import annotations

import msgspec
import pytest

from mpijob import Client
from mpijob.client.admin import network_probe as probing
from mpijob.model import Family, Launch
from mpijob.observation.health import mpi_monitoring
from mpijob.observation.health import network_probe as network

from .support import PATIENCE, a_job, succeeded

pytestmark = pytest.mark.engine
_TALKS = """
import numpy
from mpi4py import MPI
world = MPI.COMM_WORLD
data = numpy.ones(1000)
if world.rank == 0:
    world.Send(data, 1)
elif world.rank == 1:
    world.Recv(data, 0)
world.Bcast(data, 0)
"""


@pytest.mark.req("PMV-012")
@pytest.mark.parametrize(("family", "blind"), [("mpich", False), ("openmpi", True)])
def test_every_pair_of_workers_is_measured(client: Client, family: str, blind: bool) -> None:
    env = {"PYTHONPATH": "."} if blind else {}
    like = a_job("probe", workers=3, mpi=Family(family), env=env)
    wanted = probing.job(like)
    if blind:  # an image without mpi4py: the library is called directly
        hidden = {"mpi4py.py": "raise ImportError"}
        wanted = wanted.replace(code=wanted.code.replace(files={**wanted.code.files, **hidden}))
    job = succeeded(client, wanted)
    found = network.read((line.text for line in job.logs()), {})
    assert [(link.low, link.high) for link in found.links] == [(0, 1), (0, 2), (1, 2)]
    assert all(link.latency_us > 0 and link.bandwidth_mb > 1 for link in found.links)


@pytest.mark.req("PMV-012")
def test_a_slow_worker_is_named_and_the_ledger_knows_the_machine(client: Client) -> None:
    env = {"PROBE_SLOW": "0.05", "PROBE_SLOW_RANK": "3"}
    found = probing.measure(client, a_job("probe", workers=5, env=env), PATIENCE)
    assert {(one.link.low, one.link.high) for one in found.slow} == {(0, 3), (1, 3), (2, 3), (3, 4)}
    assert client.list().total == 0  # the probe leaves nothing behind
    assert {one.machine for one in probing.ledger(client)} == set(found.nodes)


@pytest.mark.req("PMV-012")
def test_who_talked_to_whom_is_told_by_a_real_job(client: Client) -> None:
    job = a_job("talks", mpi=Family.OPENMPI, command=("python", "talks.py"))
    job = job.replace(
        launch=Launch(settings=mpi_monitoring.SETTINGS), code=job.code.replace(files={"talks.py": _TALKS})
    )
    succeeded(client, job)
    found = probing.profile(client, "talks")
    assert [msgspec.structs.astuple(one) for one in found.flows] == [(0, 1, 1, 8000)]
    assert found.collective["one to all"] == (8000, 1)
