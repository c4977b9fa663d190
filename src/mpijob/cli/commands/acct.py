"""The `acct` commands: usage and cost of existing and deleted jobs, as sacct and sreport show them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from mpijob.accounting import costs, fields
from mpijob.accounting.build import step_accounts as step_accounts
from mpijob.cli.commands.list import phase_choice
from mpijob.cli.context import App, pass_app
from mpijob.cli.options import Moment, command, name_argument
from mpijob.cli.output import Format
from mpijob.cli.render import text

if TYPE_CHECKING:
    from mpijob.accounting.reports import Report, Row
    from mpijob.model.status.accounts import AccountPage

_OUTPUTS = (Format.TABLE, Format.JSON, Format.YAML, Format.CSV, Format.NAME)
_TABLES = (Format.TABLE, Format.JSON, Format.YAML, Format.CSV)


def _chosen(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that filter accounts."""
    for option in reversed(
        (
            click.option("-A", "--all-namespaces", is_flag=True, help="Include all namespaces."),
            click.option(
                "-S", "--since", type=Moment(), metavar="WHEN", help="Start time: 24h, 7d, or a date."
            ),
            click.option("-E", "--until", type=Moment(), metavar="WHEN", help="End time."),
            click.option(
                "-u", "--user", "owners", multiple=True, metavar="NAME", help="Only jobs of this user."
            ),
            click.option(
                "-s",
                "--state",
                "phases",
                multiple=True,
                type=phase_choice,
                help="Only jobs in this state.",
            ),
            click.option(
                "-l",
                "--label",
                "selector",
                default="",
                metavar="LABELS",
                help="Label selector, such as team=cv,tier!=test.",
            ),
            click.option("--queue", default="", metavar="NAME", help="Only jobs of this queue."),
            click.option("--cause", default="", metavar="CODE", help="Only jobs with this cause of failure."),
        )
    ):
        function = option(function)
    return function


