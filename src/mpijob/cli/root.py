"""The root of all commands: finds the command, and decides the exit status.

The table of commands is `command_table`; commands are in `commands`, imported one by one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NoReturn

import click

from mpijob import __version__
from mpijob.cli import exit_codes
from mpijob.cli.command_table import ALIASES, ENTRIES
from mpijob.cli.context import App
from mpijob.cli.lazy_group import LazyGroup, help_all_option, help_all_wanted
from mpijob.cli.options import SETTINGS
from mpijob.cli.output import Format

_MORE_HELP = "mpijob COMMAND -h: options and examples. mpijob --help-all: every command."


class Root(LazyGroup):
    """The root of all commands; only this class exits."""

    entries = ENTRIES
    aliases = ALIASES

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run one command line and exit with its status."""
        words = list(sys.argv[1:] if args is None else args)
        app = extra.setdefault("obj", App()) or App()
        extra["obj"] = app
        app.set_program(prog_name or app.program)
        # Before parsing, so that usage errors are JSON, too.
        app.out.format = Format.JSON if _wants_json(words) else app.out.format
        sys.exit(self._status(app, words, prog_name, complete_var, extra))

    def _status(
        self,
        app: App,
        words: list[str],
        prog_name: str | None,
        complete_var: str | None,
        extra: dict[str, Any],
    ) -> int:
        try:
            ended = super().main(words, prog_name, complete_var, standalone_mode=False, **extra)
        # The outermost handler: the user gets a message, not a traceback.
        except Exception as error:
            return exit_codes.report_error(app.out, error, app.program)
        # click returns the status of ctx.exit(status).
        return ended if isinstance(ended, int) else exit_codes.OK

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a closed pipe on stdout (`| head`) ends it quietly."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            ctx.find_object(App).out.silence()  # type: ignore[union-attr]  # the root always has one
            return None
        return result

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands first; the options only in the full help."""
        self.format_commands(ctx, formatter)
        if help_all_wanted(ctx):
            click.Command.format_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write where to find more help or, in the full help, the exit codes."""
        if not help_all_wanted(ctx):
            formatter.write(f"\n{_MORE_HELP}\n")
            return
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in exit_codes.MEANINGS.items()])


@click.group(cls=Root, context_settings=SETTINGS, no_args_is_help=True)
@help_all_option
@click.version_option(__version__, "--version", message="mpijob %(version)s")
def cli() -> None:
    """Run MPI jobs on this machine, on Kubernetes and on Slurm."""


def _wants_json(words: list[str]) -> bool:
    """Return whether the words ask for JSON, even if they cannot be parsed."""
    own = words[: words.index("--")] if "--" in words else words
    return any(pair in (("-o", "json"), ("--output", "json")) for pair in pairwise(own)) or any(
        word in ("-ojson", "--output=json") for word in own
    )
