"""How much of a disk is left to what must never fail: the state of jobs, and their removal.

Logs are the only thing of ours that can fill a disk, so they stop short of it: with the rest, a job can still be
said to have ended, and be deleted.
"""

from __future__ import annotations

import os

LEAST_LEFT, MOST_LEFT = 1 << 20, 16 << 20  # of a fiftieth of the disk


def has_room(directory: str | os.PathLike[str], size: int = 0) -> bool:
    """Whether so many bytes more leave enough of a directory's disk; of a place that is gone nobody can say."""
    try:
        disk = os.statvfs(directory)
    except OSError:
        return True
    left = min(max(disk.f_blocks * disk.f_frsize // 50, LEAST_LEFT), MOST_LEFT)
    return disk.f_bavail * disk.f_frsize > left + size
