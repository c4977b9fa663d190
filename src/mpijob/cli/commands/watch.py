"""watch: jobs live. On a terminal a screen that moves, in a pipe one line for each change."""

from __future__ import annotations

import time
from importlib.util import find_spec
from typing import Any

import click

from mpijob.cli import exits, shown
from mpijob.cli.commands.show import filters
from mpijob.cli.context import App, pass_app
from mpijob.cli.options import command, job_names
from mpijob.cli.output import Format, finding_lines
from mpijob.errors import Finding, Severity
from mpijob.model import JobState, Phase
from mpijob.observation.masking import secret_values

_REFRESH_SECONDS = 0.5
_WARN_SECONDS = 5.0


@command("watch", outputs=(Format.TABLE, Format.JSON))
@click.argument("name", required=False, metavar="[NAME]", shell_complete=job_names)
@filters
@pass_app
def watch(app: App, name: str | None, **chosen: Any) -> None:
    """Watch jobs live.

    With NAME: its phases, workers, ranks and last lines, until it has ended.
    """
    if name:
        app.client.state(name)  # a name that does not exist is said at once
    moving = app.out.format is Format.TABLE and app.out.live() and find_spec("rich") is not None
    state = _screen(app, name, chosen) if moving else _changes(app, name, chosen)
    if state is not None:
        exits.end(exits.after(state.phase))


def _changes(app: App, name: str | None, chosen: dict[str, Any]) -> JobState | None:
    told: dict[str, str] = {}
    warned: set[tuple[str, str, int | None, int | None]] = set()
    for state in app.client.watch(names=(name,) if name else (), **chosen):
        line = shown.result_line(state) if state.phase.final else shown.phase_line(state)
        if told.get(state.ref.uid) != line:
            told[state.ref.uid] = line
            _show(app, state, line)
        _warn(app, state, warned)
        if name and (state.phase.final or state.phase is Phase.DELETING):
            return state
    return None


def _warn(app: App, state: JobState, told: set[tuple[str, str, int | None, int | None]]) -> None:
    """Say once what is worrying about a job that runs; JSON has it in the state."""
    for finding in state.findings:
        key = (state.ref.uid, finding.code, finding.worker, finding.rank)
        if finding.severity is Severity.WARNING and key not in told and app.out.format is Format.TABLE:
            told.add(key)
            app.out.lines(f"{state.ref.name}: {line}" for line in finding_lines((finding,)))


def _show(app: App, state: JobState, line: str) -> None:
    if app.out.format is Format.JSON:
        app.out.json_line(state)
    else:
        app.out.phases([line], [state.phase])


def _screen(app: App, name: str | None, chosen: dict[str, Any]) -> JobState | None:
    from rich.live import Live

    from mpijob.cli import screen

    secrets = secret_values(app.client.spec(name)) if name else ()
    warnings, asked = tuple[Finding, ...](), -_WARN_SECONDS
    with Live(auto_refresh=False, screen=False) as live:
        while True:
            if name is None:
                live.update(screen.jobs(app.client.list(**chosen).items, app.now()), refresh=True)
            else:
                state = app.client.state(name)
                lines = tuple(app.client.logs(name, tail=screen.LAST_LINES))
                if state.phase is Phase.RUNNING and time.monotonic() - asked >= _WARN_SECONDS:
                    warnings, asked = app.client.warnings(state.ref), time.monotonic()
                live.update(screen.job(state, lines, app.now(), secrets, warnings), refresh=True)
                if state.phase.final:
                    return state
            time.sleep(_REFRESH_SECONDS)
