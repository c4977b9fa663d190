"""The commands logs and events."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from mpijob.cli.context import App, pass_app
from mpijob.cli.follow import FollowedState, show_lines, waiting, waits
from mpijob.cli.options import Moment, Numbers, attempt_option, command, name_argument
from mpijob.cli.output import Format, coloured
from mpijob.cli.render import job_table
from mpijob.cli.render.job_table import tell_if_deleted
from mpijob.errors import NotFound
from mpijob.model import Level, Phase, Role
from mpijob.observation.logs import filters

# Lines that are written at once if no new ones are awaited.
_TOGETHER = 512
# Options that a download does not support.
_CHOICES = ("follow", "tail", "find", "before", "after")


@command("logs", outputs=(Format.TABLE, Format.JSON))
@name_argument
@click.option("-f", "--follow", is_flag=True, help="Follow until the job ends.")
@click.option("--rank", "ranks", type=Numbers(), default=(), metavar="0-3,7", help="Only these ranks.")
@click.option(
    "--step", "steps", type=Numbers(), default=(), metavar="0-3,7", help="Only these steps of a script."
)
@click.option("--worker", "workers", type=Numbers(), default=(), metavar="0-3,7", help="Only these workers.")
@click.option(
    "--role", "roles", multiple=True, type=click.Choice([role.value for role in Role]), help="Only this role."
)
@click.option(
    "--stream", "streams", multiple=True, type=click.Choice(["stdout", "stderr"]), help="Only this stream."
)
@click.option(
    "--level", type=click.Choice([level.value for level in Level]), help="Only lines of this level or above."
)
@click.option("--since", type=Moment(), metavar="TIME", help="Start time: 1h (ago), 24h, or a date and time.")
@click.option("--until", type=Moment(), metavar="TIME", help="End time, in the same form as --since.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
@click.option("--grep", "regex", default="", metavar="REGEX", help="Only lines that match.")
@click.option("--find", default="", metavar="REGEX", help="Highlight matches without filtering lines.")
@click.option(
    "-A", "--after", type=click.IntRange(min=0), default=0, metavar="N", help="Show N lines after each match."
)
@click.option(
    "-B",
    "--before",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Show N lines before each match.",
)
@click.option(
    "-C",
    "--around",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Show N lines before and after each match.",
)
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Only this attempt.")
@click.option("-p", "--previous", is_flag=True, help="Only the previous attempt.")
@click.option(
    "--fold/--no-fold",
    default=None,
    help="Collapse equal lines of several ranks into one; default on a terminal.",
)
@click.option("--timestamps", is_flag=True, help="Prefix each line with its time.")
@click.option("--no-prefix", is_flag=True, help="Do not prefix lines with the rank.")
@click.option(
    "--raw",
    is_flag=True,
    help="Print the stored bytes unchanged, including control characters and unmasked secrets.",
)
@click.option(
    "--download",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="PATH",
    help="Write each stream to a file in this directory; `-` writes the merged log to stdout.",
)
@click.option(
    "--merged", is_flag=True, help="With --download: write one file, ordered by time, with time and rank."
)
@click.option("--gzip", is_flag=True, help="With --download: compress with gzip.")
@pass_app
def logs(
    app: App,
    name: str,
    timestamps: bool,
    no_prefix: bool,
    raw: bool,
    download: Path | None,
    merged: bool,
    gzip: bool,
    around: int,
    **query: Any,
) -> None:
    """Print the merged output of launcher, workers and ranks."""
    query["before"], query["after"] = max(around, query["before"]), max(around, query["after"])
    _check(query, download, merged or gzip)
    if download is not None:
        _download(app, name, download, merged or str(download) == "-", gzip, query)
        return
    if query["fold"] is None:
        query["fold"] = app.out.live() and not raw and app.out.format is not Format.JSON
    look = FollowedState(
        raw=raw,
        prefix=not no_prefix,
        timestamps=timestamps,
        secrets=() if raw else _secrets(app, name),
        highlight=_highlight(query["find"] or query["regex"]),
        together=1 if query["follow"] else _TOGETHER,
    )
    tell_if_deleted(app, app.client.remembered)
    if query["follow"]:
        _print_waiting_reason(app, name)
    show_lines(app, app.client.logs(name, tidy=not raw, **query), look)
    # Raw output has read nothing else, so only now it is known whether the job is deleted.
    if raw:
        tell_if_deleted(app, app.client.remembered)


def _secrets(app: App, name: str) -> tuple[str, ...]:
    """Return the values to mask; unknown for a deleted job without a record, so that only patterns are masked."""
    try:
        return app.client.masked_values(name)
    except NotFound:
        if not app.settings().loki:
            raise
        app.out.note(
            f"job '{name}' is deleted; its log is read from Loki, and its secrets are no longer known"
        )
        return ()


def _check(query: dict[str, Any], download: Path | None, packing: bool) -> None:
    if packing and download is None:
        raise click.UsageError("--merged and --gzip require --download PATH")
    if (query["before"] or query["after"]) and not (query["regex"] or query["level"]):
        raise click.UsageError("-A, -B and -C require --grep or --level")
    if query["previous"] and query["attempt"] is not None:
        raise click.UsageError("--previous and --attempt exclude each other")


def _download(app: App, name: str, target: Path, merged: bool, gzip: bool, query: dict[str, Any]) -> None:
    if unfit := [word for word in _CHOICES if query[word] not in (None, False, 0, "")]:
        raise click.UsageError(f"--download cannot be combined with --{unfit[0]}")
    query["fold"] = False
    if str(target) == "-":
        app.client.download_logs(name, app.out.binary(), merged=True, compress=gzip, **query)
        tell_if_deleted(app, app.client.remembered)
        return
    files = app.client.download_logs(name, target, merged=merged, compress=gzip, **query)
    tell_if_deleted(app, app.client.remembered)
    size = sum(file.stat().st_size for file in files)
    app.out.note(f"{target}: {len(files)} file{'s' * (len(files) != 1)}, {size} bytes")


def _highlight(pattern: str) -> Callable[[str], str] | None:
    """Return a function that highlights matches; None without colour."""
    if not pattern or not coloured(sys.stdout):
        return None
    mark = filters.compile_marking(pattern, b"\x1b[1;31m", b"\x1b[0m")
    return lambda said: mark(said.encode()).decode(errors="replace")


def _print_waiting_reason(app: App, name: str) -> None:
    """Print on stderr why a job that has not started has no output yet."""
    first = app.client.state(name)
    told = ""
    for state in waiting(app, first) if first.attempt == 1 else (first,):
        if state.phase is Phase.SUSPENDED or not waits(state):
            return
        line = job_table.phase_line(state)
        if line != told and (state is first or state.waiting_for):
            app.out.phase_note(line, state.phase)
            told = line


@command("events", outputs=(Format.TABLE, Format.JSON))
@name_argument
@click.option("-f", "--follow", is_flag=True, help="Follow until the job ends.")
@attempt_option
@pass_app
def events(app: App, name: str, follow: bool, attempt: int | None) -> None:
    """Print the events of a job, oldest first."""
    for number, event in enumerate(app.client.events(name, follow=follow, attempt=attempt)):
        if not number:
            tell_if_deleted(app, app.client.remembered)
        if app.out.format is Format.JSON:
            app.out.json_line(event)
        else:
            app.out.line(job_table.event_line(event, app.now()))
