"""The commands retry, clone, compare and export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from mpijob.cli import exit_codes
from mpijob.cli.arguments.flags import job_flags
from mpijob.cli.arguments.job_args import TakesCommand, command_changes
from mpijob.cli.arguments.overlay import changes_of, overlay
from mpijob.cli.commands.lifecycle import show_state
from mpijob.cli.context import App, pass_app
from mpijob.cli.options import Numbers, attempt_option, command, job_names, name_argument
from mpijob.cli.output import Format
from mpijob.cli.render import text
from mpijob.observation.redaction import masking

if TYPE_CHECKING:
    from mpijob.client.observe.compare import Comparison


_with_fix = click.option(
    "--with-fix",
    type=click.IntRange(min=1),
    metavar="N",
    help="Apply fix N of `mpijob why NAME`.",
)


@command("retry")
@name_argument
@_with_fix
@click.option("--follow", is_flag=True, help="Follow the output to the end.")
@pass_app
def retry(app: App, name: str, with_fix: int | None, follow: bool) -> None:
    """Run a finished job again with the same configuration."""
    if follow and app.out.format not in (Format.TABLE, Format.JSON):
        raise click.UsageError("--follow supports only the output formats table and json")
    job = app.client.retry(name, with_fix=with_fix)
    if follow:
        from mpijob.cli.follow import FollowedState, Follower

        exit_codes.end(exit_codes.after(Follower(app, job, FollowedState()).to_the_end().phase))
    state = job.state()
    show_state(app, state)
    if app.out.format is Format.TABLE:
        app.out.note(f"follow it: {app.words(state.ref, 'logs -f')}")


@command("clone", cls=TakesCommand)
@name_argument
@click.argument("new_name", required=False, metavar="[NEW_NAME]")
@job_flags
@_with_fix
@click.option("--replace", is_flag=True, help="Replace the job, if it has not started or has ended.")
@pass_app
def clone(
    app: App, name: str, new_name: str | None, replace: bool, with_fix: int | None, **given: Any
) -> None:
    """Create a copy of a job with changes.

    Give changes as flags and as a command after `--`. Without NEW_NAME, a free name is chosen.
    """
    changes = [*changes_of(given), *command_changes(given)]
    tree = overlay(msgspec.to_builtins(app.client.spec(name)), changes)
    touched = {change.path.partition(".")[0] for change in changes}
    made = app.client.clone(
        name,
        new_name,
        replace=replace,
        with_fix=with_fix,
        changes={field: tree[field] for field in touched},
    )
    show_state(app, made.state())


@command("compare", outputs=(Format.TABLE, Format.JSON, Format.YAML))
@click.argument("names", nargs=-1, required=True, metavar="NAME NAME...", shell_complete=job_names)
@click.option(
    "--attempt", "attempts", type=Numbers(), default=(), metavar="1,2",
    help="Attempts of one job to compare: 1,2 or 1-3.",
)  # fmt: skip
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0),
    metavar="PERCENT",
    help="Exit with 1 if a result differs from that of the first job, or a duration differs by more than PERCENT.",
)
@pass_app
def compare(app: App, names: tuple[str, ...], attempts: tuple[int, ...], time_limit: float | None) -> None:
    """Compare jobs: configuration, duration, result.

    NAME@1 is the first run of a name, and NAME the newest: `mpijob compare train@1 train`.
    NAME@CONTEXT names a job of another context: `mpijob compare relax@local relax@slurm`.
    """
    over_contexts = _names_contexts(names)
    if over_contexts and attempts:
        raise click.UsageError("--attempt compares attempts of one job, not jobs of several contexts")
    found = _over_contexts(app, names) if over_contexts else app.client.compare(*names, attempts=attempts)
    verdict = None
    if time_limit is not None:
        from mpijob.client.observe.compare import judge

        verdict = judge(found, time_limit)
    if app.out.structured:
        whole = msgspec.to_builtins(found)
        app.out.value(found if verdict is None else whole | {"verdict": msgspec.to_builtins(verdict)})
    else:
        _show_compared(app, found, names)
    if verdict is None:
        return
    same = f"all have the same result, and durations differ by at most {abs(verdict.percent):g} %"
    app.out.note(verdict.why or same)
    if not verdict.same:
        exit_codes.end(exit_codes.FAILED)


def _names_contexts(names: tuple[str, ...]) -> bool:
    from mpijob.client import contexts

    return any("@" in name and contexts.split_name(name)[1] is not None for name in names)


def _over_contexts(app: App, names: tuple[str, ...]) -> Comparison:
    from mpijob.client.contexts import Contexts
    from mpijob.settings import LOCAL

    usual = app.place if app.place is not None else app.settings().engine or LOCAL
    return Contexts(app.settings()).compare(names, usual)


def _show_compared(app: App, found: Comparison, names: tuple[str, ...]) -> None:
    rows = [
        ("phase", *(job.phase.value for job in found.jobs)),
        ("duration", *(text.duration(job.duration_seconds) for job in found.jobs)),
        ("result", *(job.result or "-" for job in found.jobs)),
        ("reason", *(job.reason or "-" for job in found.jobs)),
        ("nodes", *(", ".join(job.nodes) or "-" for job in found.jobs)),
        *_used_rows(app, found),
        *((row.field, *(_word(value) for value in row.values)) for row in found.differences),
    ]
    titles = names if _names_contexts(names) else _titles(found)
    app.out.lines(text.table(("FIELD", *map(text.one_line, titles)), rows))


def _titles(found: Comparison) -> list[str]:
    """Return a title for each job: its name, with its run or attempt if names are equal."""
    names = [job.ref.name for job in found.jobs]
    if len({*names}) == len(names):
        return names
    if len({job.ref.uid for job in found.jobs}) == 1:
        return [f"attempt {job.attempt}" for job in found.jobs]
    return [f"{job.ref.name}@{job.run or job.ref.uid}" for job in found.jobs]


def _used_rows(app: App, found: Comparison) -> list[tuple[str, ...]]:
    """Return the usage of the jobs, if they have accounts."""
    from mpijob.accounting import fields

    names = (
        "exit",
        "waited",
        "core_hours",
        "cpu_efficiency",
        "peak_memory",
        "gpu_hours",
        "gpu_efficiency",
        "cost",
    )
    accounts = [job.account for job in found.jobs]
    if not all(accounts):
        return []
    rates = app.client.rates()
    told = [fields.format_values(one, names, rates) for one in accounts if one is not None]
    return [(name.replace("_", "-"), *(values[at] for values in told)) for at, name in enumerate(names)]


def _word(value: Any) -> str:
    if isinstance(value, str):
        return value or "-"
    return "-" if value is None else msgspec.json.encode(value).decode()


@command("export", outputs=(Format.YAML, Format.JSON))
@name_argument
@attempt_option
@pass_app
def export(app: App, name: str, attempt: int | None) -> None:
    """Print a job as a job file."""
    from mpijob.client.submit import drafts

    job = (
        app.client.spec(name)
        if attempt is None
        else app.client.spec(app.client.state(name, attempt=attempt).ref)
    )
    app.out.text(drafts.shown(job, "json" if app.out.format is Format.JSON else "yaml"))
    if hidden := masking.masked_names(job):
        names = ", ".join(hidden)
        app.out.note(f"not shown: the values of {names}; set them again with --env, or better with --secret")
