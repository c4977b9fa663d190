"""The reference pages, written from the code itself: job file, command line, SDK, REST, page and the words.

`python -m tools.reference` writes docs/reference anew; tests/docs/test_reference.py fails while a page is
behind the code. The sentences are those that the code tells its users elsewhere: `mpijob explain` and
the JSON Schema, `--help`, docstrings.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import click
import msgspec

from mpijob import errors
from mpijob.cli.arguments.flags import ELSEWHERE, FLAGS, SWITCHES, Flag, Switch, section_of
from mpijob.cli.command_table import ENTRIES
from mpijob.cli.lazy_group import LazyGroup
from mpijob.cli.root import cli
from mpijob.client import AsyncClient, AsyncJob, Client, Job
from mpijob.client.admin import guide
from mpijob.client.base import BaseClient
from mpijob.client.observe import compare
from mpijob.client.submit import array, function, templates
from mpijob.formats.jobfile import json_schema
from mpijob.model import JobState, LauncherState, MPIJob, Phase
from tools import reference_page, reference_rest, reference_settings

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
COMMAND = "python -m tools.reference"
_NOTE = f"<!-- written by `{COMMAND}`; change the code, not this page -->\n"
_EXAMPLE = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)


def pages() -> dict[str, str]:
    """Return every generated page by its file name."""
    return {
        "jobfile.md": job_file(),
        "cli.md": command_line(),
        "sdk.md": sdk(),
        "rest.md": reference_rest.page(),
        "page.md": the_page(),
        "settings.md": _page(
            "Settings and environment variables", reference_settings.intro(), reference_settings.body()
        ),
        "glossary.md": glossary(),
    }


def main() -> None:
    """Write the pages."""
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


# The job file


def job_file() -> str:
    """Return the page of every field that a job file can have."""
    intro = (
        "A job file is YAML or JSON. `name` and `command` are enough; everything else has a default. "
        "`mpijob explain FIELD` shows the same in a terminal, and `mpijob schema` prints the JSON Schema for "
        "editors."
    )
    return _page("Job file", intro, "".join(_sections()))


def _sections() -> Iterator[str]:
    todo = [("", MPIJob.__struct_fields__)]
    while todo:
        path, names = todo.pop(0)
        found = [json_schema.explain(f"{path}.{name}".lstrip(".")) for name in names]
        yield _section(path, found)
        todo[:0] = [(field.path, field.fields) for field in found if field.fields]  # right behind their owner


def _section(path: str, fields: list[json_schema.Explanation]) -> str:
    title = f"`{path}`" if path else "A job"
    lead = f"{json_schema.explain(path).description}\n\n" if path else ""
    rows = "".join(_field_row(field) for field in fields)
    head = "| field | takes | default | flag | meaning |\n| --- | --- | --- | --- | --- |\n"
    return f"## {title}\n\n{lead}{head}{rows}\n"


def _field_row(field: json_schema.Explanation) -> str:
    takes = ", ".join(f"`{word}`" for word in field.words) if field.type == "one word" else field.type
    own = "see below" if field.fields and field.type == "a mapping" and field.default == "none" else ""
    default = "required" if field.required else own or field.default
    words = f" Words: {', '.join(field.words)}." if field.words and field.type != "one word" else ""
    meaning = f"{field.description}{words} `{field.example}`"
    cells = (f"`{field.path.rpartition('.')[2]}`", takes, default, _flag_of(field.path), meaning)
    return f"| {' | '.join(_cell(cell) for cell in cells)} |\n"


def _flag_of(path: str) -> str:
    table: tuple[Flag | Switch, ...] = (*FLAGS, *SWITCHES)
    options = [flag.option for flag in table if flag.path == path]
    option = options[0] if options else ELSEWHERE.get(path, "")
    return f"`{option}`" if option else ""


# The command line


def command_line() -> str:
    """Return the page of every command with its arguments and options."""
    intro = (
        "`mpijob` is also installed as `kubectl mpijob`, `oc mpijob`, `kubectl odh mpijob` and `oc odh mpijob`. "
        "Results go to stdout, everything else to stderr; how commands end is in [exit codes](exit-codes.md). "
        "Every command takes `-h`; `mpijob --help-all` lists all commands, and `mpijob run --help-all` all options "
        "of a job."
    )
    headings = dict.fromkeys(entry.heading for entry in ENTRIES.values())
    parts = [f"## {heading}\n\n{''.join(_commands(heading))}" for heading in headings]
    return _page("Command line", intro, f"{''.join(parts)}{_job_flags()}")


def _commands(heading: str) -> Iterator[str]:
    context = click.Context(cli, info_name="mpijob")
    for name, entry in ENTRIES.items():
        command = cli.get_command(context, name)
        if entry.heading == heading and command is not None:
            yield from _command(f"mpijob {name}", command)


def _command(words: str, command: click.Command) -> Iterator[str]:
    arguments = [_metavar(param) for param in command.params if isinstance(param, click.Argument)]
    usage = " ".join([words, *arguments, *(["COMMAND …"] if isinstance(command, click.Group) else [])])
    text = inspect.cleandoc(command.help or "")
    yield f"### `{usage}`\n\n{text}\n\n{_command_examples(command)}{_options(command)}"
    if isinstance(command, click.Group) and not isinstance(command, LazyGroup):
        for name, inner in command.commands.items():
            yield from _command(f"{words} {name}", inner)


def _command_examples(command: click.Command) -> str:
    """Return what follows the options in the command's help: examples, and its other names."""
    examples, _, aliases = (command.epilog or "").removeprefix("\b\nExamples:\n").partition("\n\n")
    block = f"```sh\n{inspect.cleandoc(examples)}\n```\n\n" if examples else ""
    return f"{block}{aliases}.\n\n" if aliases else block


