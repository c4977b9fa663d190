"""Prometheus metrics: jobs by phase, times of stages, failures by cause, queues, usage of workers, own
health.

Metrics are read from the engine or from a record when they are scraped, at most every other second. Labels
are namespaces, phases, causes and running workers, and bounded: values beyond a limit are counted as `other`,
or omitted and counted. Needs the extra `metrics`.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from mpijob.accounting import costs
from mpijob.client.integrations import mpi_metrics
from mpijob.client.observe.stages import STAGES, stages
from mpijob.errors import MpiJobError, Unsupported
from mpijob.model import Phase
from mpijob.model.status.accounts import AccountQuery

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from mpijob.model import Event, JobKey, JobRef, JobState, Sample
    from mpijob.model.status.accounts import Account
    from mpijob.model.status.mpi_profile import MpiProfile
    from mpijob.observation.metrics.training import Curves
    from mpijob.serving.server import Server
    from mpijob.settings import RateSetting, Settings

    Rates = Callable[[], Mapping[str, RateSetting]]

FRESH_SECONDS = 2.0
# Running jobs with metrics for each worker.
MOST_JOBS = 200
MOST_SERIES = 4000
# Distinct values of one label: each is a time series that Prometheus keeps in memory.
MOST_WORDS = 100
MOST_CURVES = 20
MOST_PROFILES = 20
# Jobs that ended up to this long before the exporter started are counted.
_BACK_SECONDS = 86_400.0
# Ended jobs may appear in the source late: each read overlaps the last one.
_OVERLAP_SECONDS = 120.0
_BUDGET_SECONDS = 60.0
_BUCKETS = (0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 900, 3600, 14400, 86400)
_GOING = tuple(phase for phase in Phase if not phase.final)


class Source(Protocol):
    """The source of the metrics."""

    def going(self) -> Iterable[JobState]:
        """Return the unfinished jobs."""

    def ended(self, query: AccountQuery) -> Iterable[Account]:
        """Return the accounts that match."""

    def events(self, ref: JobRef) -> Iterable[Event]:
        """Return the events of a job."""

    def used(self, ref: JobRef) -> Iterable[Sample]:
        """Return the last usage sample of each worker."""

    def curves(self, ref: JobRef) -> Curves | None:
        """Return the training metrics of the last minutes."""

    def profile(self, ref: JobRef) -> MpiProfile | None:
        """Return the MPI profile, None for jobs without one."""

    def health(self) -> dict[str, tuple[str, float]]:
        """Return metrics of the source itself: by name, a help text and the value."""


class Exporter:
    """Collects from a source into its own registry; `exporter` creates it."""

    def __init__(
        self,
        source: Source,
        settings: Settings,
        clock: Callable[[], float] = time.time,
        rates: Rates | None = None,
    ) -> None:
        from prometheus_client import (
            CollectorRegistry,
            Counter,
            Histogram,
            ProcessCollector,
            disable_created_metrics,
        )

        self.registry: CollectorRegistry = CollectorRegistry(auto_describe=False)
        self._source, self._settings, self._clock = source, settings, clock
        self._told_rates: Rates = rates or (lambda: settings.rates)
        self._rates: Mapping[str, RateSetting] = settings.rates
        self._ready = False
        self._lock = threading.Lock()
        self._since = clock() - _BACK_SECONDS
        self._counted: OrderedDict[JobKey, None] = OrderedDict()
        self._words: dict[str, set[str]] = {}
        # Metrics of jobs, from the last read.
        self._families: list[Any] = []
        self._own: list[Any] = []
        self._budgets: tuple[float, tuple[costs.Budget, ...]] = (-_BUDGET_SECONDS, ())
        self._read_at, self._rated = -FRESH_SECONDS, -_BUDGET_SECONDS
        # `_created` series would double the number of stored series, and are rarely used.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        # Registered first: collecting it updates the counters below before they are written.
        self.registry.register(self)
        own: Any = {"registry": self.registry}
        self._finished = Counter(
            "mpijob_jobs_finished", "Finished jobs, by result.", ("namespace", "phase"), **own
        )
        self._failed = Counter(
            "mpijob_job_failures",
            "Failed jobs, by code of the cause.",
            ("namespace", "cause"),
            **own,
        )
        self._stages = Histogram(
            "mpijob_stage_seconds", f"Time of finished jobs in each stage: {', '.join(STAGES)}.",
            ("namespace", "stage"), buckets=_BUCKETS, **own,
        )  # fmt: skip
        self._hours = Counter(
            "mpijob_hours", "Core-, GPU- and GiB-hours of finished jobs, allocated and used.",
            ("namespace", "resource", "kind"),
            **own,
        )  # fmt: skip
        self._cost = Counter("mpijob_cost", "Cost of finished jobs.", ("namespace", "currency"), **own)
        self._errors = Counter("mpijob_exporter_errors", "Diagnoses of failed jobs.", **own)
        ProcessCollector(namespace="mpijob", registry=self.registry)
        self._ready = True

    def collect(self) -> Iterator[Any]:
        """Yield the current metrics; called for every scrape."""
        # `register` calls it for the names of metrics, before there are any.
        if not self._ready:
            return
        with self._lock:
            if time.monotonic() - self._read_at >= FRESH_SECONDS:
                self._read()
            yield from (*self._families, *self._own)

    def text(self) -> tuple[bytes, str]:
        """Return the page and its content type."""
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        with self._lock:
            if time.monotonic() - self._read_at >= FRESH_SECONDS:
                self._read()
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

    # -- reading ----------------------------------------------------------------------------------
    def _read(self) -> None:
        begun, now = time.monotonic(), self._clock()
        try:
            going = [*self._source.going()]
            self._begin_at_zero(going)
            if begun - self._rated >= _BUDGET_SECONDS:
                self._rates, self._rated = self._told_rates(), begun
            self._count(now)
            self._families = [*_going(going, now, self._word), *self._workers(going), *self._money(now)]
            up = 1.0
        except MpiJobError:
            self._errors.inc()
            up = 0.0
        own = [("mpijob_up", "Whether the last collection succeeded.", up),
               ("mpijob_exporter_look_seconds", "Duration of a collection.", time.monotonic() - begun)]  # fmt: skip
        own += [(name, text, value) for name, (text, value) in self._source.health().items()]
        self._own = [_gauge(name, text, (), [((), value)]) for name, text, value in own]
        self._read_at = time.monotonic()

    def _begin_at_zero(self, going: list[JobState]) -> None:
        """Create counters with 0 before their first increment."""
        # Prometheus computes rates from differences: a counter that appears with 1 has not increased.
        for namespace in {self._word("namespace", state.ref.namespace) for state in going}:
            for phase in (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED):
                self._finished.labels(namespace, phase.value)
            for stage in STAGES:
                self._stages.labels(namespace, stage)

    def _count(self, now: float) -> None:
        """Count the jobs that ended since the last read, each once."""
        finals = tuple(phase.value for phase in Phase if phase.final)
        query = AccountQuery(since=self._since, phases=finals, by_end=True, limit=10_000)
        for account in self._source.ended(query):
            if account.ref.key not in self._counted:
                self._counted[account.ref.key] = None
                self._count_one(account)
        while len(self._counted) > 100_000:
            self._counted.popitem(last=False)
        self._since = now - _OVERLAP_SECONDS if self._counted else self._since

    def _count_one(self, account: Account) -> None:
        namespace = self._word("namespace", account.ref.namespace)
        self._finished.labels(namespace, account.phase.value).inc()
        if account.phase is Phase.FAILED:
            self._failed.labels(namespace, self._word("cause", account.cause or "UNKNOWN")).inc()
        for stage, seconds in stages(account, self._source.events(account.ref)).items():
            self._stages.labels(namespace, stage).observe(seconds)
        for resource, held, used in (
            ("core", account.core_hours, account.core_hours_used),
            ("gpu", account.gpu_hours, account.gpu_hours_used),
            ("gib", account.gib_hours, account.gib_hours_used),
        ):
            self._hours.labels(namespace, resource, "held").inc(held)
            self._hours.labels(namespace, resource, "used").inc(used)
        rate = costs.rate(self._rates, account.ref.namespace)
        if rate != costs.FREE:
            self._cost.labels(namespace, rate.currency).inc(costs.cost(account, self._rates))

    def _word(self, label: str, value: str) -> str:
        """Return a label's value, `other` beyond the limit of values."""
        known = self._words.setdefault(label, set())
        if value not in known and len(known) >= MOST_WORDS:
            return "other"
        known.add(value)
        return value

    def _workers(self, going: list[JobState]) -> Iterator[Any]:
        """Yield usage of running workers and training metrics, within the limits."""
        running = [state for state in going if state.phase is Phase.RUNNING]
        names = ("namespace", "job", "worker")
        rows: dict[str, list[Any]] = {name: [] for name in _USED}
        newest = told = 0.0
        for state in running[:MOST_JOBS]:
            for sample in self._source.used(state.ref):
                key = (state.ref.namespace, state.ref.name, str(sample.worker))
                if told >= MOST_SERIES:
                    break
                told += len(_USED)
                newest = max(newest, sample.time)
                for name, (_, value) in _USED.items():
                    rows[name].append((key, value(sample)))
        for name, (text, _) in _USED.items():
            yield _gauge(name, text, names, rows[name])
        left = max(0, len(running) - MOST_JOBS)
        yield _gauge("mpijob_jobs_left_out", "Running jobs without metrics per worker.", (), [((), left)])
        yield _gauge(
            "mpijob_newest_sample_timestamp_seconds",
            "Time of the newest usage sample.",
            (),
            [((), newest)] if newest else [],
        )
        yield from self._trainings(running[:MOST_CURVES])
        profiles = ((one.ref, self._source.profile(one.ref)) for one in running[:MOST_JOBS])
        counted = [(ref.namespace, ref.name, found) for ref, found in profiles if found is not None]
        yield from mpi_metrics.families(counted[:MOST_PROFILES], _gauge)

    def _trainings(self, running: list[JobState]) -> Iterator[Any]:
        values: list[Any] = []
        progress: list[Any] = []
        for state in running:
            found, where = self._source.curves(state.ref), (state.ref.namespace, state.ref.name)
            if found is None:
                continue
            values += [((*where, one.name), one.last) for one in found.series[:20] if one.last is not None]
            progress += [(where, found.progress)] if found.progress is not None else []
        yield _gauge(
            "mpijob_training_metric",
            "Latest training metric of a job.",
            ("namespace", "job", "metric"),
            values,
        )
        yield _gauge(
            "mpijob_training_progress_ratio",
            "Progress of a training, from 0 to 1.",
            ("namespace", "job"),
            progress,
        )

    def _money(self, now: float) -> Iterator[Any]:
        if not self._settings.budgets:
            return
        asked, found = self._budgets
        # It reads the jobs of a month.
        if time.monotonic() - asked >= _BUDGET_SECONDS:
            query = AccountQuery(since=now - 32 * 86400.0, by_end=True, limit=10_000)
            found = costs.budgets(self._source.ended(query), self._settings.budgets, self._rates, now)
            self._budgets = (time.monotonic(), found)
        shares = [((one.namespace,), one.share) for one in found]
        forecasts = [((one.namespace,), one.forecast / one.monthly) for one in found if one.monthly]
        yield _gauge(
            "mpijob_budget_spent_ratio", "Spent fraction of this month's budget.", ("namespace",), shares
        )
        yield _gauge(
            "mpijob_budget_forecast_ratio",
            "Forecast of the fraction spent at the end of the month.",
            ("namespace",),
            forecasts,
        )


