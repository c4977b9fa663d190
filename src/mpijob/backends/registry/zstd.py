"""Layers packed with zstd, unpacked as zlib does it: so much in, at most so much out, the rest kept for later.

Python has zstd from 3.14 on; before that `backports.zstd` (the extra `zstd`) is the same module. Frames follow each
other in a layer (zstd:chunked writes many, some of which hold nothing), and are one content here.
"""

from __future__ import annotations

import functools
from typing import Any

from mpijob.errors import Unsupported

_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPED = b"\x2a\x4d\x18"  # behind one of sixteen bytes: a frame that holds nothing
_WINDOW_LOG = 27  # 128 MiB: what the format's own tools take without being told to


class Broken(Exception):
    """What was to be unpacked is no zstd, or wants more memory than is given."""


def is_packed(piece: bytes) -> bool:
    """Whether a layer begins as one does that is packed with zstd."""
    return piece[:4] == _MAGIC or (piece[1:4] == _SKIPPED and 0x50 <= piece[0] <= 0x5F)


@functools.cache
def _module() -> Any:
    try:
        from compression import zstd
    except ImportError:
        try:
            from backports import zstd
        except ImportError as error:
            raise Unsupported("zstd is not installed", hint="pip install 'mpijob[zstd]'") from error
    return zstd


def is_there() -> bool:
    """Whether zstd can be unpacked here."""
    try:
        return _module() is not None
    except Unsupported:
        return False


class Unpacker:
    """Unpacks one frame after the other, with the words of zlib's decompressobj."""

    def __init__(self) -> None:
        self.unconsumed_tail = b""
        self._left = b""
        self._frame = self._next()

    @staticmethod
    def _next() -> Any:
        zstd = _module()
        return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG})

    @property
    def eof(self) -> bool:
        """Whether a frame has ended and nothing of what was given is left."""
        return bool(self._frame.eof) and not self._left

    @property
    def unused_data(self) -> bytes:
        """What was given and not taken when the end came."""
        return self.unconsumed_tail

    def decompress(self, part: bytes, most: int) -> bytes:
        """Return at most so many bytes; `unconsumed_tail` is what of the part was not taken."""
        self.unconsumed_tail = b""
        if self._frame.eof:
            data = self._begin(self._left + part, most)
        elif self._frame.needs_input:
            data = self._fed(part, most)
        else:
            data, self.unconsumed_tail = self._fed(b"", most), part
        while not data and self._frame.eof and self._left:  # a frame that held nothing
            data = self._begin(self._left, most)
        return data

    def _begin(self, given: bytes, most: int) -> bytes:
        self._frame, self._left = self._next(), b""
        return self._fed(given, most)

    def _fed(self, given: bytes, most: int) -> bytes:
        try:
            data: bytes = self._frame.decompress(given, most)
        except _module().ZstdError as error:
            raise Broken(str(error)) from error
        if self._frame.eof:
            self._left = self._frame.unused_data
        return data
