"""A job in a notebook: escaped HTML, and a live view if ipywidgets is installed."""

from __future__ import annotations

import threading
from html import escape
from typing import TYPE_CHECKING, Any

from mpijob.model import JobState, Phase

if TYPE_CHECKING:
    from mpijob.client.job import Job

_COLOURS = {
    Phase.SUCCEEDED: "#3e8635",
    Phase.FAILED: "#c9190b",
    Phase.CANCELLED: "#6a6e73",
    Phase.RUNNING: "#06c",
}


def html(state: JobState) -> str:
    """Return one job as HTML: phase, workers, and what went wrong."""
    colour = _COLOURS.get(state.phase, "#795600")
    rows = [("namespace", state.ref.namespace), ("workers", state.aggregate), ("ranks", str(state.world))]
    rows += [("message", state.message)] if state.message else []
    rows += [("why", str(finding)) for finding in state.findings]
    cells = "".join(f"<tr><th>{escape(key)}</th><td>{escape(value)}</td></tr>" for key, value in rows)
    title = f"{escape(state.ref.name)} <b style='color:{colour}'>{escape(state.phase.value)}</b>"
    return f"<table><caption>{title}</caption>{cells}</table>"


def text(state: JobState) -> str:
    """Return one job as a line of text."""
    message = f": {state.message}" if state.message else ""
    return f"{state.ref} {state.phase.value}, workers {state.aggregate}{message}"


def widget(job: Job) -> Any:
    """Return a view that follows the job until it ends; plain text where ipywidgets is not installed."""
    try:
        import ipywidgets
    except ImportError:
        return text(job._shown())
    view = ipywidgets.HTML(value=html(job._shown()))
    threading.Thread(target=_follow, args=(job, view), name="mpijob-widget", daemon=True).start()
    return view


def _follow(job: Job, view: Any) -> None:
    """Show each change."""
    # A client of its own: handles of engines, such as SQLite connections, may not cross threads.
    client = job.client.twin()
    for state in client.watch(names=(job.name,), namespace=job.namespace):
        if state.ref.key == job.ref.key:
            view.value = html(state)
        if state.phase.final or state.phase is Phase.DELETING:
            return
