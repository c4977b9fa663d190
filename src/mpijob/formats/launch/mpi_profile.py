"""The words by which ranks are told to count their MPI calls, and by which pods hand the counts on.

The shim (`backends/profiler`) is preloaded, and writes a file for each rank into `DIRECTORY`. On one machine the engine
reads these files. In a pod `scripts/profile.sh` prints them, packed and in pieces, as lines `mpijob-mpi`; here they are
put together again. What they hold is read by `observation/metrics/mpi_profile_file`.
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
_SPACES = str.maketrans("\x1f", " ")
LARGEST = 64 << 20  # of a file, unpacked


class Printed(NamedTuple):
    """A file as a pod printed it last."""

    name: str
    data: bytes


class Lack(NamedTuple):
    """Why a worker counts nothing."""

    message: str


def is_ours(line: bytes) -> bool:
    """Whether a line of a worker's own log is part of a profile: nobody else writes there so."""
    return line.startswith(_MARK) and (_PIECE.match(line) is not None or _LACK.match(line) is not None)


class Assembler:
    """Puts the pieces of files together, as they come in one pod's log; pieces that are missing make none."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[bytes, bytes], dict[int, bytes]] = {}

    def feed(self, line: bytes) -> Printed | Lack | None:
        """Return the file that a line completes, or why there is none; None for every other line."""
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
            self._forget_older(piece["name"], piece["id"])
            return None
        del self._pieces[key]
        data = _unpacked(b"".join(pieces[number] for number in range(1, total + 1)))
        return Printed(piece["name"].decode(), data) if data else None

    def _forget_older(self, name: bytes, newest: bytes) -> None:
        for key in [key for key in self._pieces if key[0] == name and key[1] != newest]:
            del self._pieces[key]


def _unpacked(text: bytes) -> bytes:
    """Return what was packed by gzip and written in letters; nothing where that is broken, or beyond all bounds."""
    try:
        return zlib.decompressobj(wbits=31).decompress(base64.b64decode(text, validate=True), LARGEST)
    except (binascii.Error, zlib.error):
        return b""


@functools.cache
def text() -> str:
    """Return the part of the texts in pods that prints profiles."""
    with open(os.path.join(os.path.dirname(__file__), "scripts", "profile.sh"), encoding="utf-8") as file:
        return file.read()
