"""The commands top, queue and quota: usage, waiting jobs and capacity."""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING

import click
import msgspec

from mpijob.cli.context import App, pass_app
from mpijob.cli.options import Duration, attempt_option, command, job_names
from mpijob.cli.output import Format
from mpijob.cli.render import job_table, mpi_profile_text, text
from mpijob.model import JobState, Phase, Sample
from mpijob.model.platform.cluster import ClusterFacts
from mpijob.model.spec import quantity
from mpijob.model.spec.quantity import as_count
from mpijob.model.status.forecast import Accuracy, AccuracyReport, Outcome

if TYPE_CHECKING:
    from mpijob.model.status.mpi_profile import MpiProfile

_ACCURACY = (
    *("ESTIMATES", "JOBS", "WITH TIME", "MEDIAN ERROR", "OF WAIT"),
    *("90 % WITHIN", "TENDENCY", "IN RANGE", "LATER"),
)
_OUTCOMES = ("NAME", "NAMESPACE", "SUBMITTED", "ESTIMATE", "BETWEEN", "WAITED", "ERROR", "BASIS")
_VALUES = (Format.TABLE, Format.JSON, Format.YAML)


@command("top", outputs=_VALUES)
@click.argument("name", required=False, metavar="[NAME]", shell_complete=job_names)
@attempt_option
@pass_app
def top(app: App, name: str | None, attempt: int | None) -> None:
    """Show CPU, memory, GPU and MPI time of workers.

    Without NAME, show all running jobs. MPI time requires --profile-mpi.
    """
    names = [name] if name else [state.ref.name for state in app.client.list(phases=(Phase.RUNNING,)).items]
    profiles = {one: _profile(app, one) for one in names}
    latest = {one: _latest(app.client.metrics(one, attempt=attempt), profiles[one]) for one in names}
    if app.out.structured:
        app.out.value(latest)
        return
    if not any(latest.values()):
        app.out.note(f"no usage of {name} measured yet" if name else "no job is running")
        return
    app.out.lines(
        text.table(
            ("JOB", "WORKER", "CPU", "MEMORY", "GPUS", "NETWORK", "IO-WAIT", "MPI-TIME", "MEASURED"),
            _usage_rows(latest, app.now()),
        )
    )
    if name and (found := profiles[name]) is not None and found.ranks:
        app.out.line("")
        app.out.lines(mpi_profile_text.rank_table(found))


def _profile(app: App, name: str) -> MpiProfile | None:
    """Return the MPI profile of a job, None if it has none."""
    return app.client.profile(name) if app.client.spec(name).profile_mpi else None


def _latest(samples: tuple[Sample, ...], profile: MpiProfile | None) -> list[Sample]:
    last = {sample.worker: sample for sample in sorted(samples, key=lambda sample: sample.time)}
    shares: dict[int | None, list[float]] = {}
    for one in profile.ranks if profile is not None else ():
        shares.setdefault(one.worker, []).append(one.share)
    return [
        msgspec.structs.replace(last[worker], mpi=mean(shares[worker]) if worker in shares else None)
        for worker in sorted(last)
    ]


def _usage_rows(latest: dict[str, list[Sample]], now: float) -> list[tuple[str, ...]]:
    return [
        (
            name,
            str(sample.worker),
            f"{sample.cpu_cores:.2f}",
            job_table.memory_of(sample.memory_bytes, None),
            f"{sample.gpus:.2f}" if sample.gpu_memory_bytes else "-",
            f"{quantity.as_bytes(int(sample.network))}/s" if sample.network else "-",
            f"{sample.io_wait:.2f}" if sample.io_wait else "-",
            "-" if sample.mpi is None else f"{sample.mpi:.0%}",
            text.ago(sample.time, now),
        )
        for name, samples in latest.items()
        for sample in samples
    ]


@command("queue", outputs=_VALUES)
@click.option("--queue", default="", metavar="NAME", help="Only this queue.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Include all namespaces.")
@click.option("--accuracy", is_flag=True, help="Show how accurate earlier estimates were.")
@click.option(
    "--since",
    "seconds",
    type=Duration(),
    default=30 * 86400.0,
    metavar="TIME",
    help="With --accuracy: how far back to look; default: 30 days.",
)
@pass_app
def queue(app: App, queue: str, all_namespaces: bool, accuracy: bool, seconds: float) -> None:
    """Show waiting jobs: position, reason and estimated start.

    Each estimate names its basis. --accuracy compares earlier estimates with the actual start times.
    """
    if accuracy:
        _show_accuracy(app, app.client.wait_accuracy(seconds, all_namespaces=all_namespaces))
        return
    page = app.client.list(phases=(Phase.QUEUED,), queue=queue, all_namespaces=all_namespaces, limit=1000)
    waiting = sorted(page.items, key=_place)
    if app.out.structured:
        app.out.value(waiting)
        return
    if not waiting:
        app.out.note("no job is waiting")
        return
    header = (
        *("POSITION", "NAME", "NAMESPACE", "PRIORITY", "WAITS", "STARTS IN", "BETWEEN"),
        *("WAITING FOR", "BASIS"),
    )
    app.out.lines(text.table(header, (_queue_row(state, app.now()) for state in waiting)))


