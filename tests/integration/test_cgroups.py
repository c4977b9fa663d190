"""A real job whose workers get cgroups in a directory that stands in for a delegated one: see test_cgroups in unit."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from mpijob import Client
from mpijob.model import Resources
from mpijob.settings import Settings

from .support import a_job, succeeded

pytestmark = pytest.mark.engine


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    place = tmp_path / "cgroup"
    place.mkdir()
    (place / "cgroup.controllers").write_text("cpu memory\n")
    return msgspec.structs.replace(settings, cgroups="on", cgroup=str(place))


@pytest.mark.parametrize("isolation", ["namespaces", "process-groups"])
def test_every_worker_enters_a_group_with_its_limits(settings: Settings, isolation: str) -> None:
    from mpijob.backends.local import LocalBackend

    settings = msgspec.structs.replace(settings, isolation=isolation)
    with Client(LocalBackend(settings), settings=settings) as client:
        job = a_job("held")
        assert "cgroups limit each worker to its memory and cores" in client.plan(job).guarantee
        uid = succeeded(client, job).ref.uid
    group = Path(settings.cgroup) / f"mpijob-{uid}-1"
    for index in range(2):
        worker = group / f"worker-{index}"
        found = {path.name: path.read_text() for path in worker.iterdir()}
        assert found == {"memory.max": str(128 << 20), "cpu.max": "50000 100000", "cgroup.procs": "0"}


def test_a_worker_that_asks_for_none_is_held_to_nothing(settings: Settings) -> None:
    from mpijob.backends.local import LocalBackend

    with Client(LocalBackend(settings), settings=settings) as client:
        job = succeeded(client, a_job("free", resources=Resources(cpu="none", memory="none")))
        workers = job.state().workers
    worker = Path(settings.cgroup) / f"mpijob-{job.ref.uid}-1" / "worker-0"
    assert int((worker / "memory.max").read_text()) > 1 << 60
    quota, period = map(int, (worker / "cpu.max").read_text().split())
    assert 1e5 * period < quota < (1 << 44)  # the kernel takes no larger quota
    assert {one.memory_limit_bytes for one in workers} == {None}


def test_a_group_that_cannot_be_made_fails_the_job_with_the_reason(client: Client) -> None:
    plan = client.plan(a_job("refused"))
    assert plan.cgroup == client.settings.cgroup
    control = Path(client.settings.cgroup) / "cgroup.subtree_control"
    control.unlink()
    control.mkdir()  # as if the delegation had been taken back since
    state = client.submit(a_job("refused")).wait(60)
    assert state.findings[0].code == "START_REFUSED"
    assert "cgroup.subtree_control" in state.findings[0].message
