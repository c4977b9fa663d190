"""The few Linux calls that Python 3.11 does not offer: prctl, unshare, mount.

Called in freshly forked, single-threaded children only. Nothing here decides anything; see
`isolation` for what is used when.
"""

from __future__ import annotations

import ctypes
import os
import signal

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0), "prctl PDEATHSIG")


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl SUBREAPER")


def unshare(flags: int) -> None:
    """Leave the namespaces named by the flags."""
    _check(_libc.unshare(flags), "unshare")


def make_mounts_private() -> None:
    """Keep mounts made from here on out of the parent's view."""
    _check(_libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "mount private")


def mount_tmpfs(target: str) -> None:
    """Put an empty memory file system over a directory."""
    _check(
        _libc.mount(b"tmpfs", target.encode(), b"tmpfs", _MS_NOSUID | _MS_NODEV, b"mode=1777"), "mount tmpfs"
    )


def mount_proc() -> None:
    """Show the processes of this PID namespace in /proc."""
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    _check(_libc.mount(b"proc", b"/proc", b"proc", flags, None), "mount proc")


def map_same_user(uid: int, gid: int) -> None:
    """Be the same user inside the new user namespace as outside."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
