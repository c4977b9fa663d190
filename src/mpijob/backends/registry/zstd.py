"""Decompress zstd layers with the interface of zlib: bounded input and output, the rest kept for later.

Python has zstd since 3.14; before, `backports.zstd` (the extra `zstd`) is the same module. A layer may
consist of several frames (zstd:chunked writes many, some of them empty), which are one stream here.
"""

from __future__ import annotations

import functools
from typing import Any

from mpijob.errors import Unsupported

_MAGIC = b"\x28\xb5\x2f\xfd"
# After one of sixteen bytes: a skippable frame, without content.
_SKIPPABLE_MAGIC = b"\x2a\x4d\x18"
# 128 MiB: the default limit of the zstd tools.
_WINDOW_LOG = 27


class DecompressError(Exception):
    """The data is not zstd, or requires too much memory."""


def is_zstd(data: bytes) -> bool:
    return data[:4] == _MAGIC or (data[1:4] == _SKIPPABLE_MAGIC and 0x50 <= data[0] <= 0x5F)


@functools.cache
def _module() -> Any:
    try:
        from compression import zstd
    except ImportError:
        try:
            from backports import zstd
        except ImportError as error:
            raise Unsupported("zstd is not installed", hint="run: pip install 'mpijob[zstd]'") from error
    return zstd


def is_available() -> bool:
    try:
        return _module() is not None
    except Unsupported:
        return False


class FrameDecompressor:
    """Decompresses consecutive frames, with the interface of zlib's decompressobj."""

    def __init__(self) -> None:
        self.unconsumed_tail = b""
        self._remaining = b""
        self._frame = self._new_frame()

    @staticmethod
    def _new_frame() -> Any:
        zstd = _module()
        return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG})

    @property
    def eof(self) -> bool:
        """Whether a frame has ended and no input is left."""
        return bool(self._frame.eof) and not self._remaining

    @property
    def unused_data(self) -> bytes:
        """Input that was not consumed at the end."""
        return self.unconsumed_tail

    def decompress(self, chunk: bytes, max_length: int) -> bytes:
        """Return at most `max_length` bytes; `unconsumed_tail` is the input that was not consumed."""
        self.unconsumed_tail = b""
        if self._frame.eof:
            data = self._start_frame(self._remaining + chunk, max_length)
        elif self._frame.needs_input:
            data = self._feed(chunk, max_length)
        else:
            data, self.unconsumed_tail = self._feed(b"", max_length), chunk
        # An empty frame.
        while not data and self._frame.eof and self._remaining:
            data = self._start_frame(self._remaining, max_length)
        return data

    def _start_frame(self, chunk: bytes, max_length: int) -> bytes:
        self._frame, self._remaining = self._new_frame(), b""
        return self._feed(chunk, max_length)

    def _feed(self, chunk: bytes, max_length: int) -> bytes:
        try:
            data: bytes = self._frame.decompress(chunk, max_length)
        except _module().ZstdError as error:
            raise DecompressError(str(error)) from error
        if self._frame.eof:
            self._remaining = self._frame.unused_data
        return data
