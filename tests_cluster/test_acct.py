"""Accounts and metrics of a real cluster: from the record, for deleted jobs and for Prometheus."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests_cluster.support import PATIENCE, Place, a_job, eventually, own_place
from tests_cluster.test_recorder import recorder

from mpijob.client.stages import stages

REPORT = r'echo "mpijob-report {\"step\": $i, \"steps\": 40, \"loss\": 0.5}"'
TELLS = f"i=0; while [ $i -lt 40 ]; do i=$((i + 1)); {REPORT}; sleep 0.2; done"


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "acct") as place:
        yield place


def page(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def gone(place: Place) -> bool:
    return any(one.deleted for one in place.client.accounts().items)


@pytest.mark.req("C-history", "Q17", "FR-019", "D-metrics", "PMV-011", "PMV-014")
def test_a_deleted_job_of_a_cluster_is_accounted_for_and_was_measured(place: Place) -> None:
    port = free_port()
    with recorder(place, "--metrics-port", str(port)):
        job = place.client.submit(a_job("counted", TELLS, labels={"team": "cv"}))
        running = f'mpijob_jobs{{namespace="{place.namespace}",phase="Running"}} 1.0'
        eventually(lambda: running in page(port), "the job is told as running", PATIENCE)
        eventually(lambda: "mpijob_training_progress_ratio{" in page(port), "its progress is told", PATIENCE)
        job.wait(PATIENCE)
        ended = f'mpijob_jobs_finished_total{{namespace="{place.namespace}",phase="Succeeded"}} 1.0'
        eventually(lambda: ended in page(port), "its end is told", PATIENCE)
        told = page(port)
        for stage in ("queue", "start", "mpi_init", "run"):
            assert f'mpijob_stage_seconds_count{{namespace="{place.namespace}",stage="{stage}"}} 1.0' in told
        job.delete()
        eventually(lambda: gone(place), "the record knows that it is gone", PATIENCE)
    (account,) = place.client.accounts(selector="team=cv").items
    assert (account.phase.value, account.exit_code, account.workers) == ("Succeeded", 0, 2)
    assert account.held_seconds > 5.0
    assert account.core_hours > 0
    assert {"queue", "run"} <= set(stages(account, place.client.events(job.ref)))
    curves = place.client.curves("counted")
    assert (curves.progress, [one.name for one in curves.series]) == (1.0, ["loss"])
    assert place.client.usage_report(("label:team",)).rows[0].key == ("cv",)
    assert place.client.estimate(a_job("next", TELLS)) is not None