class _Accounts(click.Group):
    """Without a subcommand `acct` is `acct list`; an unknown word is the name of a job."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not args or args[0] not in self.commands:
            return "list", self.commands["list"], args
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # The help is that of the group, which lists the subcommands.
        if args and args[0] in ("-h", "--help"):
            return super().parse_args(ctx, args)
        if not args or args[0] not in self.commands:
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(
    "acct", cls=_Accounts, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
def acct() -> None:
    """Show resource usage and cost of jobs, as sacct does.

    Without a subcommand, list jobs, including deleted ones. For options, run `mpijob acct list --help`.
    """


@command("list", outputs=_OUTPUTS)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@_chosen
@click.option(
    "--format",
    "columns",
    default="",
    metavar="FIELDS",
    help="Columns, such as name,user,elapsed; names of sacct work too.",
)
@click.option("--fields", "only_names", is_flag=True, help="List the columns that --format accepts.")
@click.option("--steps", "with_steps", is_flag=True, help="Include steps of scripts, as JOB.0.")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Only this attempt of one job.")
@click.option("--attempts", "with_attempts", is_flag=True, help="Show each attempt of one job separately.")
@click.option("--limit", default=100, type=click.IntRange(1, 100_000), help="Maximum number of jobs.")
@click.option("--after", default="", metavar="CURSOR", help="Continue after this cursor.")
@pass_app
def list_accounts(
    app: App,
    columns: str,
    only_names: bool,
    with_steps: bool,
    names: tuple[str, ...],
    attempt: int | None,
    with_attempts: bool,
    **chosen: Any,
) -> None:
    """List accounting records, newest first.

    NAME@1 selects the first run of a name; NAME selects all runs.
    """
    if only_names:
        app.out.lines(
            text.table(("FIELD", "MEANING"), ((name, one.description) for name, one in fields.FIELDS.items()))
        )
        return
    wanted = fields.parse_fields(columns) if columns else fields.DEFAULT_FIELDS
    if attempt is not None or with_attempts:
        page = _attempts(app, names, () if attempt is None else (attempt,))
        wanted = wanted if columns else (*wanted, "attempt")
    else:
        page = app.client.accounts(names=names, **chosen)
    rates = app.client.rates()
    items = [row for one in page.items for row in (one, *(step_accounts(one) if with_steps else ()))]
    if app.out.structured:
        app.out.value({"items": [_whole(one, rates) for one in items], "after": page.after})
    elif app.out.format is Format.CSV:
        app.out.csv(wanted, (fields.values(one, wanted, rates).values() for one in items))
    elif app.out.format is Format.NAME:
        app.out.lines(one.ref.name for one in items)
    elif not items:
        app.out.note("no jobs found")
    else:
        rows = [fields.format_values(one, wanted, rates) for one in items]
        app.out.lines(text.table([name.upper() for name in wanted], rows))
    if page.after:
        app.out.note(f"there are more: {app.program} acct list --after {page.after}")


def _attempts(app: App, names: tuple[str, ...], wanted: tuple[int, ...]) -> AccountPage:
    from mpijob.model.status.accounts import AccountPage

    if len(names) != 1:
        raise click.UsageError("--attempt and --attempts require the name of one job")
    return AccountPage(app.client.attempt_accounts(names[0], wanted))


def _whole(one: Any, rates: Any) -> dict[str, Any]:
    return fields.values(one, tuple(fields.FIELDS), rates)


@command("report", outputs=_TABLES)
@click.option(
    "--by", default="user", show_default=True, metavar="WORDS",
    help="Group by user, namespace, month, day, queue, state, cause, program, name, label:KEY (comma-separated).",
)  # fmt: skip
@_chosen
@pass_app
def report(app: App, by: str, **chosen: Any) -> None:
    """Sum usage and cost of finished jobs by user, namespace, label or month."""
    found = app.client.usage_report(tuple(word.strip() for word in by.split(",")), **chosen)
    if app.out.structured:
        app.out.value(found)
    elif app.out.format is Format.CSV:
        names = _row_fields()
        app.out.csv(
            (*found.by, *names), ((*row.key, *(_cell(row, name) for name in names)) for row in found.rows)
        )
    else:
        _show_report(app, found)


def _cell(row: Row, name: str) -> Any:
    """Return a value for a spreadsheet; costs in several currencies as text."""
    return (row.price if row.costs else "") if name == "costs" else getattr(row, name)


def _row_fields() -> tuple[str, ...]:
    from mpijob.accounting.reports import Row

    return tuple(name for name in Row.__struct_fields__ if name != "key")


def _show_report(app: App, found: Report) -> None:
    header = (*(word.upper() for word in found.by), "JOBS", "FAILED", "CORE-HOURS", "USED", "GPU-HOURS", "IDLE",
              "GIB-HOURS", "WAITED", "COST")  # fmt: skip
    rows = [_report_row(row) for row in (*found.rows, found.total)]
    app.out.lines(text.table(header, rows))


def _report_row(row: Row) -> Sequence[str]:
    used = "-" if row.efficiency is None else f"{row.efficiency:.0%}"
    idle = f"{row.idle_gpu_hours / row.gpu_hours:.0%}" if row.gpu_hours and row.measured_core_hours else "-"
    return (
        *(word or "-" for word in row.key), str(row.jobs), str(row.failed), f"{row.core_hours:.2f}", used,
        f"{row.gpu_hours:.2f}", idle, f"{row.gib_hours:.2f}", text.duration(row.queued_hours * 3600),
        row.price or "-",
    )  # fmt: skip


@command("budget", outputs=_TABLES)
@pass_app
def budget(app: App) -> None:
    """Show spending against the budgets of namespaces this month, with a forecast."""
    found = app.client.budgets()
    if app.out.structured:
        app.out.value(found)
        return
    if app.out.format is Format.CSV:
        names = ("namespace", "month", "monthly", "spent", "share", "forecast", "currency", "alert")
        app.out.csv(names, ([getattr(one, name) for name in names] for one in found))
        return
    if not found:
        app.out.note("no namespace has a budget; set one: [budgets.NAME] monthly = 1000 in the settings file")
        return
    rows = [
        (one.namespace, one.month, costs.money(one.monthly, one.currency), costs.money(one.spent, one.currency),
         f"{one.share:.0%}", costs.money(one.forecast, one.currency))
        for one in found
    ]  # fmt: skip
    app.out.lines(text.table(("NAMESPACE", "MONTH", "BUDGET", "SPENT", "SHARE", "FORECAST"), rows))
    for one in found:
        if one.alert:
            app.out.note(f"warning: {one.alert}")


@command("advice", outputs=(Format.TABLE, Format.JSON, Format.YAML))
@name_argument
@pass_app
def advice(app: App, name: str) -> None:
    """Recommend resources from past runs of the same program, and show how it scales."""
    found = app.client.advise(app.client.spec(name))
    if app.out.structured:
        app.out.value(found)
        return
    if found.advice:
        changes = [(one.field, one.now, one.value, one.reason) for one in found.advice]
        app.out.lines(text.table(("FIELD", "NOW", "BETTER", "BECAUSE"), changes))
    else:
        app.out.note(f"no change recommended, from {found.runs} runs of this program")
    if found.scaling is not None:
        header = ("RANKS", "RUNS", "TIME", "SPEED-UP", "EFFICIENCY", "CORE-HOURS")
        rows = [
            (str(one.ranks), str(one.runs), text.duration(one.seconds), f"{one.speedup:.2f}", f"{one.efficiency:.0%}",
             f"{one.core_hours:.3g}")
            for one in found.scaling.sizes
        ]  # fmt: skip
        app.out.lines(("", *text.table(header, rows), *found.scaling.sentences))


acct.add_command(list_accounts, "list")
acct.add_command(advice)
acct.add_command(report)
acct.add_command(budget)
