"""Severity levels of log lines; `log_level` finds the level of a line."""

from __future__ import annotations

from enum import StrEnum


class Level(StrEnum):
    """Severity of a line, from the least to the most."""

    TRACE = "trace"
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    FATAL = "fatal"

    @property
    def weight(self) -> int:
        """Its position in the order, from 0."""
        return list(Level).index(self)