_USED: dict[str, tuple[str, Callable[[Sample], float]]] = {
    "mpijob_worker_cpu_cores": ("Cores that a worker uses.", lambda one: one.cpu_cores),
    "mpijob_worker_memory_bytes": ("Memory that a worker uses.", lambda one: one.memory_bytes),
    "mpijob_worker_gpus_busy": ("GPUs that a worker uses.", lambda one: one.gpus),
    "mpijob_worker_io_waiting": ("Processes of a worker that wait for disk I/O.", lambda one: one.io_wait),
    "mpijob_worker_network_bytes": (
        "Network traffic of a worker in bytes per second.",
        lambda one: one.network,
    ),
    "mpijob_worker_gpu_memory_bytes": ("GPU memory that a worker uses.", lambda one: one.gpu_memory_bytes),
}


def _going(going: list[JobState], now: float, word: Callable[[str, str], str]) -> Iterator[Any]:
    """Yield the metrics of unfinished jobs."""
    jobs: dict[tuple[str, str], int] = {}
    workers: dict[tuple[str, str], int] = {}
    waiting: dict[tuple[str, str], list[float]] = {}
    gpus: dict[tuple[str, ...], int] = {}
    restarts: dict[tuple[str, ...], int] = {}
    for state in going:
        namespace = word("namespace", state.ref.namespace)
        for phase in _GOING:
            jobs.setdefault((namespace, phase.value), 0)
        jobs[namespace, state.phase.value] += 1
        for worker in state.workers:
            workers[namespace, worker.phase.value] = workers.get((namespace, worker.phase.value), 0) + 1
        if state.phase is Phase.QUEUED:
            waiting.setdefault((namespace, word("queue", state.queue)), []).append(
                state.queued or state.created
            )
        if state.phase.active:
            gpus[namespace,] = gpus.get((namespace,), 0) + sum(len(worker.gpus) for worker in state.workers)
        restarts[namespace,] = restarts.get((namespace,), 0) + sum(
            worker.restarts for worker in state.workers
        )
    yield _gauge("mpijob_jobs", "Unfinished jobs, by phase.", ("namespace", "phase"), jobs.items())
    yield _gauge(
        "mpijob_workers", "Workers of these jobs, by phase.", ("namespace", "phase"), workers.items()
    )
    depth = [(key, len(found)) for key, found in waiting.items()]
    oldest = [(key, max(0.0, now - min(found))) for key, found in waiting.items()]
    queue = ("namespace", "queue")
    yield _gauge("mpijob_queue_depth", "Waiting jobs.", queue, depth)
    yield _gauge("mpijob_queue_oldest_seconds", "Longest time that a job has waited.", queue, oldest)
    yield _gauge("mpijob_gpus_held", "GPUs allocated to jobs.", ("namespace",), gpus.items())
    yield _gauge("mpijob_worker_restarts", "Restarts of existing workers.", ("namespace",), restarts.items())


