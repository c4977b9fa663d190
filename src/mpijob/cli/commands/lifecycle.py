"""The commands wait, cancel, suspend, resume and scale."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from mpijob.backends.common_errors import LIST_ALL_HINT
from mpijob.cli import bulk, exit_codes
from mpijob.cli.commands.list import phase_choice
from mpijob.cli.context import App, pass_app
from mpijob.cli.options import Duration, command, name_argument, names_argument
from mpijob.cli.output import Format
from mpijob.cli.render import job_table
from mpijob.client.submit.array import ARRAY_LABEL, newest
from mpijob.errors import NotFound
from mpijob.model import JobState, Phase
from mpijob.model.spec.selector import asks_for

_UNENDED = tuple(phase.value for phase in Phase if not phase.final)


@command("wait")
@names_argument
@bulk.selector_option
@click.option("--for", "phases", multiple=True, type=phase_choice, help="Phase to wait for.")
@click.option("--timeout", type=Duration(), metavar="TIME", help="Maximum total time to wait.")
@pass_app
def wait(
    app: App, names: tuple[str, ...], selector: str, phases: tuple[str, ...], timeout: float | None
) -> None:
    """Wait until jobs end or reach a phase.

    To wait for the latest submission of an array, use `-l mpijob/array=NAME`.
    """
    if bool(names) == bool(selector):
        raise click.UsageError("name the jobs, or choose them with --selector")
    names = names or _labelled(app, selector)
    wanted = tuple(Phase(phase) for phase in phases) or None
    until = None if timeout is None else time.monotonic() + timeout

    def one(name: str) -> int:
        # The timeout is for all jobs together.
        left = None if until is None else max(0.0, round(until - time.monotonic(), 1))
        with app.out.progress(f"waiting for {name} …"):
            state = app.client.wait(name, timeout=left, for_phases=wanted)
        show_state(app, state)
        if wanted is not None and state.phase in wanted:
            return exit_codes.OK
        if state.phase is Phase.FAILED:
            app.out.findings(app.client.why(name))
        return exit_codes.after(state.phase)

    bulk.by_name(app, names, one)


def _labelled(app: App, selector: str) -> tuple[str, ...]:
    """Return the names of jobs with labels; of an array that was submitted again, those of the last one."""
    found = tuple(app.client.jobs(selector=selector))
    if not found:
        raise NotFound(f"no job has the labels {selector}", hint=LIST_ALL_HINT)
    meant = newest(found) if asks_for(selector, ARRAY_LABEL) else found
    if left := len(found) - len(meant):
        app.out.note(f"not waiting for {left} jobs of an earlier submission of the array")
    return tuple(state.ref.name for state in meant)


@command("cancel")
@names_argument
@bulk.choices
@bulk.grace_option
@pass_app
def cancel(
    app: App,
    names: tuple[str, ...],
    selector: str,
    phases: tuple[str, ...],
    everything: bool,
    yes: bool,
    grace: float | None,
) -> None:
    """Cancel jobs; their records stay."""
    bulk.refuse_both(names, bool(selector or phases or everything))
    if names:
        each(app, names, lambda name: app.client.cancel(name, grace_period=grace))
        return
    bulk.chosen(
        app, "cancel", app.client.cancel_all, lambda name: show_state(app, app.client.state(name)),
        selector=selector, phases=phases or _UNENDED, yes=yes, grace=grace,
    )  # fmt: skip


@command("suspend")
@names_argument
@pass_app
def suspend(app: App, names: tuple[str, ...]) -> None:
    """Stop the processes of jobs and free their resources."""
    each(app, names, app.client.suspend)


@command("resume")
@names_argument
@pass_app
def resume(app: App, names: tuple[str, ...]) -> None:
    """Queue suspended jobs again."""
    each(app, names, app.client.resume)


@command("scale")
@name_argument
@click.argument("workers", type=click.IntRange(min=1))
@pass_app
def scale(app: App, name: str, workers: int) -> None:
    """Change the number of workers of an elastic job."""
    show_state(app, app.client.scale(name, workers))


def each(app: App, names: tuple[str, ...], act: Callable[[str], JobState]) -> None:
    """Run an action for each named job and print its state."""
    if not names:
        raise click.UsageError("name at least one job")

    def one(name: str) -> int:
        with app.out.progress(f"waiting for {name} …"):
            state = act(name)
        show_state(app, state)
        return exit_codes.OK

    bulk.by_name(app, names, one)


def show_state(app: App, state: JobState) -> None:
    """Print a job's state: one line, or all of it in a structured format."""
    if app.out.structured:
        app.out.value(state)
    elif app.out.format is Format.NAME:
        app.out.line(state.ref.name)
    else:
        line = job_table.result_line(state) if state.phase.final else job_table.phase_line(state)
        app.out.phases([line], [state.phase])
