"""Keeping a long-lived process small: glibc gives new threads heaps of their own, which fill with holes and stay.

A recorder has a thread for every pod that it listens to, and held 4 MB more after a day of jobs for nothing but that.
"""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8  # malloc.h
_ARENAS = 2


def share_heaps() -> bool:
    """Let all threads of this process share few heaps, before they begin; return whether it could be done."""
    try:
        return bool(ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS))
    except (OSError, AttributeError):  # another C library: it has no such heaps
        return False
