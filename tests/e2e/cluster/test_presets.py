"""Presets on a real cluster: without RDMA devices on its nodes a job falls back to TCP, says so, and runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster.support import Place, a_job, image, own_place, said

from mpijob.errors import Severity
from mpijob.formats.jobfile import presets


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "presets") as place:
        yield place


@pytest.mark.testbed
@pytest.mark.req("Q7", "UC2-AF1")
def test_a_job_for_infiniband_runs_over_tcp_where_no_node_has_a_device(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    job = a_job(
        "fast", 'echo "$NCCL_IB_DISABLE $FI_PROVIDER"', image=image("openmpi4"), presets=("infiniband",)
    )
    with caplog.at_level(logging.WARNING):
        done = place.succeeded(job)
    assert "RDMA network not detected. Performance may be degraded." in caplog.text
    assert said(done) == {0: ["1 tcp"], 1: ["1 tcp"]}
    assert done.spec.labels[presets.LABEL] == "tcp"


@pytest.mark.testbed
@pytest.mark.req("Q7", "AC8-rdma")
def test_whoever_may_not_list_nodes_gets_what_the_preset_says_and_a_notice(
    place: Place, kubeconfig_of: Callable[[str], Path]
) -> None:
    alice = Place(kubeconfig_of("alice"), "team-a", place.settings.home)
    job = a_job("fast-of-alice", namespace="team-a", image=image("openmpi4"), presets=("infiniband",))
    plan = alice.client.plan(job)
    told = {one.code: one.severity for one in plan.notices}
    assert plan.job.resources.others == {"rdma/hca": "1"}
    assert told["PRESET_LEFT_OUT"] is Severity.NOTICE
    alice.client.close()
