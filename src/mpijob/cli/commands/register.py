"""The `register` command: register the model of a succeeded job in the model registry."""

from __future__ import annotations

import click

from mpijob.cli.context import App, pass_app
from mpijob.cli.options import command, name_argument
from mpijob.cli.output import Format


@command("register", outputs=(Format.TABLE, Format.JSON, Format.YAML))
@name_argument
@click.option("--model", metavar="NAME", help="Name of the model; default: that of the job.")
@click.option("--model-version", default="", metavar="NAME", help="Version of the model.")
@click.option("--model-path", default="", metavar="PATH", help="Path of the model files.")
@click.option("--model-format", default="", metavar="NAME", help="Format of the model files.")
@pass_app
def register(
    app: App, name: str, model: str | None, model_version: str, model_path: str, model_format: str
) -> None:
    """Register the model of a job in the model registry.

    The command is idempotent: existing entries stay unchanged.
    """
    from mpijob.model import Model

    given = None
    if model:
        given = Model(name=model, version=model_version, path=model_path, format=model_format)
    elif model_version or model_path or model_format:
        raise click.UsageError("--model-version, --model-path and --model-format require --model NAME")
    made = app.client.register(name, given)
    if app.out.structured:
        app.out.value(made)
    else:
        app.out.line(f"registered version '{made.version}' of model '{made.model}': {made.uri}")
