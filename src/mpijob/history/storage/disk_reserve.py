"""How much of a disk is left to what must never fail: the state of jobs, and their removal.

Logs are the only thing of ours that can fill a disk, so they stop short of it: with the rest, a job can still be
said to have ended, and be deleted.
"""

from __future__ import annotations

import os

LEAST_LEFT, MOST_LEFT = 1 << 20, 16 << 20  # of a fiftieth of the disk


def has_room(directory: str | os.PathLike[str], size: int = 0) -> bool:
    """Whether so many bytes more leave enough of a directory's disk."""
    return spare(directory) > size


def spare(directory: str | os.PathLike[str]) -> int:
    """Return how many bytes logs may still take; of a place that is gone nobody can say, and none are counted."""
    try:
        disk = os.statvfs(directory)
    except OSError:
        return MOST_LEFT
    left = min(max(disk.f_blocks * disk.f_frsize // 50, LEAST_LEFT), MOST_LEFT)
    return max(0, disk.f_bavail * disk.f_frsize - left)
