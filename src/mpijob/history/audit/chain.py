"""The file format of the audit chain: daily files, their lines, and what the hash of a line covers.

Writing is done in `audit_log`, verification in `verify_chain`.
"""

from __future__ import annotations

import os
import time
from hashlib import sha256

import msgspec

from mpijob.model.status.audit import DOMAIN

GENESIS = "0" * 64
SEQUENCE, PREVIOUS, HASH = f"{DOMAIN}/sequence", f"{DOMAIN}/previous", f"{DOMAIN}/hash"
MAX_LINE_BYTES = 64 * 1024
_HASH_FIELD, _END = f',"{HASH}":"'.encode(), b'"}}'
_SEQUENCE_FIELD = f'"{SEQUENCE}":"'.encode()
_HASH_LENGTH = len(_HASH_FIELD) + 64 + len(_END)
_FILE_PATTERN = "audit-0000-00-00.jsonl"
_HEXADECIMAL = frozenset(b"0123456789abcdef")


class Head(msgspec.Struct, frozen=True):
    """The head of a chain: sequence number and hash of its last line."""

    sequence: int = 0
    hash: str = GENESIS

    def __str__(self) -> str:
        return f"{self.sequence}:{self.hash}"


def daily_files(directory: str) -> list[str]:
    """Return the daily files, the oldest first."""
    try:
        return sorted(name for name in os.listdir(directory) if _is_daily_file(name))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_daily_file(name: str) -> bool:
    # No regular expression: compiling one takes longer than writing a line.
    pattern = "".join("0" if letter in "0123456789" else letter for letter in name)
    return pattern == _FILE_PATTERN


def append_hash(body: bytes) -> tuple[bytes, str]:
    """Return the line for an encoded entry with its hash appended, and the hash."""
    digest = sha256(body).hexdigest()
    # The hash becomes the last annotation: annotations are the last field, so the entry ends with `}}`.
    return body[:-2] + f',"{HASH}":"{digest}"}}}}'.encode(), digest


def split_hash(line: bytes) -> tuple[bytes, str] | None:
    """Return the bytes that a line's hash covers, and the stored hash; None if the line has no hash."""
    body, tail = line[:-_HASH_LENGTH], line[-_HASH_LENGTH:]
    digest = tail[len(_HASH_FIELD) : -len(_END)]
    if not (
        tail.startswith(_HASH_FIELD)
        and tail.endswith(_END)
        and len(digest) == 64
        and _HEXADECIMAL.issuperset(digest)
    ):
        return None
    return body + b"}}", digest.decode()


def has_valid_hash(line: bytes) -> bool:
    parts = split_hash(line)
    return parts is not None and sha256(parts[0]).hexdigest() == parts[1]


def sequence_of(line: bytes) -> int:
    """Return the sequence number of a line; 0 if it has none."""
    # The last one counts: annotations of the caller come before it.
    at = line.rfind(_SEQUENCE_FIELD)
    digits = line[at + len(_SEQUENCE_FIELD) :].partition(b'"')[0] if at >= 0 else b""
    return int(digits) if digits.isdigit() and len(digits) < 19 else 0


def read_head(directory: str) -> tuple[Head, int]:
    """Return the head of the chain, and the number of bytes after it that are not a complete line."""
    # From the lines, not from the file `head`: that is written later, and lost if the writer is killed.
    torn_bytes = 0
    for index, name in enumerate(reversed(daily_files(directory))):
        data = _read_end(os.path.join(directory, name))
        *lines, incomplete = data.split(b"\n")
        torn_bytes = len(incomplete) if index == 0 else torn_bytes
        for line in reversed(lines):
            if (split := split_hash(line)) is not None and (number := sequence_of(line)):
                return Head(number, split[1]), torn_bytes
    return Head(), torn_bytes


def _read_end(path: str) -> bytes:
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 4 * MAX_LINE_BYTES))
        return file.read()


def stored_head(directory: str) -> Head | None:
    """Return the head that was stored after the last write; None if it is missing or damaged."""
    try:
        with open(os.path.join(directory, "head"), encoding="ascii") as file:
            number, digest = file.read(200).split()
        return Head(int(number), digest)
    except (OSError, ValueError):
        return None


def new_id() -> str:
    # A random UUID in its usual form; the module `uuid` would take longer to import.
    digits = os.urandom(16).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def day(timestamp: float) -> str:
    """Return the date of a time as used in file names."""
    return time.strftime("%Y-%m-%d", time.gmtime(timestamp))
