"""One piece of work of a batch script, which becomes a job."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from mpijob.formats.convert.report import Notes
from mpijob.model import Launch

_NAMED = re.compile(
    r"(mpijob (?:logs|why|wait|cancel|suspend|describe|artifacts list|artifacts fetch|run -f \S+ --after)) NAME\b"
)
_NUMBERED = re.compile(r"<job-(\d{1,4})>")


class Step(msgspec.Struct):
    """One piece of work: a launch line, or the text of lines that run once."""

    line: int
    words: tuple[str, ...] = ()
    text: str = ""
    parts: list[tuple[int, str]] = []  # the statements of the text, with their lines
    setting: tuple[str, ...] = ()
    env: dict[str, str] = {}
    files: dict[str, str] = {}
    prepared: dict[str, tuple[str, ...]] = {}
    fields: dict[str, Any] = {}  # what stands before the launcher says
    stdin: str = ""
    aside: bool = False  # the script does not wait for it

    @property
    def launches(self) -> bool:
        """Whether the step starts ranks."""
        return bool(self.words)

    def onto(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return fields of a job with what this step alone says; of two deadlines the earlier holds."""
        found = {**fields, **self.fields}
        earlier = [one["deadline_seconds"] for one in (fields, self.fields) if "deadline_seconds" in one]
        if earlier:
            found["deadline_seconds"] = min(earlier)
        if "signal" in fields:
            found["signal"] = fields["signal"]
        if self.stdin:
            launch: Launch = fields.get("launch", Launch())
            found["launch"] = launch.replace(stdin=self.stdin)
        return found


def numbered(step: int) -> str:
    """Return what stands for the name of a step's job until it has one."""
    return f"<job-{step}>"


def name_jobs(notes: Notes, names: Sequence[str]) -> None:
    """Write the names of jobs into what is told of them; NAME stays where it may be any of several."""

    def written(text: str) -> str:
        text = _NUMBERED.sub(
            lambda match: names[int(match[1])] if int(match[1]) < len(names) else "NAME", text
        )
        return _NAMED.sub(rf"\g<1> {names[0]}", text) if len(names) == 1 and names[0] != "NAME" else text

    notes.entries[:] = [
        msgspec.structs.replace(entry, note=written(entry.note), todo=written(entry.todo))
        for entry in notes.entries
    ]