def _show_accuracy(app: App, found: AccuracyReport) -> None:
    if app.out.structured:
        app.out.value(found)
        return
    rows = [
        _accuracy_row(title, one)
        for title, one in (("at submission", found.told), ("replayed today", found.backtest))
    ]
    header = (
        "ESTIMATES",
        "JOBS",
        "WITH TIME",
        "MEDIAN ERROR",
        "OF WAIT",
        "90 % WITHIN",
        "TENDENCY",
        "IN RANGE",
        "LATER",
    )
    app.out.lines(text.table(header, rows))
    if found.outcomes:
        outcomes = [_outcome_row(one, app.now()) for one in found.outcomes[:20]]
        app.out.lines(("", *text.table(_OUTCOMES, outcomes)))
    for note in found.notes:
        app.out.note(note)


def _accuracy_row(title: str, one: Accuracy) -> tuple[str, ...]:
    percent = "-" if one.median_percent is None else f"{one.median_percent:.0f} %"
    return (
        title,
        str(one.jobs),
        str(one.estimated),
        text.duration(one.median_seconds),
        percent,
        text.duration(one.ninetieth_seconds),
        _signed(one.bias_seconds),
        f"{one.within} of {one.ranged}",
        str(one.late),
    )


def _outcome_row(one: Outcome, now: float) -> tuple[str, ...]:
    span = one.forecast.span
    return (
        one.ref.name,
        one.ref.namespace,
        text.ago(one.forecast.time, now),
        text.duration(one.forecast.seconds),
        "-" if span is None else f"{text.duration(span[0])} to {text.duration(span[1])}",
        text.duration(one.waited_seconds),
        _signed(one.error_seconds),
        one.forecast.basis or "-",
    )


def _signed(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{'+' if seconds >= 0 else '-'}{text.duration(abs(seconds))}"


@command("quota", outputs=_VALUES)
@pass_app
def quota(app: App) -> None:
    """Show capacity, free resources and the quota of the namespace."""
    facts = app.client.facts()
    if app.out.structured:
        app.out.value(facts)
        return
    app.out.lines(
        text.pairs(
            (
                ("Engine", facts.place),
                ("Capacity", job_table.amounts(facts.capacity) if facts.room_known else "not known"),
                ("Free", job_table.amounts(facts.free) if facts.room_known else "not known"),
                ("Waiting jobs", str(facts.waiting_jobs)),
            )
        )
    )
    if facts.cluster is not None:
        app.out.lines(_of_the_cluster(facts.cluster))
    if facts.quota is None:
        app.out.note("the namespace has no quota")
        return
    app.out.lines(text.table(("QUOTA", "USED", "LIMIT"), job_table.quota_rows(facts.quota)))
    if facts.quota.request_url:
        app.out.note(f"request more: {facts.quota.request_url}")


def _of_the_cluster(cluster: ClusterFacts) -> list[str]:
    """Return the shares of the queue, and the ResourceQuotas."""
    queue = cluster.queue
    shares = queue.shares or () if queue is not None else ()
    rows = [(f"queue {queue.name}", one.resource, as_count(one.most - one.free), as_count(one.most))
            for one in shares if queue is not None]  # fmt: skip
    rows += [
        (f"quota {one.quota}", one.resource, as_count(one.used), as_count(one.hard))
        for one in cluster.ceilings
    ]
    return text.table(("LIMIT OF", "RESOURCE", "USED", "MOST"), rows) if rows else []


def _place(state: JobState) -> tuple[float, float]:
    return (float("inf") if state.queue_position is None else state.queue_position, state.created)


def _queue_row(state: JobState, now: float) -> tuple[str, ...]:
    return (
        "-" if state.queue_position is None else str(state.queue_position),
        state.ref.name,
        state.ref.namespace,
        str(state.priority),
        text.age(state.queued or state.created, now),
        job_table.wait_phrase(state) or "-",
        job_table.wait_range(state),
        state.waiting_for or state.message or "-",
        state.wait_basis or "-",
    )
