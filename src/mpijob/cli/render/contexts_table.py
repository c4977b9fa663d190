"""Tables of several contexts: a list of jobs, and the differences of a job on another context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpijob.cli.output import Format
from mpijob.cli.render import job_table, text
from mpijob.client.contexts import Contexts

if TYPE_CHECKING:
    from mpijob.cli.context import App
    from mpijob.client.contexts import Move


def show(app: App, **chosen: Any) -> None:
    """Print the jobs of all contexts, newest first."""
    found = Contexts(app.settings()).list(**chosen)
    if app.out.structured:
        app.out.value(found)
        return
    if app.out.format is Format.NAME:
        app.out.lines(f"{one.state.ref.name}@{one.context}" for one in found.items)
    elif found.items:
        states = [one.state for one in found.items]
        wide, namespaced = app.out.format is Format.WIDE, chosen.get("all_namespaces", False)
        header, *rows = job_table.list_lines(states, app.now(), wide=wide, namespaced=namespaced)
        width = max(len("CONTEXT"), *(len(one.context) for one in found.items))
        app.out.line(f"{'CONTEXT':{width}}  {header}")
        placed = [f"{one.context:{width}}  {row}" for one, row in zip(found.items, rows, strict=True)]
        app.out.phases(placed, (state.phase for state in states))
    else:
        app.out.note("no jobs found")
    app.out.findings(found.notices)


def show_move(app: App, move: Move) -> None:
    """Print the differences of a job on another context, and its plan there."""
    if app.out.structured:
        app.out.value(move)
        return
    app.out.line(f"{move.job.name}: from {move.source} to {move.target}")
    rows = [(one.field, one.fate.value, one.note or "-", one.todo or "-") for one in move.entries]
    if rows:
        app.out.lines(text.table(("FIELD", "THERE", "WHY", "TO DO"), rows))
    if move.plan is not None:
        app.out.line("")
        app.out.lines(job_table.plan_lines(move.plan))
    else:
        app.out.line(f"{move.target} refuses it: {move.refused}")
        if move.hint:
            app.out.line(f"hint: {move.hint}")