def _gauge(name: str, text: str, labels: tuple[str, ...], rows: Iterable[Any]) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in rows:
        family.add_metric(list(key), float(value))
    return family


def exporter(source: Source, settings: Settings, rates: Rates | None = None) -> Exporter:
    """Return an exporter; raise Unsupported if the extra is not installed."""
    if find_spec("prometheus_client") is None:
        raise Unsupported("metrics need prometheus_client", hint="run: pip install 'mpijob[metrics]'")
    return Exporter(source, settings, rates=rates)


class ScrapeAccess(NamedTuple):
    """The address of the metrics, its TLS files, and the check of bearer tokens."""

    address: str
    port: int
    tls: tuple[str, str] | None = None
    allowed: Callable[[str], bool] | None = None


def serve(made: Exporter, scrape: ScrapeAccess) -> Server:
    """Return a server of the metrics at /metrics, which runs while it is open."""
    if find_spec("uvicorn") is None or find_spec("starlette") is None:
        raise Unsupported("serving metrics needs starlette and uvicorn", hint="run: pip install 'mpijob[ui]'")
    from mpijob.serving import server, service

    gets = {"/metrics": service.metrics_handler(made.registry, scrape.allowed)}
    app = service.application(get_handlers=gets, alive=lambda: True, ready=lambda: True)
    context = server.tls_context(*scrape.tls) if scrape.tls else None
    sock = server.listen(scrape.address, scrape.port, name="the metrics")
    return server.Server(app, sock, tls=context, max_connections=64, max_per_address=16)
