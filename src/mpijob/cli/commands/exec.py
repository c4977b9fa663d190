"""The commands exec and alloc: a command or a shell in a job's workers."""

from __future__ import annotations

import os
from secrets import token_hex
from typing import Any

import click

from mpijob.cli import exit_codes
from mpijob.cli.arguments.flags import job_flags
from mpijob.cli.arguments.job_args import JobArguments, TakesCommand, given_options, words_after
from mpijob.cli.context import App, pass_app
from mpijob.cli.options import Duration, command, name_argument
from mpijob.cli.render import job_table
from mpijob.model import JobRef, Phase

ALLOC_LABEL = "mpijob/alloc"
_HOLD = ("sleep", "infinity")


@command("exec", outputs=(), cls=TakesCommand)
@name_argument
@click.option("--worker", type=click.IntRange(min=0), metavar="N", help="Run in this worker.")
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="Run in the worker of this rank.")
@pass_app
def execute(app: App, name: str, worker: int | None, rank: int | None) -> None:
    """Run a command in a worker, beside a rank or in the launcher.

    Give the command after `--`; without one, start a shell. The exit status is that of the command.
    """
    if worker is not None and rank is not None:
        raise click.UsageError("specify --worker or --rank, not both")
    exit_codes.end(app.client.execute(name, words_after() or _shell(), worker=worker, rank=rank))


@command("alloc", outputs=(), cls=TakesCommand)
@given_options
@job_flags
@click.option(
    "--timeout", type=Duration(), metavar="TIME", help="Maximum time to wait for the workers to start."
)
@pass_app
def alloc(app: App, timeout: float | None, **given: Any) -> None:
    """Hold workers for an interactive shell.

    The workers are released when the shell, or the command after `--`, ends.
    """
    if not given["words"] and not given["files"]:
        given["words"] = (f"alloc-{token_hex(3)}",)
    job = JobArguments.of(app, given, command=_HOLD).job()
    held = app.client.submit(job.replace(labels={**job.labels, ALLOC_LABEL: "true"}))
    try:
        status = _inside(app, held.ref, timeout)
    finally:
        app.client.cancel(held.ref)
    exit_codes.end(status)


def _inside(app: App, ref: JobRef, timeout: float | None) -> int:
    with app.out.progress(f"waiting for the workers of {ref.name} …"):
        state = app.client.wait(ref, timeout=timeout, for_phases=(Phase.RUNNING,))
    app.out.phase_note(job_table.phase_line(state), state.phase)
    return app.client.execute(ref, words_after() or _shell(), worker=0)


def _shell() -> tuple[str, ...]:
    return (os.environ.get("SHELL") or "/bin/sh",)
