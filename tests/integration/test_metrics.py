"""A real Prometheus scrapes a real run: every query of every dashboard is answered, at most ten seconds late."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.servers import free_port, process
from tests.unit.api.test_metrics import ROOT, rules
from tools import dashboards

from mpijob import Client
from mpijob.backends.kubernetes.logs.http_service import HttpService
from mpijob.backends.kubernetes.metrics.prometheus_query import Prometheus
from mpijob.settings import Settings

from .support import a_job, ended, eventually, running

pytestmark = pytest.mark.engine
TRAINS = """
import sys, time
for step in range(1, 2000):
    print('mpijob-report {"step": %d, "steps": 2000, "loss": 0.5}' % step, flush=True)
    time.sleep(0.1)
"""
TALKS = """
import time
from mpi4py.MPI import COMM_WORLD as world
small, large = bytearray(8), bytearray(1 << 20)
while True:
    for buffer in (small, large):
        if world.rank == 0:
            world.Send(buffer, 1)
            world.Recv(buffer, 1)
        else:
            world.Recv(buffer, 0)
            world.Send(buffer, 0)
    time.sleep(0.01)
"""
ONLY_WITH_A_RECORDER = ("mpijob_record_lines", "mpijob_record_bytes")


def ask(port: int, query: str) -> list[dict[str, Any]]:
    address = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            told = json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == 503:  # it is just starting
            return []
        raise AssertionError(f"{query}: {error.read().decode()}") from error
    except OSError:
        return []
    assert told["status"] == "success", (query, told)
    found: list[dict[str, Any]] = told["data"]["result"]
    return found


@contextmanager
def scraped(settings: Settings, tmp_path: Path) -> Iterator[int]:
    """Yield the port of a Prometheus that asks an exporter of this home each second."""
    port, own = free_port(), free_port()
    toml = tmp_path / "settings.toml"
    toml.write_text(
        f'home = "{settings.home}"\nengine = "local"\n[rates."*"]\ncore_hour = 1.0\ncurrency = "EUR"\n'
        "[budgets.default]\nmonthly = 100\n"
    )
    told = yaml.safe_load(json.dumps(rules()))
    for group in told["groups"]:
        group["interval"] = "1s"
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(told))
    scrape = {
        "job_name": "mpijob",
        "honor_labels": True,
        "static_configs": [{"targets": [f"127.0.0.1:{own}"]}],
    }
    (tmp_path / "prometheus.yaml").write_text(
        yaml.safe_dump(
            {"global": {"scrape_interval": "1s"}, "rule_files": ["rules.yaml"], "scrape_configs": [scrape]}
        )
    )
    assert shutil.which("prometheus"), "Prometheus is not installed; `make test` does it"
    exporter = [sys.executable, "-m", "mpijob", "exporter", "-A", "--port", str(own)]
    prometheus = [
        "prometheus", "--config.file=prometheus.yaml", f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    ]  # fmt: skip
    environ = os.environ | {"MPIJOB_SETTINGS": str(toml)}
    with (
        process(*exporter, log=tmp_path / "exporter.log", env=environ),
        process(*prometheus, log=tmp_path / "prometheus.log", cwd=tmp_path),
    ):
        yield port


@pytest.mark.req("SC-016", "FR-019", "FR-022", "FR-OBS-004", "C-metrics", "D-metrics", "PMV-014")
def test_every_query_of_the_dashboards_is_answered_while_a_job_runs(
    client: Client, settings: Settings, tmp_path: Path
) -> None:
    with scraped(settings, tmp_path) as port:
        eventually(lambda: ask(port, "mpijob_up == 1"), "Prometheus has scraped the exporter")
        train = running(client, a_job("train", command=(sys.executable, "-c", TRAINS)))
        eventually(
            lambda: ask(port, 'mpijob_worker_cpu_cores{job="train"}') and ask(port, "mpijob_training_metric"),
            "what the workers use has arrived",
        )
        talk = (sys.executable, "-m", "mpi4py", "-c", TALKS)
        small = {"cpu": "100m", "memory": "128Mi"}
        talks = running(client, a_job("talks", command=talk, resources=small, profile_mpi=True))
        eventually(lambda: ask(port, 'mpijob_rank_mpi_ratio{job="talks"}'), "MPI calls are counted")
        age = float(ask(port, "time() - mpijob_newest_sample_timestamp_seconds")[0]["value"][1])
        assert age <= 10.0
        seen = time.time()
        ended(client, a_job("bad", "exit 3", resources={"cpu": "100m", "memory": "64Mi"}))
        eventually(
            lambda: ask(port, 'mpijob_jobs_finished_total{phase="Failed"} >= 1'), "the failure has arrived"
        )
        assert time.time() - seen <= 30.0
        queued = client.submit(a_job("big", "true", resources={"cpu": "2", "memory": "128Mi"}))
        eventually(lambda: ask(port, "mpijob_queue_depth"), "the queue has arrived")
        eventually(lambda: ask(port, "mpijob:success_ratio:1h"), "the rules have recorded")
        unanswered = [query for query in queries() if not ask(port, query)]
        assert [query for query in unanswered if query not in ONLY_WITH_A_RECORDER] == []
        talks.cancel(grace_period=0)
        train.cancel(grace_period=0)
        queued.cancel(grace_period=0)


def queries() -> list[str]:
    """Return every query of every dashboard, for all namespaces and jobs."""
    return [
        target["expr"].replace("$namespace", ".*").replace("$job", ".*")
        for path in sorted(dashboards.PLACE.glob("*.json"))
        for panel in json.loads(path.read_text())["panels"]
        for target in panel["targets"]
    ]


@pytest.mark.req("FR-OBS-004", "C-metrics", "C-fleet")
def test_the_rules_record_and_warn_as_they_say(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules()))
    shutil.copy(ROOT / "tests" / "fixtures" / "rules_test.yaml", tmp_path / "test.yaml")
    done = subprocess.run(
        ["promtool", "test", "rules", "test.yaml"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tested, alerts = (
        (tmp_path / "test.yaml").read_text(),
        [one for group in rules()["groups"] for one in group["rules"]],
    )
    assert [one["alert"] for one in alerts if "alert" in one and one["alert"] not in tested] == []


@pytest.mark.req("C-metrics", "FR-022", "FR-OBS-001")
def test_what_a_clusters_prometheus_knows_of_pods_is_what_workers_use(tmp_path: Path) -> None:
    """The kubelet's and NVIDIA's names, told by a page that counts; Prometheus and the questions are real."""
    begun, own, port = time.time(), free_port(), free_port()

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seconds = time.time() - begun
            of = 'namespace="team",pod="a-0",container="node"'
            rows = {
                f"container_cpu_usage_seconds_total{{{of}}}": 0.5 * seconds,
                f"container_memory_working_set_bytes{{{of}}}": 1 << 20,
                'container_network_receive_bytes_total{namespace="team",pod="a-0"}': 1000 * seconds,
                'container_network_transmit_bytes_total{namespace="team",pod="a-0"}': 500 * seconds,
                f"container_pressure_io_waiting_seconds_total{{{of}}}": 0.25 * seconds,
                'DCGM_FI_DEV_GPU_UTIL{exported_namespace="team",exported_pod="a-0",gpu="0"}': 50,
                'DCGM_FI_DEV_GPU_UTIL{exported_namespace="team",exported_pod="a-0",gpu="1"}': 100,
                'DCGM_FI_DEV_FB_USED{exported_namespace="team",exported_pod="a-0",gpu="0"}': 3,
                'container_network_receive_bytes_total{namespace="team",pod="another"}': 9e9,
            }
            self.send_response(200)
            self.end_headers()
            self.wfile.write("".join(f"{name} {value}\n" for name, value in rows.items()).encode())

        def log_message(self, *words: Any) -> None:
            pass

    page = ThreadingHTTPServer(("127.0.0.1", own), Page)
    threading.Thread(target=page.serve_forever, daemon=True).start()
    scrape = {"job_name": "pods", "honor_labels": True, "static_configs": [{"targets": [f"127.0.0.1:{own}"]}]}
    (tmp_path / "p.yaml").write_text(
        yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": [scrape]})
    )
    argv = [
        "prometheus", "--config.file=p.yaml", f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    ]  # fmt: skip
    asked = Prometheus(HttpService(f"http://127.0.0.1:{port}"))
    with process(*argv, log=tmp_path / "log", cwd=tmp_path):
        names = ["a-0", "b-0"]
        eventually(lambda: "network" in asked.used("team", names).get("a-0", {}), "it has rates", 30.0)
        found = asked.used("team", names)
    page.shutdown()
    assert set(found) == {"a-0"}
    used = found["a-0"]
    assert time.time() - 30 < used.pop("time") < time.time() + 1
    assert (used["memory_bytes"], used["gpus"], used["gpu_memory_bytes"]) == (1 << 20, 1.5, 3 << 20)
    cores = used[
        "cpu_cores"
    ]  # a rate over a minute has seen a few seconds: what is right is how rates compare
    assert 0 < cores <= 0.6
    assert (used["network"] / cores, used["io_wait"] / cores) == pytest.approx((3000, 0.5), rel=0.1)
    assert asked.used("team", names) == {}, "a Prometheus that is away tells nothing"
