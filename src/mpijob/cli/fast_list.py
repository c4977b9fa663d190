"""A plain `list`, understood without click: it is asked for all day, and click takes longer to load than a list.

Only what is certain is understood here. Anything else (a word that is not known here, help, a value that
needs a judgement) is left to `root`, which knows every command; a test holds both to the same answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpijob.cli import exit_codes
from mpijob.cli.context import App
from mpijob.cli.output import USUAL, Format
from mpijob.cli.render import job_table

_NAMES = ("list", "ls")
_WITH_VALUE = {
    "-n": "namespace",
    "--namespace": "namespace",
    "--context": "place",
    "-o": "output",
    "--output": "output",
    "-l": "selector",
    "--selector": "selector",
}
_FLAGS = {"-A": "all_namespaces", "--all-namespaces": "all_namespaces"}


def understood(words: Sequence[str]) -> dict[str, Any] | None:
    """Return what a plain `list` asks for; None for any other command line."""
    if not words or words[0] not in _NAMES:
        return None
    asked: dict[str, Any] = {}
    rest = iter(words[1:])
    for word in rest:
        if word in _FLAGS:
            asked[_FLAGS[word]] = True
        elif word in _WITH_VALUE:
            asked[_WITH_VALUE[word]] = next(rest, "")
        else:
            return None
    return asked if _is_certain(asked) else None


def _is_certain(asked: dict[str, Any]) -> bool:
    values = [value for value in asked.values() if value is not True]
    return (
        all(value and not value.startswith("-") for value in values)
        and not asked.get("namespace", "").isdigit()
        and asked.get("output", Format.TABLE) in USUAL
    )


def run(asked: dict[str, Any], program: str) -> int:
    """List the jobs that were asked for and return the status to end with."""
    app = App(namespace=asked.pop("namespace", None), place=asked.pop("place", None))
    app.called(program)
    app.out.format = Format(asked.pop("output", Format.TABLE))
    try:
        job_table.show_page(app, **asked)
    except BrokenPipeError:
        app.out.silence()
    except KeyboardInterrupt as interrupt:
        return exit_codes.interrupted(app.out, interrupt)
    except Exception as error:  # the outermost place: whatever it is, the user gets a sentence
        return exit_codes.told(app.out, error, program)
    return exit_codes.OK
