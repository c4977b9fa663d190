"""What Prometheus is told: counted once, bounded, from an engine or from a record; rules and dashboards in step."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient
from tests.unit.api_support import COOKIE, HOST
from tests.unit.history_support import a_key, a_spec, a_state
from tools import dashboards

from mpijob import AsyncClient, Client, MPIJob, Phase
from mpijob.api.app import application
from mpijob.api.auth.sessions import CookieAuth
from mpijob.api.handlers.metrics import FILE, MetricsPage, token_in
from mpijob.api.request_context import AppState
from mpijob.backends.memory import MemoryBackend, Outcome, Script
from mpijob.client.integrations import prometheus_exporter
from mpijob.client.integrations.metric_sources import OfClient, OfRecord
from mpijob.client.observe.stages import stages
from mpijob.errors import BackendError, Finding
from mpijob.history.archive import Archive
from mpijob.history.archive_reader import ArchiveReader
from mpijob.model import Event, JobRef, JobState, Sample
from mpijob.model.status.accounts import Account, AccountQuery
from mpijob.settings import BudgetSetting, RateSetting, Settings

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "deploy" / "monitoring"
Told = dict[tuple[str, frozenset[tuple[str, str]]], float]


def told(exporter: prometheus_exporter.Exporter) -> Told:
    page, _ = exporter.text()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def value(found: Told, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


@pytest.mark.req("FR-019", "FR-OBS-001", "D-metrics")
def test_ended_jobs_are_counted_once_with_stages_causes_and_hours() -> None:
    backend = MemoryBackend(
        script=Script(jobs={"bad": Outcome(exit_code=3, worker=1)}, default=Outcome(seconds=5))
    )
    settings = Settings(
        rates={"*": RateSetting(core_hour=1.0, currency="EUR")}, budgets={"default": BudgetSetting(1)}
    )
    with Client(backend, settings=settings) as client:
        exporter = prometheus_exporter.Exporter(OfClient(client), settings, clock=lambda: backend.now)
        for name in ("good", "bad"):
            client.submit(MPIJob(name=name, workers=2, command=("true",))).wait()
        told(exporter)
        exporter._read_at = -100.0
        found = told(exporter)
    assert value(found, "mpijob_jobs_finished_total", namespace="default", phase="Succeeded") == 1
    assert value(found, "mpijob_jobs_finished_total", namespace="default", phase="Failed") == 1
    assert value(found, "mpijob_job_failures_total", namespace="default", cause="WORKER_FAILED") == 1
    for stage in ("queue", "run"):
        assert value(found, "mpijob_stage_seconds_count", namespace="default", stage=stage) >= 1
    assert value(found, "mpijob_hours_total", namespace="default", resource="core", kind="held") > 0
    assert value(found, "mpijob_cost_total", namespace="default", currency="EUR") > 0
    assert value(found, "mpijob_up") == 1


def test_the_stages_of_a_job_follow_its_events() -> None:
    account = Account(
        ref=JobRef("a", "b", "c"), phase=Phase.SUCCEEDED, created=0.0, started=5.0, running=12.0, ended=50.0
    )
    events = [
        Event(0.0, "Submitted", ""), Event(5.0, "GangScheduled", ""), Event(9.0, "WorkersReady", ""),
        Event(11.0, "WorldProved", ""), Event(12.0, "Running", ""), Event(50.0, "Succeeded", ""),
    ]  # fmt: skip
    assert stages(account, events) == {
        "queue": 5.0,
        "start": 4.0,
        "connect": 2.0,
        "mpi_init": 1.0,
        "run": 38.0,
    }


class Crowd:
    """A source with more of everything than anybody should be told."""

    def going(self) -> Iterator[JobState]:
        for number in range(1000):
            ref = JobRef(f"ns{number}", f"job{number}", str(number))
            yield JobState(ref=ref, phase=Phase.RUNNING if number % 2 else Phase.QUEUED, queue=f"q{number}")

    def ended(self, query: AccountQuery) -> Iterator[Account]:
        for number in range(1000):
            ref = JobRef(f"ns{number}", "x", f"u{number}")
            yield Account(ref=ref, phase=Phase.FAILED, cause=f"CAUSE_{number}", ended=1.0)

    def events(self, ref: JobRef) -> Iterable[Event]:
        return ()

    def used(self, ref: JobRef) -> Iterable[Sample]:
        return [Sample(1.0, worker, 1.0, 1) for worker in range(100)]

    def curves(self, ref: JobRef) -> None:
        return None

    def profile(self, ref: JobRef) -> None:
        return None

    def health(self) -> dict[str, tuple[str, float]]:
        return {}


@pytest.mark.thorough
@pytest.mark.req("FR-019")
def test_labels_have_bounds_whatever_jobs_there_are() -> None:
    found = told(prometheus_exporter.Exporter(Crowd(), Settings()))
    values: dict[str, set[str]] = {}
    for _, labels in found:
        for name, word in labels:
            values.setdefault(name, set()).add(word)
    assert len(values["namespace"]) <= prometheus_exporter.MOST_WORDS + prometheus_exporter.MOST_JOBS + 1
    assert len(values["cause"]) <= prometheus_exporter.MOST_WORDS + 1
    assert "other" in values["cause"]
    workers = [1 for name, _ in found if name.startswith("mpijob_worker_")]
    assert len(workers) <= prometheus_exporter.MOST_SERIES + prometheus_exporter.MOST_WORDS + 4
    assert value(found, "mpijob_jobs_left_out") == 300
    assert len(found) < 20_000


def test_an_engine_that_does_not_answer_is_told_not_hidden() -> None:
    class Broken(Crowd):
        def going(self) -> Iterator[JobState]:
            raise BackendError("no answer")

    found = told(prometheus_exporter.Exporter(Broken(), Settings()))
    assert (value(found, "mpijob_up"), value(found, "mpijob_exporter_errors_total")) == (0, 1)


@pytest.mark.thorough
def test_an_engine_that_stops_answering_is_told_once_beside_what_was_last_seen() -> None:
    class Failing(Crowd):
        down = False

        def going(self) -> Iterator[JobState]:
            if self.down:
                raise BackendError("no answer")
            return super().going()

        def health(self) -> dict[str, tuple[str, float]]:
            return {"mpijob_record_lines": ("Stored log lines.", 7.0)}

    source = Failing()
    exporter = prometheus_exporter.Exporter(source, Settings())
    before = told(exporter)
    source.down = True
    for _ in range(3):
        exporter._read_at = -100.0
        page = exporter.text()[0].decode()
    assert [line for line in page.splitlines() if line.startswith("mpijob_up ")] == ["mpijob_up 0.0"]
    series = [line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))
    after = told(exporter)
    assert [key for key in before if key not in after] == []


@pytest.mark.thorough
@pytest.mark.req("FR-022", "FR-OBS-004")
def test_a_record_is_told_with_the_recorders_health(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path), shared=True)
    now = time.time()
    archive.put_job(a_state("run", uid="r", created=now), now=now, spec=b"")
    archive.add_samples(a_key("r"), [Sample(now, 0, 0.75, 4096, 1, 0.5, 2048)])
    ended = a_state("bad", uid="b", created=now - 60, phase=Phase.FAILED, started=now - 50, finished=now,
                    findings=(Finding("OOM_KILLED", "x"),))  # fmt: skip
    import msgspec

    archive.put_job(ended, now=now, spec=msgspec.json.encode(a_spec()))
    exporter = prometheus_exporter.exporter(OfRecord(archive, ArchiveReader(archive)), Settings())
    with (
        prometheus_exporter.serve(exporter, prometheus_exporter.ScrapeAccess("127.0.0.1", 0)) as server,
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer,
    ):
        page = answer.read().decode()
    assert 'mpijob_worker_cpu_cores{job="run",namespace="team",worker="0"} 0.75' in page
    assert 'mpijob_worker_gpus_busy{job="run",namespace="team",worker="0"} 0.5' in page
    assert 'mpijob_job_failures_total{cause="OOM_KILLED",namespace="team"} 1.0' in page
    assert "mpijob_record_lines 0.0" in page
    with pytest.raises(BackendError, match="cannot listen"):
        prometheus_exporter.serve(exporter, prometheus_exporter.ScrapeAccess("203.0.113.1", 9464))


def rules() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"]
    return found


@pytest.mark.parametrize("name", sorted(dashboards.BOARDS))
def test_the_dashboards_are_in_step(name: str) -> None:
    assert (dashboards.PLACE / f"{name}.json").read_text() == dashboards.text(name), (
        "run: python -m tools.dashboards"
    )


@pytest.mark.security
@pytest.mark.req("FR-019")
def test_the_page_of_numbers_is_for_whoever_has_the_token(tmp_path: Path) -> None:
    token = token_in(str(tmp_path))
    assert token_in(str(tmp_path)) == token
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    backend = MemoryBackend()
    with Client(backend) as client:
        page = MetricsPage(prometheus_exporter.exporter(OfClient(client), Settings()), token)
        room = AppState(
            AsyncClient(backend, settings=Settings()), CookieAuth("maria", [HOST], cookie=COOKIE), page
        )
        with TestClient(application(room), base_url=f"http://{HOST}") as http:
            for headers in ({}, {"authorization": "Bearer x"}, {"authorization": token}):
                assert http.get("/metrics", headers=headers).status_code == 401
            answer = http.get("/metrics", headers={"authorization": f"Bearer {token}"})
            assert (answer.status_code, "mpijob_up 1.0" in answer.text) == (200, True)
