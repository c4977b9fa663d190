"""The `stacks` command: call stacks of all ranks, grouped, for jobs that hang."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import click

from mpijob.cli.context import App, pass_app
from mpijob.cli.options import Numbers, command, name_argument
from mpijob.cli.output import Format
from mpijob.cli.render import text
from mpijob.model import StackReport
from mpijob.model.status.stacks import Frame, StackGroup
from mpijob.observation.health.stacks import named

_MOST_CALLS = 25


@command("stacks", outputs=(Format.TABLE, Format.JSON, Format.YAML))
@name_argument
@click.option("--rank", "ranks", type=Numbers(), default=(), metavar="0-3,7", help="Only these ranks.")
@click.option("--short", is_flag=True, help="Show only the innermost call.")
@click.option(
    "--bring-py-spy", "bring", is_flag=True, help="Copy this machine's py-spy to workers that have none."
)
@pass_app
def stacks(app: App, name: str, ranks: tuple[int, ...], short: bool, bring: bool) -> None:
    """Show the call stack of every rank of a running job, grouped.

    Use py-spy for Python, gdb for other programs and /proc otherwise. Each rank pauses for a moment at
    most.
    """
    with app.out.progress(f"capturing the call stacks of {name} …"):
        report = app.client.stacks(name, ranks, bring=bring)
    if app.out.structured:
        app.out.value(report)
        return
    app.out.line(report.summary)
    if not short:
        app.out.lines(line for group in report.groups for line in _group_lines(report, group))
    for remark in report.remarks:
        app.out.line(f"note: {remark}")
    for lack in report.lacks:
        app.out.note(lack)


def _group_lines(report: StackReport, group: StackGroup) -> Iterator[str]:
    if not group.frames:
        return
    first = next(stack for stack in report.stacks if stack.rank == group.ranks[0])
    by = f" (rank {first.rank}, worker {first.worker}, pid {first.pid}, by {first.means.value})"
    yield ""
    yield f"{named(group.ranks)}: {group.where}{by}"
    calls = [*_calls(group.frames)]
    for call in calls[:_MOST_CALLS]:
        yield f"    {text.one_line(call)}"
    if len(calls) > _MOST_CALLS:
        yield f"    … {len(calls) - _MOST_CALLS} more calls"


def _calls(frames: Sequence[Frame]) -> Iterator[str]:
    """Yield a line for each call; calls of a library without symbols are combined."""
    for (file, nameless), same in groupby(frames, key=lambda frame: (frame.file, _is_nameless(frame))):
        library = file.rpartition("/")[2]
        run = [*same]
        if nameless:
            yield f"… {len(run)} call{'s' if len(run) > 1 else ''} without a name ({library or 'unknown'})"
            continue
        for frame in run:
            place = library if frame.native and not frame.line else f"{file}:{frame.line}"
            yield f"{frame.function} ({place})" if file else frame.function


def _is_nameless(frame: Frame) -> bool:
    return frame.function == "??" or frame.function.startswith("0x")
