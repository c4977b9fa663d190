"""With which status a command ends, and what is said then: one mapping from the kind of an error.

The table is documented in docs/reference/exit-codes.md and in `--help`; both are held to it by a test.
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
    5: "no room, or it clashes with what is there",
    6: "the engine cannot be reached, or cannot do this",
    7: "timed out",
    INTERNAL: "a bug of ours; the message says where the traceback is",
    INTERRUPTED: "interrupted, or a question answered with no",
}


def after(phase: Phase) -> int:
    """Return the status that tells how a job ended."""
    return OK if phase is Phase.SUCCEEDED else FAILED


def end(status: int) -> NoReturn:
    """End the command with a status."""
    from click.exceptions import Exit

    raise Exit(status)


def told(out: Output, error: Exception, program: str) -> int:
    """Say what went wrong and return the status to end with."""
    if isinstance(error, MpiJobError):
        out.error(error)
        return STATUS[error.kind]
    import click  # a plain list does without: start-up is a feature

    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.Abort):
        return interrupted(out, error.__cause__)
    if isinstance(error, click.ClickException):
        out.problem("USAGE", error.format_message(), _usage_hint(error, program))
        return USAGE
    return _bug(out, error)


def interrupted(out: Output, error: BaseException | None) -> int:
    """Say that the user ended it, with what was noted about that, and return the status to end with."""
    out.note("interrupted")
    for note in getattr(error, "__notes__", ()):
        out.note(note)
    return INTERRUPTED


def _usage_hint(error: click.ClickException, program: str) -> str:
    import click

    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{context.command_path if context else program} --help shows what is possible"


def _bug(out: Output, error: Exception) -> int:
    import tempfile  # not needed on the way to a result: start-up is a feature
    import traceback

    lines = "".join(traceback.format_exception(error))
    handle, path = tempfile.mkstemp(prefix="mpijob-", suffix=".traceback")  # readable by this user alone
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(lines)
    summary = f"{type(error).__name__}: {error}".splitlines()[0]
    out.problem("INTERNAL", f"this is a bug in mpijob ({summary}); the traceback is in {path}")
    if os.environ.get("MPIJOB_DEBUG"):
        out.note(lines)
    return INTERNAL
