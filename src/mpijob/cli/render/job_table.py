"""Where jobs stand, as a table: what `list` and `get` print. How they are asked for is the commands' business."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from mpijob.cli.output import Format
from mpijob.cli.render import job_rows, text

if TYPE_CHECKING:
    from mpijob.cli.context import App
    from mpijob.model import JobState


def show_page(app: App, *, deleted: bool = False, **chosen: Any) -> None:
    """Print one page of the jobs that were chosen, or of those that were and are deleted."""
    page = app.client.deleted(**chosen) if deleted else app.client.list(**chosen)
    if app.out.structured:
        app.out.value(page)
        return
    show_states(app, page.items, namespaced=chosen.get("all_namespaces", False))
    for notice in page.notices:
        app.out.note(notice.message)
    if page.after:
        words = f"{app.program} list --deleted" if deleted else f"{app.program} list"
        app.out.note(f"{page.total} jobs in all; the next page: {words} --after {page.after}")


def show_states(app: App, states: Iterable[JobState], *, namespaced: bool) -> None:
    """Print jobs as a table, or their names alone."""
    states = tuple(states)
    if app.out.format is Format.NAME:
        app.out.lines(_name(state, namespaced) for state in states)
        return
    if not states:
        app.out.note("no jobs found")
        return
    wide = app.out.format is Format.WIDE
    header, *rows = job_rows.list_lines(states, app.now(), wide=wide, namespaced=namespaced)
    app.out.line(header)
    app.out.phases(rows, (state.phase for state in states))


def tell_if_deleted(app: App, state: JobState | None) -> None:
    """Say on stderr that a job is gone and that what follows is its record."""
    if state is not None and state.deleted is not None:
        when = text.ago(state.deleted, app.now())
        app.out.note(f"job '{state.ref.name}' was deleted {when}; this is its record")


def _name(state: JobState, namespaced: bool) -> str:
    return str(state.ref) if namespaced else state.ref.name
