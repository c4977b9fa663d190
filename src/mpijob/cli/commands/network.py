"""The `network` commands: bandwidth between workers, and the MPI traffic of a job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from mpijob.cli.arguments.flags import JobCommand, job_flags
from mpijob.cli.arguments.job_args import JobArguments, given_options
from mpijob.cli.context import App, pass_app
from mpijob.cli.options import SETTINGS, Duration, command, name_argument
from mpijob.cli.output import Format
from mpijob.cli.render import text
from mpijob.model.spec.quantity import as_bytes

if TYPE_CHECKING:
    from mpijob.observation.health.mpi_monitoring import MpiTraffic
    from mpijob.observation.health.network_probe import Matrix

_SHOWN = (Format.TABLE, Format.JSON, Format.YAML)
_MOST_FLOWS = 20


@click.group("network", context_settings=SETTINGS)
def network() -> None:
    """Measure the network between workers; show MPI traffic."""


@command("probe", outputs=_SHOWN, cls=JobCommand)
@given_options
@job_flags
@click.option("--timeout", type=Duration(), metavar="TIME", help="Time limit of the probe.")
@click.option("--keep", is_flag=True, help="Keep the job of the probe.")
@pass_app
def probe(app: App, timeout: float | None, keep: bool, **given: Any) -> None:
    """Measure latency and bandwidth between all pairs of workers, and report slow links.

    Runs a short job with one rank per worker, with the workers, image and placement of the job file or
    flags.
    """
    from mpijob.client.admin import network_probe

    given["words"] = given["words"] or (f"network-{os.urandom(3).hex()}",)
    like = JobArguments.of(app, given, ("true",)).job()
    if not 2 <= like.workers <= network_probe.MOST_WORKERS:
        raise click.UsageError(f"a probe takes 2 to {network_probe.MOST_WORKERS} workers, not {like.workers}")
    with app.out.progress(f"measuring {like.workers * (like.workers - 1) // 2} pairs of workers …"):
        found = network_probe.measure(app.client, like, timeout, keep=keep)
    if app.out.structured:
        app.out.value(found)
    else:
        app.out.lines(_matrix(found))


def _matrix(found: Matrix) -> Iterator[str]:
    size = len(found.hosts)
    names = [found.nodes[at] or found.hosts[at] for at in range(size)]
    header = ("WORKER", "MACHINE", *(str(at) for at in range(size)))
    yield "µs one way (upper right), MB/s (lower left):"
    yield from text.table(
        header, ((str(at), names[at], *(_cell(found, at, to) for to in range(size))) for at in range(size))
    )
    for one in found.slow:
        yield one.message
    for machine in found.suspects:
        yield f"every link of {machine} is slow: leave it out with --exclude-node {machine}"
    if not found.slow:
        yield "no slow link found"


def _cell(found: Matrix, at: int, to: int) -> str:
    link = found.link(at, to) if at != to else None
    if link is None:
        return "·"
    return f"{link.latency_us:.0f}" if at < to else f"{link.bandwidth_mb:.0f}"


@command("ledger", outputs=_SHOWN, namespace=False)
@pass_app
def ledger(app: App) -> None:
    """Show results of earlier probes by machine."""
    from mpijob.client.admin import network_probe

    found = network_probe.ledger(app.client)
    if app.out.structured:
        app.out.value(found)
        return
    rows = (
        (
            datetime.fromtimestamp(one.time, UTC).strftime("%Y-%m-%d %H:%M"),
            one.machine,
            f"{one.slow}/{one.links}",
            f"{one.latency_us:.0f}",
            f"{one.bandwidth_mb:.0f}",
        )
        for one in found
    )
    app.out.lines(text.table(("TIME", "MACHINE", "SLOW LINKS", "µs", "MB/s"), rows))


@command("talk", outputs=_SHOWN)
@name_argument
@pass_app
def talk(app: App, name: str) -> None:
    """Show the traffic between ranks of a job that ran with Open MPI's monitoring."""
    from mpijob.client.admin import network_probe

    found = network_probe.profile(app.client, name)
    if app.out.structured:
        app.out.value(found)
    else:
        app.out.lines(_talk(found))


def _talk(found: MpiTraffic) -> Iterator[str]:
    total = found.size or 1
    for title, flows in (
        ("By the program's own calls:", found.flows),
        ("Inside collective calls:", found.inner),
    ):
        largest = sorted(flows, key=lambda one: -one.size)[:_MOST_FLOWS]
        if largest:
            yield title
            rows = (
                (
                    str(one.sender),
                    str(one.receiver),
                    str(one.messages),
                    as_bytes(one.size),
                    f"{one.size / total:.0%}",
                )
                for one in largest
            )
            yield from text.table(("FROM", "TO", "MESSAGES", "SIZE", "SHARE"), rows)
    for shape, (size, messages) in found.collective.items():
        yield f"{shape}: {messages} calls, {as_bytes(size)}"


for _command in (probe, ledger, talk):
    network.add_command(_command)
