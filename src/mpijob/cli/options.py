"""Options that commands share: `-n`, `-o`, job names with completion, times.

`command` creates a click command that has them; their values are stored in the App, not passed as arguments.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

import click

from mpijob.cli.context import App
from mpijob.cli.output import USUAL, Format
from mpijob.cli.render import text
from mpijob.errors import MpiJobError

SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
Function = Callable[..., Any]


def command(
    name: str, *, outputs: tuple[Format, ...] = USUAL, namespace: bool = True, **settings: Any
) -> Callable[[Function], click.Command]:
    """Return a decorator that creates a command with `-n`, `--context` and `-o` with the formats it supports."""

    def make(function: Function) -> click.Command:
        if outputs:
            function = _output_option(outputs)(function)
        if namespace:
            function = _context_option(_namespace_option(function))
        context = SETTINGS | settings.pop("context_settings", {})
        made: click.Command = click.command(name, context_settings=context, **settings)(function)  # type: ignore[no-untyped-call]  # click types each keyword apart
        return made

    return make


def _output_option(outputs: tuple[Format, ...]) -> Callable[[Function], Function]:
    return click.option(
        "-o",
        "--output",
        type=click.Choice([format.value for format in outputs]),
        expose_value=False,
        is_eager=True,
        callback=_keep_format,
        help="Output format.",
    )


def _keep_format(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(App).out.format = Format(value)


_namespace_option = click.option(
    "-n",
    "--namespace",
    expose_value=False,
    is_eager=True,
    metavar="NAME",
    callback=lambda ctx, _, value: _keep_namespace(ctx, value),
    help="Namespace of the job.",
)


_context_option = click.option(
    "--context",
    expose_value=False,
    is_eager=True,
    metavar="NAME",
    callback=lambda ctx, _, value: _keep_context(ctx, value),
    help="Where to run: `local`, a kubeconfig context, `slurm`, `slurm:PARTITION` or `slurm+ssh://HOST`.",
)


def _keep_context(ctx: click.Context, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(App).place = value


def _keep_namespace(ctx: click.Context, value: str | None) -> None:
    if value is not None and value.isdigit():
        raise click.UsageError(
            f"-n is the namespace; for {value} ranks write --ranks {value}, for workers --workers"
        )
    if value is not None:
        ctx.ensure_object(App).namespace = value


def job_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete job names; an error completes nothing."""
    app = ctx.ensure_object(App)
    try:
        page = app.client.list(limit=100)
    except MpiJobError:
        return []
    return sorted({state.ref.name for state in page.items if state.ref.name.startswith(incomplete)})


name_argument = click.argument("name", metavar="NAME", shell_complete=job_names)
names_argument = click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=job_names)


attempt_option = click.option(
    "--attempt", type=click.IntRange(min=1), metavar="N", help="Show this attempt; 1 is the first."
)


class Duration(click.ParamType[float]):
    """`90`, `90s`, `1h30m`, in seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = text.seconds_of(value) if isinstance(value, str) else float(value)
        if seconds is None:
            self.fail(f"{value!r} is not a duration: write it as 90s, 5m or 1h30m", param, ctx)
        return seconds


class Moment(click.ParamType[float]):
    """`1h` (ago) or an ISO 8601 date and time, in seconds since the epoch."""

    name = "when"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        ago = text.seconds_of(value)
        if ago is not None:
            now = ctx.ensure_object(App).now() if ctx else 0.0
            return max(0.0, now - ago)
        try:
            return max(0.0, datetime.fromisoformat(value).timestamp())
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a time: write it as 1h, 24h or 2025-01-31T09:00", param, ctx)


class Numbers(click.ParamType[tuple[int, ...]]):
    """`0-3,7` as a tuple of numbers."""

    name = "numbers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return text.numbers(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def confirm(app: App, question: str, yes: bool) -> None:
    """Ask for confirmation; end the command if the answer is no."""
    if yes:
        return
    if not someone_is_there():
        raise click.UsageError(f"{question} No terminal for confirmation: add --yes")
    if not click.confirm(question, err=True):
        app.out.note("nothing was changed")
        raise click.exceptions.Exit(130)


def someone_is_there() -> bool:
    """Return whether stdin is a terminal."""
    return sys.stdin.isatty()
