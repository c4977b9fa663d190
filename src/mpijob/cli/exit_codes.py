"""Exit statuses and error messages: one mapping from the kind of an error.

The table is documented in docs/reference/exit-codes.md and in `--help`; a test compares both with it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NoReturn

from mpijob.cli.output import Output
from mpijob.errors import Kind, MpiJobError
from mpijob.model import Phase

if TYPE_CHECKING:
    import click

OK, FAILED, USAGE, INTERNAL, INTERRUPTED = 0, 1, 2, 70, 130

STATUS: dict[Kind, int] = {
    Kind.FAILED: FAILED,
    Kind.INVALID: USAGE,
    Kind.NOT_FOUND: 3,
    Kind.FORBIDDEN: 4,
    Kind.NO_ROOM: 5,
    Kind.CONFLICT: 5,
    Kind.UNAVAILABLE: 6,
    Kind.UNSUPPORTED: 6,
    Kind.TIMEOUT: 7,
    Kind.INTERNAL: INTERNAL,
}

MEANINGS: dict[int, str] = {
    OK: "done",
    FAILED: "the job failed",
    USAGE: "the job or the command line is not valid",
    3: "not found",
    4: "not allowed",
    5: "conflict: no capacity, quota exceeded, or the name exists",
    6: "the engine cannot be reached, or cannot do this",
    7: "timed out",
    INTERNAL: "internal error; the message names the file with the traceback",
    INTERRUPTED: "interrupted, or the confirmation was declined",
}

# Options of batch systems, with the option of mpijob and an example value.
HABITS: dict[str, tuple[str, str]] = {
    "--time": ("--deadline", "10m"),
    "--walltime": ("--deadline", "10m"),
    "--nodes": ("--workers", "2"),
    "--ntasks": ("--ranks", "8"),
    "--np": ("--ranks", "8"),
    "--ntasks-per-node": ("--slots", "4"),
    "--cpus-per-task": ("--cores-per-rank", "2"),
    "--mem": ("--memory", "4Gi"),
    "--gres": ("--gpu", "1"),
    "--gpus": ("--gpu", "1"),
    "--partition": ("--queue", "gpu"),
}


def after(phase: Phase) -> int:
    """Return the exit status for the final phase of a job."""
    return OK if phase is Phase.SUCCEEDED else FAILED


def end(status: int) -> NoReturn:
    """End the command with a status."""
    from click.exceptions import Exit

    raise Exit(status)


def report_error(out: Output, error: Exception, program: str) -> int:
    """Print an error and return the exit status."""
    if isinstance(error, MpiJobError):
        out.error(error)
        return STATUS[error.kind]
    # Imported here because commands such as `list` must start quickly.
    import click

    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.Abort):
        return interrupted(out, error.__cause__)
    if isinstance(error, click.NoSuchOption) and (hint := _habit(error)):
        out.problem("USAGE", f"there is no option {error.option_name}", hint)
        return USAGE
    if isinstance(error, click.ClickException):
        out.problem("USAGE", error.format_message(), _usage_hint(error, program))
        return USAGE
    return _bug(out, error)


def interrupted(out: Output, error: BaseException | None) -> int:
    """Print that the user interrupted the command, with notes such as how to reattach; return the status."""
    out.note("interrupted")
    for note in getattr(error, "__notes__", ()):
        out.note(note)
    return INTERRUPTED


def _habit(error: click.NoSuchOption) -> str:
    """Return a hint for an option of a batch system; "" for others, and if the command has no such option."""
    ours, example = HABITS.get(error.option_name, ("", ""))
    known = error.ctx.command.params if error.ctx else ()
    return f"it is called {ours} here: {ours} {example}" if any(ours in one.opts for one in known) else ""


def _usage_hint(error: click.ClickException, program: str) -> str:
    import click

    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{context.command_path if context else program} --help lists commands and options"


def _bug(out: Output, error: Exception) -> int:
    # Imported here because it is needed for bugs only.
    import tempfile
    import traceback

    lines = "".join(traceback.format_exception(error))
    # mkstemp makes it readable by this user only: a traceback may quote secrets.
    handle, path = tempfile.mkstemp(prefix="mpijob-", suffix=".traceback")
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(lines)
    summary = f"{type(error).__name__}: {error}".splitlines()[0]
    out.problem("INTERNAL", f"this is a bug in mpijob ({summary}); the traceback is in {path}")
    if os.environ.get("MPIJOB_DEBUG"):
        out.note(lines)
    return INTERNAL
