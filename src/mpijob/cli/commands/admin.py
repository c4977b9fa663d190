"""The `admin` commands: limits of namespaces, and an overview of the cluster, for administrators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from mpijob.admission.resources import display_name, format_amount
from mpijob.cli.context import App, pass_app
from mpijob.cli.options import SETTINGS, Duration, command
from mpijob.cli.output import Format
from mpijob.cli.render import text
from mpijob.model.status.overview import ClusterView, Line, NamespaceView, QueueView

if TYPE_CHECKING:
    from mpijob.client.admin.limits import Administration, Governed

_VALUES = (Format.TABLE, Format.JSON, Format.YAML)
_namespace = click.argument("whose", metavar="NAMESPACE")


@click.group("admin", context_settings=SETTINGS)
def admin() -> None:
    """Set limits of namespaces, and show the whole cluster."""


def _administration(app: App) -> Administration:
    from mpijob.client.admin.limits import Administration

    return Administration(app.client)


@command("overview", outputs=_VALUES)
@pass_app
def overview(app: App) -> None:
    """Show all namespaces, GPUs, queues, preemptions and nearly exhausted quotas."""
    with app.out.progress("reading the cluster …"):
        found = _administration(app).overview()
    if app.out.structured:
        app.out.value(found)
        return
    app.out.lines(_overview_lines(found))
    for alert in found.alerts:
        app.out.line(f"alert: {alert.message}")
    if found.unread:
        app.out.note(f"no permission to read: {', '.join(found.unread)}")


def _overview_lines(found: ClusterView) -> Iterator[str]:
    yield f"GPUs: {found.gpus_held:g} of {found.gpus:g} allocated"
    header = ("NAMESPACE", "RUNNING", "WAITING", "GPUS", "QUEUES", "LIMITS")
    yield from text.table(header, [_namespace_row(one) for one in found.namespaces])
    if found.queues:
        yield ""
        header = ("QUEUE", "COHORT", "RUNNING", "WAITING", "SHARE", "TAKEN")
        yield from text.table(header, [_queue_row(one) for one in found.queues])
    if found.preemptions:
        yield ""
        rows = [(f"{one.namespace}/{one.job}", one.message) for one in found.preemptions]
        yield from text.table(("MADE WAY", "HOW"), rows)
    yield ""


def _namespace_row(one: NamespaceView) -> tuple[str, ...]:
    lines = ", ".join(_amount(line) for line in one.lines if line.percent >= 1)
    return (
        one.name,
        str(one.running),
        str(one.waiting),
        f"{one.gpus:g}",
        ", ".join(one.queues) or "-",
        lines or "-",
    )


def _queue_row(one: QueueView) -> tuple[str, ...]:
    share = "-" if one.fair_share is None else f"{one.fair_share:g}"
    taken = ", ".join(_amount(line) for line in one.lines) or "-"
    name = one.name if one.active else f"{one.name} (stopped)"
    return name, one.cohort or "-", str(one.running), str(one.waiting), share, taken


def _amount(line: Line) -> str:
    return (
        f"{format_amount(line.resource, line.used)}/{format_amount(line.resource, line.most)} "
        f"{display_name(line.resource)}"
    )


@command("limits", outputs=_VALUES)
@_namespace
@pass_app
def limits(app: App, whose: str) -> None:
    """Show the limits, quotas and queues of a namespace."""
    found = _administration(app).limits(whose)
    if app.out.structured:
        app.out.value(found)
        return
    app.out.lines(text.pairs(_limit_pairs(found)))
    if found.quotas:
        rows = [
            (
                one.source,
                display_name(one.resource),
                *(format_amount(one.resource, n) for n in (one.used, one.most)),
            )
            for one in found.quotas
        ]
        app.out.lines(text.table(("QUOTA", "OF", "USED", "MOST"), rows))
    if found.own is None:
        app.out.note(f"{whose} has no limits of its own; `{app.program} admin set {whose} …` sets some")


def _limit_pairs(found: Governed) -> Iterator[tuple[str, str]]:
    held = found.effective
    yield "Namespace", found.namespace
    yield "Workers", _most(held.max_workers)
    yield "GPUs", _most(held.max_gpus)
    yield "Jobs at once", _most(held.concurrent_jobs)
    yield "Duration", text.duration(held.max_duration_seconds) if held.max_duration_seconds else "no limit"
    yield "Images", ", ".join(held.allowed_images) or "all"
    yield "Egress", ", ".join(held.allowed_egress) or "the namespace itself, for users who may not open more"
    yield "Queue", held.queue or "-"
    yield "Queues", ", ".join(f"{name} → {behind}" for name, behind in found.queues.items())
    yield "Priorities", ", ".join(held.priority_classes) or "all"
    if held.gang is not None:
        yield "Gang", f"{held.gang.kind.value}, timeout {text.duration(held.gang.timeout_seconds)}"
    if held.rates is not None:
        rates = held.rates
        yield (
            "Rates",
            f"{rates.gpu_hour:g} per GPU-hour, {rates.cpu_hour:g} per core-hour, "
            f"{rates.memory_gib_hour:g} per GiB-hour, {rates.currency}",
        )
    if held.idle is not None:
        yield "Idle GPUs", f"{held.idle.action.value} after {text.duration(held.idle.after_seconds)}"
    if held.old_jobs is not None:
        yield "Old MPIJobs", f"{held.old_jobs.stage.value} {held.old_jobs.until}".strip()
    yield "Enforcement", held.enforcement.value
    yield "Request more", held.quota_request_url


def _most(limit: int | None) -> str:
    return "no limit" if limit is None else f"at most {limit}"


_LIMITS = {
    "max_workers": "max_workers",
    "max_gpus": "max_gpus",
    "concurrent_jobs": "concurrent_jobs",
    "max_duration": "max_duration_seconds",
    "queue": "queue",
    "gang": "gang.kind",
    "gang_timeout": "gang.timeout_seconds",
    "gpu_hour": "rates.gpu_hour",
    "cpu_hour": "rates.cpu_hour",
    "memory_gib_hour": "rates.memory_gib_hour",
    "currency": "rates.currency",
    "idle_action": "idle.action",
    "idle_after": "idle.after_seconds",
    "enforcement": "enforcement",
    "quota_request_url": "quota_request_url",
}


@command("set", outputs=())
@_namespace
@click.option("--max-workers", type=int, metavar="N", help="Maximum number of workers per job.")
@click.option("--max-gpus", type=int, metavar="N", help="Maximum number of GPUs of all jobs together.")
@click.option("--concurrent-jobs", type=int, metavar="N", help="Maximum number of running jobs.")
@click.option(
    "--max-duration", type=Duration(), metavar="TIME", help="Maximum duration of a job, such as 24h."
)
@click.option(
    "--allow-image", "images", multiple=True, metavar="PATTERN", help="Allowed images, such as repo/*."
)
@click.option(
    "--allow-egress",
    "egress",
    multiple=True,
    metavar="WORD",
    help="Allowed network destinations, such as internet:443.",
)
@click.option("--queue", metavar="NAME", help="Default queue of jobs.")
@click.option(
    "--cluster-queue", metavar="NAME", help="Create the queue as a LocalQueue of this ClusterQueue."
)
@click.option("--priority-class", "classes", multiple=True, metavar="NAME", help="Allowed priority classes.")
@click.option(
    "--gang",
    type=click.Choice(["Kueue", "Coscheduling", "Volcano", "None"]),
    help="Gang scheduler.",
)
@click.option("--gang-timeout", type=Duration(), metavar="TIME", help="Time limit for starting a job.")
@click.option("--gpu-hour", type=float, metavar="PRICE", help="Price of one GPU hour.")
@click.option("--cpu-hour", type=float, metavar="PRICE", help="Price of one core hour.")
@click.option("--memory-gib-hour", type=float, metavar="PRICE", help="Price of one GiB hour of memory.")
@click.option("--currency", metavar="CODE", help="Currency of prices.")
@click.option(
    "--idle-action",
    type=click.Choice(["Warn", "Suspend", "Requeue", "Cancel"]),
    help="What happens to a job whose GPUs are idle.",
)
@click.option("--idle-after", type=Duration(), metavar="TIME", help="How long GPUs may be idle, such as 30m.")
@click.option(
    "--enforcement",
    type=click.Choice(["Enforce", "Warn"]),
    help="Whether to refuse jobs beyond the limits, or warn.",
)
@click.option("--quota-request-url", metavar="URL", help="URL where users request more quota.")
@click.option(
    "--quota",
    "quota",
    multiple=True,
    metavar="RESOURCE=AMOUNT",
    help="Hard quota, such as gpu=8, cpu=64 or memory=1Ti; `gpu=` removes it.",
)
@click.option("--unset", multiple=True, metavar="LIMIT", help="Limit to remove, such as max-workers.")
@click.option("--dry-run", is_flag=True, help="Run a server-side dry run.")
@pass_app
def set_limits(
    app: App,
    whose: str,
    images: Sequence[str],
    egress: Sequence[str],
    classes: Sequence[str],
    cluster_queue: str | None,
    quota: Sequence[str],
    unset: Sequence[str],
    dry_run: bool,
    **given: Any,
) -> None:
    """Set limits of a namespace; limits not given stay unchanged."""
    from mpijob.client.admin.limits import LimitChanges

    wanted = {_LIMITS[name]: value for name, value in given.items() if value is not None}
    wanted |= {"allowed_images": tuple(images)} if images else {}
    wanted |= {"allowed_egress": tuple(egress)} if egress else {}
    wanted |= {"priority_classes": tuple(classes)} if classes else {}
    wishes = LimitChanges(
        limits=wanted, unset=tuple(unset), quota=dict(_amounts(quota)), cluster_queue=cluster_queue or ""
    )
    told = _administration(app).set(whose, wishes, dry_run=dry_run)
    if not told:
        app.out.note(f"{whose}: nothing changes")
        return
    app.out.line(f"{whose}: {told}")
    if dry_run:
        app.out.note("nothing was changed")


def _amounts(quota: Sequence[str]) -> Iterator[tuple[str, str]]:
    for one in quota:
        name, equals, amount = one.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--quota {one}: write it as gpu=8")
        yield name, amount


admin.add_command(overview)
admin.add_command(limits)
admin.add_command(set_limits)
