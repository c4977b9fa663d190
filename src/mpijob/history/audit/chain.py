"""The chain of the audit as it lies on the disk: the files of days, their lines, and what a line's hash covers."""

from __future__ import annotations

import os
import time
from hashlib import sha256

import msgspec

from mpijob.model.status.audit import DOMAIN

GENESIS = "0" * 64
SEQUENCE, PREVIOUS, HASH = f"{DOMAIN}/sequence", f"{DOMAIN}/previous", f"{DOMAIN}/hash"
LONGEST = 64 * 1024
_SEAL, _END = f',"{HASH}":"'.encode(), b'"}}'
_NUMBER = f'"{SEQUENCE}":"'.encode()
_SEALED = len(_SEAL) + 64 + len(_END)
_FILE = "audit-0000-00-00.jsonl"
_HEXADECIMAL = frozenset(b"0123456789abcdef")


class Head(msgspec.Struct, frozen=True):
    """Where a chain has come to: its last line's number and hash."""

    sequence: int = 0
    hash: str = GENESIS

    def __str__(self) -> str:
        return f"{self.sequence}:{self.hash}"


def files(directory: str) -> list[str]:
    """Return the days' files, the oldest first."""
    try:
        return sorted(name for name in os.listdir(directory) if _is_day(name))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_day(name: str) -> bool:
    """Return whether a file is a day's; without patterns, which take longer to make ready than a line to write."""
    shape = "".join("0" if letter in "0123456789" else letter for letter in name)
    return shape == _FILE


def seal(body: bytes) -> tuple[bytes, str]:
    """Return a line from its bytes, and its hash, which is the last thing in it."""
    digest = sha256(body).hexdigest()
    return body[:-2] + f',"{HASH}":"{digest}"}}}}'.encode(), digest


def unsealed(line: bytes) -> tuple[bytes, str] | None:
    """Return the bytes that a line's hash covers, and the hash that it claims; None for what is no such line."""
    body, tail = line[:-_SEALED], line[-_SEALED:]
    digest = tail[len(_SEAL) : -len(_END)]
    if not (
        tail.startswith(_SEAL)
        and tail.endswith(_END)
        and len(digest) == 64
        and _HEXADECIMAL.issuperset(digest)
    ):
        return None
    return body + b"}}", digest.decode()


def sound(line: bytes) -> bool:
    """Return whether a line is as it was written."""
    parts = unsealed(line)
    return parts is not None and sha256(parts[0]).hexdigest() == parts[1]


def number_of(line: bytes) -> int:
    """Return the number that a line claims; 0 where it claims none. The last one counts: notes come before it."""
    at = line.rfind(_NUMBER)
    digits = line[at + len(_NUMBER) :].partition(b'"')[0] if at >= 0 else b""
    return int(digits) if digits.isdigit() and len(digits) < 19 else 0


def tip(directory: str) -> tuple[Head, int]:
    """Return where the chain is, and how many bytes behind it are no whole line."""
    torn = 0
    for index, name in enumerate(reversed(files(directory))):
        data = _end_of(os.path.join(directory, name))
        *lines, rest = data.split(b"\n")
        torn = len(rest) if index == 0 else torn
        for line in reversed(lines):
            if (parts := unsealed(line)) is not None and (number := number_of(line)):
                return Head(number, parts[1]), torn
    return Head(), torn


def _end_of(path: str) -> bytes:
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 4 * LONGEST))
        return file.read()


def noted_head(directory: str) -> Head | None:
    """Return how far the chain was when it was last written, by the note beside it."""
    try:
        with open(os.path.join(directory, "head"), encoding="ascii") as file:
            number, digest = file.read(200).split()
        return Head(int(number), digest)
    except (OSError, ValueError):
        return None


def new_id() -> str:
    """Return a fresh audit id."""
    digits = os.urandom(16).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def day(moment: float) -> str:
    """Return a time's day as files are named."""
    return time.strftime("%Y-%m-%d", time.gmtime(moment))
