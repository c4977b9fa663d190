"""Disk space reserved for writes that must not fail: job states, and the deletion of jobs.

Only logs can fill a disk, so they stop before it is full: the end of a job can then still be stored, and jobs
can be deleted.
"""

from __future__ import annotations

import os

# Bounds of the reserve, which is a fiftieth of the disk.
MIN_RESERVE, MAX_RESERVE = 1 << 20, 16 << 20


def has_space(directory: str | os.PathLike[str], size: int = 0) -> bool:
    """Return whether `size` more bytes fit without using the reserve."""
    return available_bytes(directory) > size


def available_bytes(directory: str | os.PathLike[str]) -> int:
    """Return how many bytes logs may still take."""
    try:
        stats = os.statvfs(directory)
    except OSError:
        # The directory was removed: its disk is unknown, and writing will report the error.
        return MAX_RESERVE
    reserve = min(max(stats.f_blocks * stats.f_frsize // 50, MIN_RESERVE), MAX_RESERVE)
    return max(0, stats.f_bavail * stats.f_frsize - reserve)
