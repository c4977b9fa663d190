"""One piece of work of a batch script, which becomes a job."""

from __future__ import annotations

import msgspec


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
    aside: bool = False  # the script does not wait for it

    @property
    def launches(self) -> bool:
        """Whether the step starts ranks."""
        return bool(self.words)
