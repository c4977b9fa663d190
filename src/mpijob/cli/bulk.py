"""One action for several jobs: by name, or selected by labels and phases. An error of one does not stop the
others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from mpijob.cli import exit_codes
from mpijob.cli.commands.list import phase_choice
from mpijob.cli.context import App
from mpijob.cli.options import Duration, confirm
from mpijob.errors import Conflict, MpiJobError

if TYPE_CHECKING:
    from mpijob.client.submit.resubmit import Done

Bulk = Callable[..., "tuple[Done, ...]"]
selector_option = click.option(
    "-l", "--selector", default="", metavar="LABELS", help="Label selector, such as team=cv,tier!=test."
)
grace_option = click.option(
    "--grace", type=Duration(), metavar="TIME", help="Grace period; default: that of the job."
)


def choices(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select jobs, and --yes."""
    for option in reversed(
        (
            selector_option,
            click.option("--phase", "phases", multiple=True, type=phase_choice, help="Jobs in this phase."),
            click.option("--all", "everything", is_flag=True, help="All jobs of the namespace."),
            click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation."),
        )
    ):  # fmt: skip
        function = option(function)
    return function


def refuse_both(names: Iterable[str], chosen: bool) -> None:
    """Raise UsageError if jobs are both named and selected, or neither."""
    if chosen == bool(names):
        raise click.UsageError("name the jobs, or choose them with --selector, --phase or --all")


def by_name(app: App, names: Iterable[str], act: Callable[[str], int]) -> None:
    """Run an action for each named job; print errors, and exit with the highest of their statuses."""
    worst = exit_codes.OK
    for name in names:
        try:
            worst = max(worst, act(name))
        except MpiJobError as error:
            app.out.error(error)
            worst = max(worst, exit_codes.STATUS[error.kind])
    if worst:
        exit_codes.end(worst)


def chosen(
    app: App, verb: str, act: Bulk, told: Callable[[str], None], *,
    selector: str, phases: Iterable[str], yes: bool, grace: float | None,
) -> None:  # fmt: skip
    """Run an action for all selected jobs, after confirmation; `verb` is its name, such as delete."""
    phases = tuple(phases)
    total = app.client.list(selector=selector, phases=phases, limit=1).total
    if not total:
        app.out.note("no jobs found")
        return
    doing = f"{verb.removesuffix('e')}ing" if verb.endswith("e") else f"{verb}ling"
    confirm(app, f"{verb.capitalize()} {total} {'job' if total == 1 else 'jobs'}?", yes)
    with app.out.progress(f"{doing} {total} jobs …"):
        done = act(selector=selector, phases=phases, every=True, grace_period=grace)
    for one in done:
        told(one.ref.name) if one.ok else app.out.note(f"error: {one.ref.name}: {one.error}")
    if refused := sum(not one.ok for one in done):
        raise Conflict(f"{refused} of {len(done)} jobs refused")
