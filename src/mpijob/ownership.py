"""Check whether another user could change a file that is trusted, or a directory that is used.

Each function returns the problem as a clause for an error message, or "" if only this user and root could.
The callers raise: see `docs/decisions/0046-other-users.md` for what is refused and what is not.
"""

from __future__ import annotations

import os
import stat
from functools import cache

# The kernel's own limit (MAXSYMLINKS).
_MOST_LINKS = 40


def trusted(uid: int) -> bool:
    """Return whether a user is this user or root."""
    # In a user namespace root of the host appears as the overflow user, and so do all other unmapped users;
    # outside of one the overflow user is not trusted.
    return uid in (0, os.geteuid()) or (uid == _overflow_uid() and _in_user_namespace())


def of_file(status: os.stat_result) -> str:
    """Return how another user could have written a file, from its `fstat`."""
    if not trusted(status.st_uid):
        return f"it belongs to {name(status.st_uid)}"
    if status.st_mode & stat.S_IWOTH:
        return "it is world-writable"
    if status.st_mode & stat.S_IWGRP and not _private_group(status.st_gid):
        return f"group {status.st_gid} may write to it"
    return ""


def of_shared(status: os.stat_result) -> str:
    """Return how another user could remove or replace the content of a directory, from its `stat`."""
    if not status.st_mode & stat.S_IWOTH:
        return ""
    if not status.st_mode & stat.S_ISVTX:
        return "other users can replace its files (no sticky bit)"
    return "" if trusted(status.st_uid) else f"{name(status.st_uid)} owns it and can replace its contents"


def above(path: str) -> str:
    """Return how another user could replace a directory through one of its parents, or through a link on the
    path.
    """
    # Resolved by hand: `realpath` hides which links and directories were on the way.
    parts = os.path.abspath(path).split("/")[1:]
    here, links = "/", 0
    while parts:
        if problem := of_shared(os.stat(here)):
            return f"{here}: {problem}"
        here = os.path.join(here, parts.pop(0))
        try:
            status = os.lstat(here)
        except FileNotFoundError:
            # The user who creates the rest of the path will own it.
            return ""
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if not trusted(status.st_uid):
                return f"{here} is a symbolic link owned by {name(status.st_uid)}"
            if links > _MOST_LINKS:
                return f"{here}: too many links"
            target = os.readlink(here)
            parts = [part for part in target.split("/") if part] + parts
            here = "/" if target.startswith("/") else os.path.dirname(here)
    return ""


def name(uid: int) -> str:
    """Return a user's name for messages."""
    # Imported here because commands must start quickly, and this is needed for errors only.
    import pwd

    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"


def _private_group(gid: int) -> bool:
    """Return whether a group has no member but this user, or is root's."""
    # Imported here because commands must start quickly, and most files are not group-writable.
    import grp
    import pwd

    # Distributions that give each user a group of their own also make files group-writable (umask 002).
    if gid == 0:
        return True
    try:
        user = pwd.getpwuid(os.geteuid())
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _overflow_uid() -> int:
    # The user ID that all users have who are not mapped into a user namespace.
    return _number("/proc/sys/kernel/overflowuid", 65534)


@cache
def _number(path: str, default: int) -> int:
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        return default


def _in_user_namespace() -> bool:
    """Return whether user IDs here can stand for several users of the host."""
    try:
        with open("/proc/self/uid_map") as file:
            return file.read().split() != ["0", "0", str(2**32 - 1)]
    except OSError:
        return False
