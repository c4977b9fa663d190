"""The `watch` command: jobs live, as a screen on a terminal, otherwise one line for each change."""

from __future__ import annotations

import time
from importlib.util import find_spec
from typing import Any

import click

from mpijob.backends.outage_tolerance import OutageTolerance
from mpijob.cli import exit_codes
from mpijob.cli.commands.list import filters
from mpijob.cli.context import App, pass_app
from mpijob.cli.options import command, job_names
from mpijob.cli.output import Format
from mpijob.cli.render import job_table
from mpijob.cli.render.job_table import tell_if_deleted
from mpijob.cli.render.warning_lines import WarningPrinter
from mpijob.errors import BackendError, Finding
from mpijob.model import JobKey, JobState, Phase

_REFRESH_SECONDS = 0.5
_WARN_SECONDS = 5.0


@command("watch", outputs=(Format.TABLE, Format.JSON))
@click.argument("name", required=False, metavar="[NAME]", shell_complete=job_names)
@filters
@pass_app
def watch(app: App, name: str | None, **chosen: Any) -> None:
    """Watch jobs live.

    With NAME, show phase, workers, ranks and last log lines of one job until it ends.
    """
    # A job that does not exist is an error at once.
    if name and (known := app.client.state(name)).deleted is not None:
        tell_if_deleted(app, known)
        _show(app, known, job_table.result_line(known))
        exit_codes.end(exit_codes.after(known.phase))
    moving = app.out.format is Format.TABLE and app.out.live() and find_spec("rich") is not None
    state = _screen(app, name, chosen) if moving else _changes(app, name, chosen)
    if state is not None:
        exit_codes.end(exit_codes.after(state.phase))


def _changes(app: App, name: str | None, chosen: dict[str, Any]) -> JobState | None:
    printed: dict[JobKey, str] = {}
    warnings = WarningPrinter(app, app.out.line)
    for state in app.client.watch(names=(name,) if name else (), **chosen):
        line = job_table.result_line(state) if state.phase.final else job_table.phase_line(state)
        if printed.get(state.ref.key) != line:
            printed[state.ref.key] = line
            _show(app, state, line)
        # In JSON they are in the state.
        if app.out.format is Format.TABLE:
            warnings.print_new(state.ref, state.findings)
        if name and (state.phase.final or state.phase is Phase.DELETING):
            return state
    return None


def _show(app: App, state: JobState, line: str) -> None:
    if app.out.format is Format.JSON:
        app.out.json_line(state)
    else:
        app.out.phases([line], [state.phase])


def _screen(app: App, name: str | None, chosen: dict[str, Any]) -> JobState | None:
    from rich.live import Live

    secrets = app.client.masked_values(name) if name else ()
    patience, warnings = OutageTolerance(), _PeriodicWarnings(app)
    with Live(auto_refresh=False, screen=False) as live:
        while True:
            try:
                state, picture = _picture(app, name, chosen, secrets, warnings)
            except BackendError as error:
                time.sleep(patience.tolerate(error))
                continue
            patience.reset()
            live.update(picture, refresh=True)
            if state is not None and state.phase.final:
                return state
            time.sleep(_REFRESH_SECONDS)


def _picture(
    app: App, name: str | None, chosen: dict[str, Any], secrets: tuple[str, ...], warnings: _PeriodicWarnings
) -> tuple[JobState | None, Any]:
    """Return the screen, and the state of the job that it shows."""
    from mpijob.cli.render import live_view

    if name is None:
        return None, live_view.jobs(app.client.list(**chosen).items, app.now())
    state = app.client.state(name)
    lines = tuple(app.client.logs(name, tail=live_view.LAST_LINES))
    return state, live_view.job(state, lines, app.now(), secrets, warnings.about(state))


class _PeriodicWarnings:
    """The warnings of a watched job, read at intervals: they cost more than its state."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._last: tuple[Finding, ...] = ()
        self._asked = -_WARN_SECONDS

    def about(self, state: JobState) -> tuple[Finding, ...]:
        """Return the last warnings."""
        if state.phase is Phase.RUNNING and time.monotonic() - self._asked >= _WARN_SECONDS:
            self._last, self._asked = self._app.client.warnings(state.ref), time.monotonic()
        return self._last
