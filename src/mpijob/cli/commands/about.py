"""The commands explain, schema, completion, version, doctor and mpi: about mpijob itself."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from mpijob import __version__
from mpijob.cli.arguments.flags import ELSEWHERE, FLAGS, SWITCHES, Flag, Switch
from mpijob.cli.context import App, pass_app
from mpijob.cli.options import SETTINGS, command
from mpijob.cli.output import Format, finding_lines
from mpijob.cli.render import text
from mpijob.errors import NotFound, Unsupported
from mpijob.model import MPIJob
from mpijob.model.spec.enums import did_you_mean

if TYPE_CHECKING:
    from mpijob.formats.jobfile.json_schema import Explanation

_PROGRAM, _VARIABLE = "mpijob", "_MPIJOB_COMPLETE"


@command("explain", outputs=(Format.TABLE, Format.JSON, Format.YAML), namespace=False)
@click.argument("field", default="", metavar="[FIELD]")
@pass_app
def explain(app: App, field: str) -> None:
    """Explain a field of the job file, or an error code.

    FIELD is a path such as launch.map_by, or its last part. CODE is a code from a message, such as
    UNKNOWN_HOST. Without an argument, list all fields.
    """
    if not field:
        app.out.lines(_field_list())
        return
    if lines := _meaning(field):
        app.out.value(
            {"code": field.upper(), "text": "\n".join(lines)}
        ) if app.out.structured else app.out.lines(lines)
        return
    found = _explained(field)
    if app.out.structured:
        app.out.value(found)
        return
    app.out.lines(
        text.pairs(
            (
                ("Field", found.path),
                ("Type", found.type + (", required" if found.required else "")),
                ("Default", found.default),
                ("Words", ", ".join(found.words)),
                ("Example", found.example),
                ("Flag", ", ".join(_flags_of(found.path))),
                ("Fields", ", ".join(found.fields)),
            )
        )
    )
    app.out.lines(("", found.description))


def _meaning(word: str) -> list[str]:
    """Return the meaning of a code; field names are lower case, so a word with a capital is a code."""
    if word == word.lower() and "_" not in word:
        return []
    from mpijob.cli import error_codes

    return error_codes.meaning(word.upper())


def _explained(field: str) -> Explanation:
    """Return the help of a field, given by its path or, if it is unique, by the last part of the path."""
    from mpijob.formats.jobfile import json_schema as fields

    try:
        return fields.explain(field)
    except NotFound as error:
        paths = [*_paths()]
        same = [path for path in paths if path.rpartition(".")[2] == field and not path.startswith("groups.")]
        if len(same) == 1:
            return fields.explain(same[0])
        raise NotFound(error.message, hint=_guess(field, same, paths) or error.hint) from error


def _guess(word: str, same: list[str], paths: list[str]) -> str:
    """Return a hint for an unknown word: fields of that name elsewhere, or a similar one."""
    if same:
        return f"did you mean {' or '.join(same)}?"
    from mpijob.cli import error_codes

    last = {path.rpartition(".")[2]: path for path in reversed(paths)}
    meant = did_you_mean(word, error_codes.known()) if word.isupper() else did_you_mean(word, [*paths, *last])
    return f"did you mean {last.get(meant, meant)}?" if meant else ""


def _paths(before: str = "") -> Iterator[str]:
    """Yield the path of every field, the outer ones first."""
    from mpijob.formats.jobfile import json_schema as fields

    names = fields.explain(before).fields if before else MPIJob.__struct_fields__
    inner = [f"{before}.{name}" if before else name for name in names]
    yield from inner
    for path in inner:
        yield from _paths(path) if fields.explain(path).fields else ()


def _field_list() -> list[str]:
    from mpijob.formats.jobfile import json_schema as fields

    rows = ((name, fields.explain(name).description) for name in MPIJob.__struct_fields__)
    return text.table(("FIELD", "DESCRIPTION"), rows)


def _flags_of(field: str) -> list[str]:
    table: tuple[Flag | Switch, ...] = (*FLAGS, *SWITCHES)
    said = [flag.option for flag in table if flag.path == field]
    return said or ([ELSEWHERE[field]] if field in ELSEWHERE else [])


@command("schema", outputs=(), namespace=False)
@pass_app
def schema(app: App) -> None:
    """Print the JSON Schema of the job file."""
    from mpijob.formats.jobfile import json_schema as fields

    app.out.format = Format.JSON
    app.out.value(fields.json_schema())


@command("completion", outputs=(), namespace=False)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@pass_app
def completion(app: App, shell: str) -> None:
    """Print the completion script of a shell.

    For bash: mpijob completion bash > ~/.local/share/bash-completion/completions/mpijob
    """
    from click.shell_completion import get_completion_class

    maker = get_completion_class(shell)
    assert maker is not None
    app.out.text(maker(click.get_current_context().find_root().command, {}, _PROGRAM, _VARIABLE).source())


@command("version", outputs=(Format.TABLE, Format.JSON), namespace=False)
@pass_app
def version(app: App) -> None:
    """Print the version."""
    if app.out.structured:
        app.out.value({"version": __version__})
    else:
        app.out.line(f"mpijob {__version__}")


@command("doctor", outputs=(Format.TABLE, Format.JSON, Format.YAML))
@pass_app
def doctor(app: App) -> None:
    """Check whether this machine or a cluster is ready to run jobs."""
    findings = _part("mpijob.client.admin.doctor", "doctor").report(app.settings())
    if app.out.structured:
        app.out.value(findings)
    else:
        app.out.lines(finding_lines(findings) or ["everything that was checked is in order"])


@click.group("mpi", context_settings=SETTINGS)
def mpi() -> None:
    """List and install MPI libraries."""


@command("list", outputs=(Format.TABLE, Format.JSON, Format.YAML), namespace=False)
@pass_app
def mpi_list(app: App) -> None:
    """List all MPI installations on this machine.

    A program runs with the MPI whose library it loads. A program that loads none gets the first of the
    list.
    """
    found = _part("mpijob.client.admin.mpi", "mpi list").installations()
    if app.out.structured:
        app.out.value(found)
        return
    rows = [(one["family"], one["version"], one["prefix"], one["library"] or "-") for one in found]
    app.out.lines(text.table(("FAMILY", "VERSION", "PREFIX", "LIBRARY"), rows))


@command("install", outputs=(), namespace=False)
@click.argument("family")
@pass_app
def mpi_install(app: App, family: str) -> None:
    """Install an MPI library for this user."""
    part = _part("mpijob.client.admin.mpi", "mpi install")
    with app.out.progress(f"installing {family} …"):
        app.out.line(part.install(family))


mpi.add_command(mpi_list)
mpi.add_command(mpi_install)


def _part(module: str, verb: str) -> Any:
    """Import a module of the client that is not part of every installation."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise Unsupported(f"{verb} is not available in this installation") from error
