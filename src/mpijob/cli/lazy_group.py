"""Groups of commands that import a command's module only when it is used.

`mpijob --help` and shell completion read the table alone; `mpijob list` imports one module. A test compares
the table's help texts with those of the commands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import click

_ALL = "mpijob.help_all"


class CommandEntry(NamedTuple):
    """A command's module, its group in the help, its help text, and whether the short help lists it."""

    module: str
    heading: str
    help: str
    attribute: str = ""
    examples: tuple[str, ...] = ()
    common: bool = False


class LazyGroup(click.Group):
    """A click group over a table of entries."""

    entries: Mapping[str, CommandEntry] = {}
    aliases: Mapping[str, str] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command's module and return the command."""
        name = self.aliases.get(cmd_name, cmd_name)
        entry = self.entries.get(name)
        if entry is None:
            return None
        module = import_module(f"mpijob.cli.commands.{entry.module}")
        command: click.Command = getattr(module, entry.attribute or name)
        _add_examples(command, entry.examples, self.aliases_of(name), f"mpijob {name}")
        return command

    def aliases_of(self, name: str) -> list[str]:
        return [alias for alias, meant in self.aliases.items() if meant == name]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command; an error suggests a similar one."""
        if (
            args
            and args[0] not in self.entries
            and args[0] not in self.aliases
            and not args[0].startswith("-")
        ):
            ctx.fail(f"there is no command {args[0]!r}{self._near(args[0])}")
        return super().resolve_command(ctx, args)

    def _near(self, word: str) -> str:
        from mpijob.model.spec.enums import did_you_mean

        meant = did_you_mean(word, [*self.entries, *self.aliases])
        return f"; did you mean {meant!r}?" if meant else ""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by group, without importing them."""
        wide = help_all_wanted(ctx)
        width = max((len(name) for name, entry in self.entries.items() if entry.common or wide), default=0)
        formatter.write_paragraph()
        for heading in dict.fromkeys(entry.heading for entry in self.entries.values()):
            formatter.write(f"{heading}:\n")
            with formatter.indentation():
                rows, rest = self._rows(heading, wide=wide)
                if rows and rest:
                    rows.append(("more", rest))
                if rows:
                    formatter.write_dl([(name.ljust(width), sentence) for name, sentence in rows])
                else:
                    formatter.write_text(rest)
            if wide:
                formatter.write_paragraph()

    def _rows(self, heading: str, *, wide: bool) -> tuple[list[tuple[str, str]], str]:
        """Return the rows of a group, and the names that the short help lists without a text."""
        listed = {name: entry for name, entry in self.entries.items() if entry.heading == heading}
        rows = [(name, self._sentence(name, wide)) for name in listed if wide or listed[name].common]
        return rows, ", ".join(name for name in listed if name not in dict(rows))

    def _sentence(self, name: str, wide: bool) -> str:
        aliases = f" (also: {', '.join(self.aliases_of(name))})" if wide and self.aliases_of(name) else ""
        return f"{self.entries[name].help}{aliases}"


def help_all_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --help-all to a command: the help without omissions."""
    return click.option(
        "--help-all",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_all,
        help="Show the full help and exit.",
    )(function)


def help_all_wanted(ctx: click.Context) -> bool:
    return bool(ctx.meta.get(_ALL))


def _show_all(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _add_examples(command: click.Command, examples: tuple[str, ...], aliases: list[str], words: str) -> None:
    """Add the examples to a command's help; those of a subcommand also to its own help."""
    if command.epilog is not None or not examples:
        return
    command.epilog = _epilog(examples)
    if aliases:
        command.epilog += f"\n\nAliases: {', '.join(aliases)}"
    for name, part in command.commands.items() if isinstance(command, click.Group) else ():
        part.epilog = _epilog([one for one in examples if f"{one} ".startswith(f"{words} {name} ")])


def _epilog(examples: Sequence[str]) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  {example}" for example in examples)
