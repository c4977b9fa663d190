"""Profiles of MPI calls: the variable that asks ranks for them, and their transport out of pods.

The shim (`backends/profiler`) is preloaded, and writes a file for each rank into `DIRECTORY`. On one machine the
engine reads these files. In a pod `scripts/profile.sh` prints them to the log, compressed, in `mpijob-mpi` lines,
which are joined here. `observation/metrics/mpi_profile_file` reads their content.
"""

from __future__ import annotations

import base64
import binascii
import functools
import os
import re
import zlib
from typing import NamedTuple

DIRECTORY = "MPIJOB_MPI_PROFILE"
_MARK = b"mpijob-mpi "
_PIECE = re.compile(
    rb"mpijob-mpi rank=\d{1,9} name=(?P<name>[\w.-]{1,80}) id=(?P<id>\w{1,20})"
    rb" part=(?P<part>\d{1,4})/(?P<parts>\d{1,4}) data=(?P<data>[A-Za-z0-9+/=]{1,4000})$"
)
_LACK = re.compile(rb"mpijob-mpi lack=(\S{1,1000})$")
# The script puts a unit separator for each space, because words of a report are separated by spaces.
_SPACES = str.maketrans("\x1f", " ")
# Bytes of a decompressed file: a log is untrusted, and could hold a gzip bomb.
LARGEST = 64 << 20


class Printed(NamedTuple):
    """A profile's file in its latest version from a pod's log."""

    name: str
    data: bytes


class Lack(NamedTuple):
    """Why a worker has no profiles."""

    message: str


def is_ours(line: bytes) -> bool:
    """Whether a line of a worker's log is part of a profile."""
    return line.startswith(_MARK) and (_PIECE.match(line) is not None or _LACK.match(line) is not None)


class Assembler:
    """Joins the pieces of files in one pod's log. A file with missing pieces is left out."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[bytes, bytes], dict[int, bytes]] = {}

    def feed(self, line: bytes) -> Printed | Lack | None:
        """Return the file that a line completes, or why there is none; None for any other line."""
        at = line.find(_MARK)
        if at < 0:
            return None
        if found := _LACK.search(line, at):
            return Lack(found[1].decode(errors="replace").translate(_SPACES))
        piece = _PIECE.search(line, at)
        if piece is None:
            return None
        key, total = (piece["name"], piece["id"]), int(piece["parts"])
        pieces = self._pieces.setdefault(key, {})
        pieces[int(piece["part"])] = piece["data"]
        if len(pieces) < total or not all(number in pieces for number in range(1, total + 1)):
            # Each rank prints its file again as it grows; lines of an older version may be lost when the log rotates.
            self._forget_older(piece["name"], piece["id"])
            return None
        del self._pieces[key]
        data = _decompress(b"".join(pieces[number] for number in range(1, total + 1)))
        return Printed(piece["name"].decode(), data) if data else None

    def _forget_older(self, name: bytes, newest: bytes) -> None:
        for key in [key for key in self._pieces if key[0] == name and key[1] != newest]:
            del self._pieces[key]


def _decompress(text: bytes) -> bytes:
    """Return decompressed data; empty if it is damaged."""
    try:
        return zlib.decompressobj(wbits=31).decompress(base64.b64decode(text, validate=True), LARGEST)
    except (binascii.Error, zlib.error):
        return b""


@functools.cache
def text() -> str:
    with open(os.path.join(os.path.dirname(__file__), "scripts", "profile.sh"), encoding="utf-8") as file:
        return file.read()