def _options(command: click.Command) -> str:
    own = [one for one in command.params if isinstance(one, click.Option) and "--help-all" not in one.opts]
    rows = "".join(_option_row(option) for option in own if not _is_job_flag(option))
    more = "\nand the [flags of a job](#flags-of-a-job).\n" if any(map(_is_job_flag, own)) else ""
    return f"| option | meaning |\n| --- | --- |\n{rows}{more}\n" if rows else f"{more}\n"


def _option_row(option: click.Option) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    value = "" if option.is_flag else f" {_metavar(option)}"
    often = " Can be given several times." if option.multiple else ""
    return f"| `{_cell(names + value)}` | {_cell((option.help or '') + often)} |\n"


def _metavar(param: click.Parameter) -> str:
    if param.metavar:
        return param.metavar
    if isinstance(param.type, click.Choice):
        return "|".join(str(choice) for choice in param.type.choices)
    return (param.name or "").upper() if isinstance(param, click.Argument) else param.type.name.upper()


def _is_job_flag(option: click.Option) -> bool:
    return (option.name or "").startswith("flag_") or option.name == "set_field"


def _job_flags() -> str:
    context = click.Context(cli, info_name="mpijob")
    create = cli.get_command(context, "create")
    assert create is not None
    flags = [param for param in create.params if isinstance(param, click.Option) and _is_job_flag(param)]
    lead = (
        "A flag wins over the job file; the field that it sets is in the [job file's reference](jobfile.md)."
    )
    parts = []
    for heading in dict.fromkeys(section_of(flag.opts[0]) for flag in flags):
        rows = "".join(_option_row(flag) for flag in flags if section_of(flag.opts[0]) == heading)
        parts.append(f"### {heading}\n\n| option | meaning |\n| --- | --- |\n{rows}\n")
    return f"## Flags of a job\n\n{lead}\n\n{''.join(parts)}"


# The SDK


def sdk() -> str:
    """Return the page of the public classes and their methods."""
    intro = (
        "`from mpijob import Client, MPIJob` imports the main classes; the [guide](../how-to/users/python.md) shows "
        "how to use them. The examples here are run by a test."
    )
    classes = (
        Client,
        Job,
        MPIJob,
        AsyncClient,
        AsyncJob,
        JobState,
        LauncherState,
        Phase,
        templates.Templates,
    )
    modules = (array.expand, compare.compare, function.job, function.result)
    parts = [*(_class(kind) for kind in classes), "## Functions\n\n", *(_function(one) for one in modules)]
    return _page("SDK", intro, f"{''.join(parts)}{_errors()}")


def _class(kind: type) -> str:
    bases = [base for base in kind.__mro__ if base.__module__.startswith("mpijob.") and base not in _INNER]
    members = "".join(_member(kind, name) for base in bases for name in _public(base, bases))
    return f"## `{kind.__name__}`\n\n{_made(kind)}{_first(kind)}\n\n{_examples(kind)}{members}\n"


def _made(kind: type) -> str:
    """Return how one is made; a struct has its fields for that, a phase is one of its words."""
    if issubclass(kind, StrEnum):
        return f"{', '.join(f'`{kind.__name__}.{one.name}`' for one in kind)}.\n\n"
    if issubclass(kind, msgspec.Struct):
        return f"Fields: {', '.join(f'`{name}`' for name in kind.__struct_fields__)}.\n\n"
    return f"`{kind.__name__}{_signature(inspect.getattr_static(kind, '__init__'), method=True)}`\n\n"


