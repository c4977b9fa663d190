"""The `trace` command: a job as an OpenTelemetry trace."""

from __future__ import annotations

import click

from mpijob.cli.context import App, pass_app
from mpijob.cli.options import command, name_argument
from mpijob.cli.output import Format
from mpijob.cli.render import text
from mpijob.errors import NotFound


@command("trace", outputs=(Format.TABLE, Format.JSON))
@name_argument
@click.option("--send", "endpoint", metavar="URL", help="Send the trace to this collector (OTLP over HTTP).")
@pass_app
def trace(app: App, name: str, endpoint: str | None) -> None:
    """Show the stages of a job as an OpenTelemetry trace."""
    from mpijob.client.integrations import otlp
    from mpijob.client.observe import stages

    state, events = app.client.state(name), tuple(app.client.events(name))
    found = [
        one for one in app.client.accounts(names=(name,), limit=1000).items if one.ref.key == state.ref.key
    ]
    if not found:
        raise NotFound(f"no accounting record of '{name}'", hint=f"{app.program} acct lists all records")
    document = otlp.trace(found[0], events, app.now())
    if endpoint:
        otlp.send(endpoint, document)
        app.out.note(f"sent to {endpoint}")
    if app.out.structured:
        app.out.value(document)
        return
    rows = [
        (stage, text.duration(end - begin), text.duration(begin - found[0].created))
        for stage, begin, end in stages.moments(found[0], events)
    ]
    app.out.lines(text.table(("STAGE", "TIME", "BEGAN AFTER"), rows))
