"""The `why` command: the cause of a failure, a wait or a silence, of a job or in a log."""

from __future__ import annotations

import click

from mpijob.cli.context import App, pass_app
from mpijob.cli.options import attempt_option, command, job_names
from mpijob.cli.output import Format
from mpijob.cli.render import diagnosis_text
from mpijob.cli.render.job_table import tell_if_deleted
from mpijob.model import Family, JobRef

_SHOWN = 3


@command("why", outputs=(Format.TABLE, Format.JSON, Format.YAML))
@click.argument("name", required=False, metavar="[NAME]", shell_complete=job_names)
@click.option(
    "--log", "logs", multiple=True, metavar="FILE",
    help="Explain a log instead of a job: a file, a directory, or - for stdin.",
)  # fmt: skip
@click.option(
    "--family", type=click.Choice([family.value for family in Family]), default=Family.AUTO.value,
    help="MPI library that wrote the log, if the log does not show it.",
)  # fmt: skip
@click.option("--exit-code", type=int, metavar="N", help="Exit code of the launcher of the log.")
@attempt_option
@pass_app
def why(
    app: App,
    name: str | None,
    logs: tuple[str, ...],
    family: str,
    exit_code: int | None,
    attempt: int | None,
) -> None:
    """Explain why a job failed, is waiting or hangs, and how to fix it."""
    if (name is None) == (not logs):
        raise click.UsageError("specify the name of a job, or a log with --log FILE")
    if name is None:
        from mpijob.client.observe import diagnose

        found = diagnose.files(logs)
        named = ", ".join(found) if len(found) <= _SHOWN else f"{len(found)} files"
        with app.out.progress(f"reading {named} …"):
            diagnosis = diagnose.of_logs(
                found,
                exit_code=exit_code,
                family=Family(family),
                site=diagnose.site_rules(app.settings()),
            )
    else:
        with app.out.progress(f"diagnosing {name} …"):
            diagnosis = app.client.diagnose(name, attempt=attempt)
        tell_if_deleted(app, app.client.remembered)
    if app.out.structured:
        app.out.value(diagnosis)
        return
    place = "" if name is None else app.words(JobRef(app.client.ref(name).namespace, name), "{verb}")
    app.out.lines(diagnosis_text.lines(diagnosis, place, app.program))
