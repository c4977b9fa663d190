"""Reading plain data into types: the one place where msgspec works a type out.

It does so at the type's first use, and two threads that do so at once crash the process (msgspec 0.22, SIGSEGV:
one sees what the other has half filled in). So it is done under one lock, once; after that reading needs none.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_worked_out: dict[Any, msgspec.json.Decoder[Any]] = {}
_one_at_a_time = threading.RLock()


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Return what reads JSON into a type."""
    known = _worked_out.get(kind)
    if known is None:
        with _one_at_a_time:
            known = _worked_out.setdefault(kind, msgspec.json.Decoder(kind))
    return known


def decode(data: bytes | bytearray | memoryview | str | msgspec.Raw, kind: type[T]) -> T:
    """Return JSON as a value of a type; raise msgspec.DecodeError or msgspec.ValidationError."""
    return decoder(kind).decode(data)


def convert(tree: object, kind: type[T], *, strict: bool = True) -> T:
    """Return plain data as a value of a type; raise msgspec.ValidationError."""
    decoder(kind)
    return msgspec.convert(tree, kind, strict=strict)
