"""Accounts and metrics of a real cluster: from the record, for jobs that are gone with their namespace, for months."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from testbed import services
from tests.e2e.cluster.support import PATIENCE, Place, a_job, eventually, own_place
from tests.e2e.cluster.test_recorder import known, recorder, said
from tests.servers import free_port

from mpijob import Client, Phase
from mpijob.backends.kubernetes.backend import KubernetesBackend
from mpijob.backends.kubernetes.client import resources
from mpijob.client.observe.stages import stages
from mpijob.errors import NotFound
from mpijob.history import retention
from mpijob.history.archive import Archive
from mpijob.history.retention import RetentionSettings
from mpijob.settings import history_directory

ROOT = Path(__file__).resolve().parents[3]
REPORT = r'echo "mpijob-report {\"step\": $i, \"steps\": 40, \"loss\": 0.5}"'
TELLS = f"i=0; while [ $i -lt 40 ]; do i=$((i + 1)); {REPORT}; sleep 0.4; done"
BREAKS = f"{TELLS}; [ $OMPI_COMM_WORLD_RANK = 0 ] || exit 3; sleep 60"
DAY = 86_400.0


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
        gone = lambda: any(one.deleted for one in place.client.accounts().items)  # noqa: E731 used once
        eventually(gone, "the record knows that it is gone", PATIENCE)
    (account,) = place.client.accounts(selector="team=cv").items
    assert (account.phase.value, account.exit_code, account.workers) == ("Succeeded", 0, 2)
    assert account.held_seconds > 5.0
    assert account.core_hours > 0
    assert {"queue", "run"} <= set(stages(account, place.client.events(job.ref)))
    curves = place.client.curves("counted")
    assert (curves.progress, [one.name for one in curves.series]) == (1.0, ["loss"])
    assert place.client.usage_report(("label:team",)).rows[0].key == ("cv",)
    assert place.client.estimate(a_job("next", TELLS)) is not None


def answers(client: Client, name: str) -> dict[str, Any]:
    """Return what is known of a job, in the words that are the same while it is there and when it is not."""
    state = client.state(name)
    return {
        "state": (state.phase, state.reason, state.finished, state.ranks),
        "nodes": {worker.index: worker.node for worker in state.workers},
        "spec": client.spec(name),
        "why": [finding.code for finding in client.why(name)],
        "said": said(client, name),
        "loss": [one.values for one in client.curves(name).series],
    }


@pytest.mark.long
@pytest.mark.req("B-edge-ns", "C-history", "Q17")
def test_a_job_gone_with_its_namespace_is_fully_explained_a_week_later(kubeconfig: Path) -> None:
    with own_place(kubeconfig, "acct-week") as other:
        settings = other.settings
        with recorder(other, "--all-namespaces") as process:
            job = other.client.submit(a_job("lost", BREAKS, labels={"team": "cv"}))
            job.wait(PATIENCE)
            eventually(
                lambda: (found := known(other, "lost")) and found.state.phase is Phase.FAILED,
                "the end is recorded",
                PATIENCE,
            )
            live = answers(other.client, "lost")
            other.api.delete(resources.NAMESPACE.path("", other.namespace))
            eventually(
                lambda: (found := known(other, "lost")) and found.deleted,
                "it is known that it is gone",
                PATIENCE,
            )
            os.kill(process.pid, signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        ended = live["state"][2]
        archive = Archive(history_directory(settings, KubernetesBackend(settings).name))
        retention.apply_retention(archive, RetentionSettings.from_settings(settings), ended + 7 * DAY - 60)
        with Client(KubernetesBackend(settings), settings=settings) as client:
            assert answers(client, "lost") == live
            assert (live["state"][0], live["why"][:1]) == (Phase.FAILED, ["RANK_EXIT"])
            assert all(live["nodes"].values())
            record = client.record("lost")
            assert {moment.phase for moment in record.moments} >= {"Running", "Failed"}
            assert {fact.kind for fact in record.facts} >= {"pod", "node"}
            (account,) = client.accounts(selector="team=cv").items
            assert account.phase is Phase.FAILED
            assert account.core_hours > 0
            assert "Deleted" in {event.reason for event in client.events("lost")}
            for words in (("why", "lost"), ("describe", "lost"), ("acct",), ("trace", "lost")):
                done = other.mpijob(*words)
                assert done.returncode == 0, done.stderr
            retention.apply_retention(archive, RetentionSettings.from_settings(settings), ended + 8 * DAY)
            assert any(b"kept for 7 days" in line.text for line in client.logs("lost"))
            assert [finding.code for finding in client.why("lost")] == live["why"]
            retention.apply_retention(archive, RetentionSettings.from_settings(settings), ended + 31 * DAY)
            with pytest.raises(NotFound):
                client.state("lost")
            assert [one.ref.name for one in client.accounts(selector="team=cv").items] == ["lost"]
        archive.close()


def recorder_in(place: Place, image: str) -> list[dict[str, Any]]:
    """Return what is deployed, under names and in the namespace of this test; the record is on no volume."""
    done = subprocess.run(
        ["kubectl", "kustomize", ROOT / "deploy" / "base" / "recorder"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    text = done.stdout.replace("mpijob-recorder", place.namespace).replace("mpijob-system", place.namespace)
    documents = [one for one in yaml.safe_load_all(text) if one and one["kind"] != "PersistentVolumeClaim"]
    for one in documents:
        if one["kind"] == "Deployment":
            pod = one["spec"]["template"]["spec"]
            pod["containers"][0]["image"] = image
            pod["volumes"][0] = {"name": "record", "emptyDir": {}}
    return documents


@pytest.mark.testbed
@pytest.mark.req("C-history", "C-metrics", "FR-019", "FR-OBS-004")
def test_the_deployed_recorder_records_and_answers_prometheus_as_a_pod(kubeconfig: Path) -> None:
    with own_place(kubeconfig, "acct-pod") as other:
        documents = recorder_in(other, services.provide())
        other.apply(*documents)
        try:
            other.kubectl("rollout", "status", f"deployment/{other.namespace}", "--timeout=120s")
            job = other.succeeded(a_job("seen", "echo hello"))
            ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9464/metrics').read().decode())"
            exec_ = ("exec", f"deployment/{other.namespace}", "--", "python3", "-c", ask)
            ended = f'mpijob_jobs_finished_total{{namespace="{other.namespace}",phase="Succeeded"}} 1.0'
            told = eventually(
                lambda: ended in (text := other.kubectl(*exec_)) and text, "the end is told", PATIENCE
            )
            assert "mpijob_record_lines" in str(told)
            job.delete(grace_period=0)
            words = ("logs", "seen", "-n", other.namespace)
            eventually(
                lambda: (
                    "hello" in other.kubectl("exec", f"deployment/{other.namespace}", "--", "mpijob", *words)
                ),
                "the record answers for the deleted job",
                PATIENCE,
            )
        finally:
            other.kubectl("delete", "--ignore-not-found", "--filename=-", stdin=json.dumps(
                {"apiVersion": "v1", "kind": "List", "items": documents}))  # fmt: skip
