"""The `audit` commands: show the audit log, and verify that it is complete and unchanged."""

from __future__ import annotations

from collections.abc import Sequence

import click

from mpijob.cli import exit_codes
from mpijob.cli.context import App, pass_app
from mpijob.cli.options import SETTINGS, Moment, command
from mpijob.cli.output import Format
from mpijob.cli.render import text
from mpijob.model.status.audit import RECEIVED, AuditEvent, AuditQuery, ObjectRef, Verb

_COLUMNS = ("TIME", "USER", "FROM", "VERB", "NAMESPACE", "JOB", "RESULT", "DETAILS")
_CSV = (
    "time",
    "user",
    "source",
    "verb",
    "namespace",
    "job",
    "uid",
    "code",
    "reason",
    "message",
    "details",
    "audit_id",
)


class _Audit(click.Group):
    """A group whose first command is meant where none is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take `mpijob audit --user jane` for `mpijob audit list --user jane`."""
        named = bool(args) and (args[0] in self.commands or args[0] in ("-h", "--help"))
        return super().parse_args(ctx, args if named else ["list", *args])


@click.group("audit", cls=_Audit, context_settings=SETTINGS)
def audit() -> None:
    """Show the audit log, and verify its hash chain.

    Without a subcommand, list the entries.
    """


@command("list", outputs=())
@click.option(
    "--user", "users", multiple=True, metavar="NAME", help="Only actions of this user; can be repeated."
)
@click.option(
    "--verb",
    "verbs",
    multiple=True,
    type=click.Choice([verb.value for verb in Verb]),
    help="Only actions of this kind; can be repeated.",
)
@click.option(
    "--job", "jobs", multiple=True, metavar="NAME", help="Only actions on this job; can be repeated."
)
@click.option("--since", type=Moment(), metavar="WHEN", help="Start time: 1h, 7d, or a date and time.")
@click.option("--until", type=Moment(), metavar="WHEN", help="End time.")
@click.option("--refused", is_flag=True, help="Only refused and failed actions.")
@click.option("--limit", type=click.IntRange(min=0), default=0, metavar="N", help="Only the last N entries.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json", "csv"]), default="table",
    help="Output format: a table, JSON lines (audit.k8s.io/v1), or CSV.",
)  # fmt: skip
@pass_app
def list_audit(
    app: App,
    users: Sequence[str],
    verbs: Sequence[str],
    jobs: Sequence[str],
    since: float | None,
    until: float | None,
    refused: bool,
    limit: int,
    output: str,
) -> None:
    """List audit entries, oldest first: time, user, action, job, source and result.

    Without -n, list entries of all namespaces.
    """
    query = AuditQuery(
        users=tuple(users),
        verbs=tuple(verbs),
        jobs=tuple(jobs),
        namespace=app.namespace or "",
        since=since,
        until=until,
        refused=refused,
        limit=limit,
    )
    found = app.client.audit(query)
    if output == "json":
        for event in found:
            app.out.json_line(event)
    elif output == "csv":
        app.out.csv(_CSV, map(_fields, found))
    else:
        app.out.lines(text.table(_COLUMNS, [_row(event) for event in found]))


def _row(event: AuditEvent) -> tuple[str, ...]:
    about, details = event.object_ref or ObjectRef(), event.details
    told = ", ".join(f"{name}={value}" for name, value in details.items())
    message = event.response_status.message if event.response_status else ""
    return (
        event.time[:19] + "Z",
        event.user.username or "?",
        ", ".join(event.source_ips),
        event.verb,
        about.namespace,
        about.name,
        result(event),
        f"{message} ({told})" if message and told else message or told,
    )


def result(event: AuditEvent) -> str:
    """Return how an act ended, in a word or two."""
    if event.stage == RECEIVED:
        return "no result"
    status = event.response_status
    if status is None or status.code < 400:
        return "done"
    return f"refused: {status.reason}" if status.code < 500 else f"failed: {status.reason}"


def _fields(event: AuditEvent) -> tuple[str, ...]:
    about, status = event.object_ref or ObjectRef(), event.response_status
    details = "; ".join(f"{name}={value}" for name, value in event.details.items())
    code, reason, message = (status.code, status.reason, status.message) if status else ("", "", "")
    values = (event.time, event.user.username, " ".join(event.source_ips), event.verb, about.namespace,
              about.name, about.uid, code, reason, message, details, event.audit_id)  # fmt: skip
    return tuple(str(value).replace("\n", " ") for value in values)


@command("verify", outputs=(Format.TABLE, Format.JSON, Format.YAML))
@click.option("--anchor", default="", metavar="NUMBER:HASH", help="Head of an earlier verification.")
@pass_app
def verify(app: App, anchor: str) -> None:
    """Verify the hash chain of the audit log; exit with 1 if it is broken.

    Detects entries that were changed, removed, inserted or moved. Store the printed head elsewhere and pass
    it as --anchor later to also detect a log that was rewritten completely.
    """
    verdict = app.client.verify_audit(anchor)
    if app.out.structured:
        app.out.value(verdict)
    else:
        for flaw in verdict.flaws:
            app.out.line(f"{_place(flaw.file, flaw.line)}{flaw.message}")
        for remark in verdict.remarks:
            app.out.note(f"note: {_place(remark.file, remark.line)}{remark.message}")
        app.out.line(_summary(verdict.lines, verdict.first, verdict.last, len(verdict.flaws)))
        app.out.line(f"head: {verdict.head}")
    if not verdict.sound:
        exit_codes.end(exit_codes.FAILED)


def _place(file: str, line: int) -> str:
    return f"{file}:{line}: " if file and line else f"{file}: " if file else ""


def _summary(lines: int, first: int, last: int, flaws: int) -> str:
    if not lines:
        return "the audit log is empty" if not flaws else "the audit log was removed"
    told = f"{lines} entries, {first} to {last}"
    return f"{told}: hash chain BROKEN, {flaws} problems" if flaws else f"{told}: hash chain intact"


audit.add_command(list_audit)
audit.add_command(verify)