def _public(base: type, bases: list[type]) -> list[str]:
    """Return what a class itself defines and documents, without what a class before it has said."""
    said = {name for before in bases[: bases.index(base)] for name in vars(before)}
    return [
        name
        for name, value in vars(base).items()
        if not name.startswith("_")
        and not (base is AsyncClient and name in _FOR_INTERFACES)
        and name not in said
        and (callable(value) or isinstance(value, _DESCRIBED))
    ]


_DESCRIBED = (property, classmethod)
_INNER = (BaseClient,)
_FOR_INTERFACES = ("ref", "scope", "localized")  # of BaseClient; AsyncClient names them itself


def _member(kind: type, name: str) -> str:
    value = inspect.getattr_static(kind, name)
    if isinstance(value, property):
        return f"- `{name}`: {_first(value)}\n"
    called = value.__func__ if isinstance(value, classmethod) else value
    verb = "await " if inspect.iscoroutinefunction(called) else ""
    return f"- `{verb}{name}{_signature(called, method=True)}`: {_first(called)}\n"


def _function(one: Any) -> str:
    where = f"{one.__module__}.{one.__name__}"
    return f"### `{where}{_signature(one)}`\n\n{_first(one)}\n\n{_examples(one)}"


def _signature(called: Any, *, method: bool = False) -> str:
    found = inspect.signature(called)
    params = list(found.parameters.values())[1 if method else 0 :]
    text = str(found.replace(parameters=params))
    return re.sub(r"'([^']*)'(?=[,)\s]|$)", _unquoted, text).removesuffix(" -> None")


def _unquoted(match: re.Match[str]) -> str:
    """Return an annotation as it stands in the source; a default that is text keeps its quotes."""
    before = match.string[: match.start()]
    return match[1] if before.endswith((": ", "-> ")) else match[0]


def _first(documented: Any) -> str:
    text = inspect.getdoc(documented) or ""
    return " ".join(text.partition("\n\n")[0].split())


def _examples(documented: Any) -> str:
    """Return the examples; those of a struct are its module's, for its docstring goes into the JSON Schema."""
    told = inspect.getmodule(documented) if hasattr(documented, "__struct_fields__") else documented
    found = _EXAMPLE.findall(inspect.getdoc(told) or "")
    return "".join(f"```pycon\n{example}\n```\n\n" for example in found)


def _errors() -> str:
    ours = (kind for kind in errors.MpiJobError.__subclasses__() if kind.__module__ == errors.__name__)
    kinds: list[type[errors.MpiJobError]] = [errors.MpiJobError, *ours]
    rows = "".join(
        f"| `{kind.__name__}` | [{kind.code}](../troubleshooting/{kind.code.lower()}.md) | {_first(kind)} |\n"
        for kind in kinds
    )
    lead = "Each has `message`, `hint`, `code`, `kind` and `findings`."
    return f"## Errors\n\n{lead}\n\n| error | code | meaning |\n| --- | --- | --- |\n{rows}"


def the_page() -> str:
    """Return the page about the page: screens, keys, and where each field is."""
    intro = (
        "`mpijob ui` opens the web UI ([guide](../how-to/users/web-ui.md)). A question mark beside each field shows "
        "the same as `mpijob explain FIELD`, and the words are those of the [glossary](glossary.md)."
    )
    return _page("Web UI", intro, reference_page.body())


def glossary() -> str:
    """Return the words that everything here uses, and the questions that lead to a kind of job."""
    words = "".join(f"| {word} | {text} |\n" for word, text in sorted(guide.GLOSSARY.items()))
    asked = "".join(_question(one) for one in guide.GUIDE.questions.values())
    kinds = "".join(f"- **{kind.name}**: {kind.why}.\n" for kind in guide.GUIDE.kinds.values())
    intro = "The terms of commands, messages, the web UI and this documentation."
    body = f"| word | meaning |\n| --- | --- |\n{words}\n## Which kind of job?\n\n{asked}{kinds}"
    return _page("Glossary", intro, body)


def _question(question: guide.Question) -> str:
    names = {key: one.name for key, one in guide.GUIDE.kinds.items()}
    rows = "".join(
        f"| {option.text} | {names.get(option.then, 'the next question')} |\n" for option in question.options
    )
    return f"{question.text}\n\n| answer | then |\n| --- | --- |\n{rows}\n"


def _page(title: str, intro: str, body: str) -> str:
    return f"{_NOTE}# {title}\n\n{intro}\n\n{body.rstrip()}\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    main()
