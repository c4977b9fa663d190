"""Keeping a long-lived process small: what its threads have freed goes back to the machine.

glibc gives new threads heaps of their own, and keeps the holes in them: a controller and a recorder, which begin
threads all the time, held 2 to 4 MB more after a day of a thousand jobs although they remembered nothing of them.
"""

from __future__ import annotations

import ctypes
import threading

_M_ARENA_MAX = -8  # malloc.h
_ARENAS = 2
_EVERY_SECONDS = 10.0


def keep_small(stop: threading.Event) -> bool:
    """Have all threads share few heaps, and their holes given back until `stop`; return whether it can be done.

    To be called before other threads begin.
    """
    try:
        library = ctypes.CDLL(None)
        shared, trim = bool(library.mallopt(_M_ARENA_MAX, _ARENAS)), library.malloc_trim
    except (OSError, AttributeError):  # another C library: it has no such heaps
        return False

    def give_back() -> None:
        while not stop.wait(_EVERY_SECONDS):
            trim(0)

    threading.Thread(target=give_back, daemon=True, name="thrift").start()
    return shared
