"""Linux system calls that Python 3.11 does not offer: prctl, unshare, mount, inotify, capset.

`unshare` and `mount` are for freshly forked children with one thread: they change the whole process.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterable
from typing import NoReturn

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 47, 2
_CAP_SYS_PTRACE = 19
_CAPABILITY_VERSION = 0x20080522
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_MOVE = 1, 32, 4096, 8192
_MS_NOATIME, _MS_RELATIME = 1024, 1 << 21

_IN_OPEN = 0x20

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def exit_now(code: int) -> NoReturn:
    """End a forked process at once, without any of Python's hooks."""
    # A fork has copies of the locks that other threads of the parent held, and nobody releases those. A hook that needs
    # one blocks the child, and the parent that waits for it: coverage patches `os._exit` and writes to SQLite.
    _libc._exit(code)
    raise AssertionError("unreachable")


def set_parent_death_signal() -> None:
    """Have the kernel kill this process when its parent dies."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0), "prctl PDEATHSIG")


def name_process(name: str) -> None:
    """Set the process name of at most 15 bytes, which forks inherit until they execute a program."""
    _check(_libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0), "prctl NAME")


def become_subreaper() -> None:
    """Become the parent of every descendant whose parent dies (prctl(2), PR_SET_CHILD_SUBREAPER)."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl SUBREAPER")


def watch_opens(paths: Iterable[str]) -> int:
    """Return a descriptor that is readable when one of these files is opened, -1 if none can be watched.

    Of a directory, the files in it are watched.
    """
    fd = int(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    if fd < 0:
        return -1
    watched = [_libc.inotify_add_watch(fd, os.fsencode(path), _IN_OPEN) >= 0 for path in paths]
    if any(watched):
        return fd
    os.close(fd)
    return -1


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def make_mounts_private() -> None:
    """Keep later mounts out of the parent's mount namespace."""
    _check(_libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "mount private")


def mount_tmpfs(target: str, mode: str = "1777") -> None:
    options = f"mode={mode}".encode()
    _check(_libc.mount(b"tmpfs", target.encode(), b"tmpfs", _MS_NOSUID | _MS_NODEV, options), "mount tmpfs")


def mount_bind(source: str, target: str, *, read_only: bool = False, whole_tree: bool = False) -> None:
    """Mount a directory at `target`; with `whole_tree`, and if it is writable, with the mounts below it."""
    # The read-only flag of a bind mount holds for that mount alone, so mounts below it would stay writable.
    flags = _MS_BIND | (_MS_REC if whole_tree or not read_only else 0)
    _check(_libc.mount(source.encode(), target.encode(), None, flags, None), f"mount {source} at {target}")
    if read_only:
        # A bind mount becomes read-only by a second call only (mount(2)).
        stat_flags = os.statvfs(target).f_flag & (
            os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_RELATIME
        )
        flags = _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _mount_flags(stat_flags)
        _check(_libc.mount(None, target.encode(), None, flags, None), f"mount {target} read-only")


def _mount_flags(stat_flags: int) -> int:
    """Return the mount flags for flags of statvfs, which have other values."""
    # In a user namespace, a remount that drops one of these flags fails (mount_namespaces(7)).
    pairs = ((os.ST_NOSUID, _MS_NOSUID), (os.ST_NODEV, _MS_NODEV), (os.ST_NOEXEC, _MS_NOEXEC),
             (os.ST_NOATIME, _MS_NOATIME), (os.ST_RELATIME, _MS_RELATIME))  # fmt: skip
    return sum(flag for bit, flag in pairs if stat_flags & bit)


def change_root(new_root: str) -> None:
    """Make a mount point the root of this mount namespace."""
    os.chdir(new_root)
    _check(_libc.mount(new_root.encode(), b"/", None, _MS_MOVE, None), "move the root")
    os.chroot(".")
    os.chdir("/")


def mount_proc() -> None:
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    _check(_libc.mount(b"proc", b"/proc", b"proc", flags, None), "mount proc")


def map_same_user(uid: int, gid: int) -> None:
    """Keep user and group ids in a new user namespace."""
    # Without privileges the kernel takes a `gid_map` only when `setgroups` is denied (user_namespaces(7)).
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def keep_ptrace() -> None:
    """Let the next program of this process attach to others of its user namespace (py-spy, gdb), if this one may."""
    # Where kernel.yama.ptrace_scope is 1 or 2, only CAP_SYS_PTRACE allows that. A process has it in a user namespace
    # of its own, but a program that is executed keeps it only as an ambient capability. It holds for processes of that
    # namespace alone, which are all the user's own.
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable, for each 32 capabilities
    if _libc.capget(header, sets) != 0 or not sets[1] >> _CAP_SYS_PTRACE & 1:
        return
    sets[2] |= 1 << _CAP_SYS_PTRACE
    if _libc.capset(header, sets) == 0:
        _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_SYS_PTRACE, 0, 0)
