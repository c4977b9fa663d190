"""Streams of an engine: plain iterators that whoever opened them closes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def close(stream: Iterator[Any]) -> None:
    """Close a stream that can be closed (a generator); others hold nothing."""
    if closing := getattr(stream, "close", None):
        closing()
