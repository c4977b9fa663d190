"""Who else could change a file that we believe, or a directory in which we work.

Each function returns what is wrong as a clause for an error message, or "" where nobody but this user and root
could. The callers raise: see `docs/decisions/0046-other-users.md` for what is refused and what is not.
"""

from __future__ import annotations

import os
import stat
from functools import cache

_MOST_LINKS = 40  # as in the kernel


def trusted(uid: int) -> bool:
    """Return whether an owner is this user or root, who can do anything anyway."""
    return uid in (0, os.geteuid()) or (uid == _overflow_uid() and _in_user_namespace())


def of_file(about: os.stat_result) -> str:
    """Return who else could have written a file, by what `fstat` says of it."""
    if not trusted(about.st_uid):
        return f"it belongs to {name(about.st_uid)}"
    if about.st_mode & stat.S_IWOTH:
        return "it is world-writable"
    if about.st_mode & stat.S_IWGRP and not _private_group(about.st_gid):
        return f"group {about.st_gid} may write to it"
    return ""


def of_shared(about: os.stat_result) -> str:
    """Return who could take away or exchange what lies in a directory, by what `stat` says of it."""
    if not about.st_mode & stat.S_IWOTH:
        return ""
    if not about.st_mode & stat.S_ISVTX:
        return "other users can replace its files (no sticky bit)"
    return "" if trusted(about.st_uid) else f"{name(about.st_uid)} owns it and can replace its contents"


def above(path: str) -> str:
    """Return who could exchange a directory by way of those above it; links on the way count."""
    parts = os.path.abspath(path).split("/")[1:]
    here, links = "/", 0
    while parts:
        if problem := of_shared(os.stat(here)):
            return f"{here}: {problem}"
        here = os.path.join(here, parts.pop(0))
        try:
            about = os.lstat(here)
        except FileNotFoundError:
            return ""  # nothing is there: whoever makes it is its owner
        if stat.S_ISLNK(about.st_mode):
            links += 1
            if not trusted(about.st_uid):
                return f"{here} is a symbolic link owned by {name(about.st_uid)}"
            if links > _MOST_LINKS:
                return f"{here}: too many links"
            target = os.readlink(here)
            parts = [part for part in target.split("/") if part] + parts
            here = "/" if target.startswith("/") else os.path.dirname(here)
    return ""


def name(uid: int) -> str:
    """Return a user as messages call it."""
    import pwd  # only for what is wrong: start-up is a feature

    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"


def _private_group(gid: int) -> bool:
    """Return whether a group has no member but this user (the usual group of one's own), or is root's."""
    import grp  # only for what its group may write: start-up is a feature
    import pwd

    if gid == 0:
        return True
    try:
        user = pwd.getpwuid(os.geteuid())
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _overflow_uid() -> int:
    """Return the user as whom all appear that a user namespace does not know."""
    return _number("/proc/sys/kernel/overflowuid", 65534)


@cache
def _number(path: str, default: int) -> int:
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        return default


def _in_user_namespace() -> bool:
    """Return whether some users cannot be told apart here: then root outside looks like any other."""
    try:
        with open("/proc/self/uid_map") as file:
            return file.read().split() != ["0", "0", str(2**32 - 1)]
    except OSError:
        return False
