"""Close streams of engines: plain iterators, closed by those who opened them (decision 0050)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def close(stream: Iterator[Any]) -> None:
    # Generators have `close`; other iterators hold nothing that must be released.
    if close_stream := getattr(stream, "close", None):
        close_stream()
