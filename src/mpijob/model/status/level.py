"""How serious a line of a log is; `log_level` finds it in the line."""

from __future__ import annotations

from enum import StrEnum


class Level(StrEnum):
    """How serious a program says that a line is; from the least to the most."""

    TRACE = "trace"
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    FATAL = "fatal"

    @property
    def weight(self) -> int:
        """Its place in the order, from 0."""
        return list(Level).index(self)
