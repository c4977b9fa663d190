"""Groups of commands that are imported only when one of them is used.

`mpijob --help` and a shell's completion read the table alone; `mpijob list` imports one module. The
table's sentences are held equal to the commands' own by a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple

import click


class CommandEntry(NamedTuple):
    """Where a command lives, under which heading it is listed, and its sentence."""

    module: str
    heading: str
    help: str
    attribute: str = ""


class LazyGroup(click.Group):
    """A click group over a table of entries."""

    entries: Mapping[str, CommandEntry] = {}
    aliases: Mapping[str, str] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the table's order."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, importing its module now."""
        name = self.aliases.get(cmd_name, cmd_name)
        entry = self.entries.get(name)
        if entry is None:
            return None
        module = import_module(f"mpijob.cli.commands.{entry.module}")
        command: click.Command = getattr(module, entry.attribute or name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that was meant; a near miss is named in the error."""
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
        """Write the table under its headings, without importing anything."""
        headings = dict.fromkeys(entry.heading for entry in self.entries.values())
        for heading in headings:
            with formatter.section(heading):
                rows = [
                    (name, entry.help) for name, entry in self.entries.items() if entry.heading == heading
                ]
                formatter.write_dl(rows)
