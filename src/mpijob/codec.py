"""Decode JSON and convert plain data into types, with one cached msgspec decoder for each type."""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
# msgspec builds the type information of a struct at its first use, and two threads that do so at once crash
# the process with SIGSEGV (msgspec 0.22): one reads what the other has half filled in. So it is built once,
# under this lock; decoding needs no lock after that.
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_build_lock = threading.RLock()


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    # Reading the dict is atomic, so only the first use of a type takes the lock.
    found = _decoders.get(kind)
    if found is None:
        with _build_lock:
            found = _decoders.setdefault(kind, msgspec.json.Decoder(kind))
    return found


def decode(data: bytes | bytearray | memoryview | str | msgspec.Raw, kind: type[T]) -> T:
    """Decode JSON into a type; raise msgspec.DecodeError or msgspec.ValidationError."""
    return decoder(kind).decode(data)


def convert(tree: object, kind: type[T], *, strict: bool = True) -> T:
    """Convert plain data into a type; raise msgspec.ValidationError."""
    decoder(kind)
    return msgspec.convert(tree, kind, strict=strict)
