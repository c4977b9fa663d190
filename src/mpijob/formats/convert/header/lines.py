"""The header of a batch script: batch systems read directives up to the first command."""

from __future__ import annotations

import re
from typing import NamedTuple

from mpijob.formats.convert.header.request import Request

_MARK = re.compile(r"\s*#(SBATCH|PBS|BSUB|\$)(?!\w)")


class Line(NamedTuple):
    """A line of the header: its number, from 1, and its text without trailing blanks."""

    number: int
    text: str


def header(text: str) -> list[Line]:
    found: list[Line] = []
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            break
        if stripped:
            found.append(Line(number, line.rstrip()))
    return found


def body(text: str) -> str:
    """Return a script without its interpreter line and without the header's directives."""
    lines = text.split("\n")
    directives = {line.number - 1 for line in header(text) if _MARK.match(line.text)}
    if lines[0].startswith("#!"):
        directives.add(0)
    return "\n".join(line for at, line in enumerate(lines) if at not in directives)


def report_late(request: Request, text: str, mark: str) -> None:
    """Warn once of directives after the first command: no batch system reads them."""
    last = max((line.number for line in header(text)), default=0)
    lines = enumerate(text.split("\n"), start=1)
    late = [number for number, line in lines if number > last and re.match(rf"\s*{mark}\b", line)]
    if late:
        where = f"{len(late)} directives from line {late[0]}" if len(late) > 1 else f"line {late[0]}"
        note = f"{request.system} ignores directives after the first command; so does mpijob"
        todo = "if the job needs it, move it above the first command"
        request.notes.at(late[0]).dropped(mark, where, note, todo)
