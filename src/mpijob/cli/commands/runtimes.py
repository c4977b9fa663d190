"""The `runtimes` commands: runtimes of Kubeflow Trainer, for administrators."""

from __future__ import annotations

import click

from mpijob.cli import exit_codes
from mpijob.cli.context import App, pass_app
from mpijob.cli.options import SETTINGS, command
from mpijob.cli.output import Format, finding_lines
from mpijob.cli.render import text
from mpijob.client.admin.runtimes import Runtimes
from mpijob.errors import Finding, Severity

_image_option = click.option("--image", default="", metavar="IMAGE", help="Image of launcher and workers.")


@click.group("runtimes", context_settings=SETTINGS)
def runtimes() -> None:
    """List, lint, install and test TrainJob runtimes."""


@command("list", outputs=(Format.TABLE, Format.JSON, Format.YAML, Format.NAME))
@pass_app
def list_runtimes(app: App) -> None:
    """List MPI runtimes of the cluster, and built-in ones."""
    rows = Runtimes(app.settings()).list()
    if app.out.structured:
        app.out.value(rows)
    elif app.out.format is Format.NAME:
        app.out.lines(one.name for one in rows)
    else:
        cells = ((one.name, one.kind, one.origin, str(one.traps or "-"), one.image) for one in rows)
        app.out.lines(text.table(("NAME", "KIND", "FROM", "TRAPS", "IMAGE"), cells))


@command("show", outputs=(Format.YAML, Format.JSON))
@click.argument("runtime", metavar="RUNTIME")
@_image_option
@pass_app
def show(app: App, runtime: str, image: str) -> None:
    """Print a runtime of the cluster, or a built-in one, as a manifest."""
    if app.out.format is Format.TABLE:
        app.out.format = Format.YAML
    app.out.value(Runtimes(app.settings()).show(runtime, image=image))


@command("install", outputs=())
@click.argument("runtime", metavar="RUNTIME|FILE")
@_image_option
@click.option("--dry-run", is_flag=True, help="Run a server-side dry run.")
@pass_app
def install(app: App, runtime: str, image: str, dry_run: bool) -> None:
    """Install a built-in runtime, or one from a file, if lint finds no error."""
    app.out.line(Runtimes(app.settings()).install(runtime, image=image, dry_run=dry_run))


@command("lint", outputs=(Format.TABLE, Format.JSON, Format.YAML))
@click.argument("names", metavar="[RUNTIME|FILE]...", nargs=-1)
@pass_app
def lint(app: App, names: tuple[str, ...]) -> None:
    """Check runtimes of the cluster, or in files, for known problems."""
    found = Runtimes(app.settings()).lint(names)
    if app.out.structured:
        app.out.value(found)
    else:
        told = [line for name, traps in found.items() for line in _finding_lines(name, traps)]
        app.out.lines(told or ["no MPI runtime found"])
    _end([one for traps in found.values() for one in traps])


@command("test", outputs=(Format.TABLE, Format.JSON, Format.YAML))
@click.argument("runtime", metavar="RUNTIME")
@pass_app
def test(app: App, runtime: str) -> None:
    """Test a runtime of the cluster with a small job."""
    with app.out.progress(f"testing {runtime} with a job on two nodes …"):
        found = Runtimes(app.settings()).test(runtime)
    if app.out.structured:
        app.out.value(found)
    else:
        app.out.lines(finding_lines(found))
    _end(list(found))


def _finding_lines(name: str, traps: tuple[Finding, ...]) -> list[str]:
    return [f"{name}:" + ("" if traps else " no traps"), *(f"  {line}" for line in finding_lines(traps))]


def _end(findings: list[Finding]) -> None:
    if any(one.severity is Severity.ERROR for one in findings):
        exit_codes.end(exit_codes.FAILED)


for _command in (list_runtimes, show, install, lint, test):
    runtimes.add_command(_command)
