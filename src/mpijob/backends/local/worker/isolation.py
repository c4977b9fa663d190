"""How a job's processes are kept together and apart, and what is guaranteed when we are killed.

Best: the supervisor is PID 1 of a PID namespace of the job's own, so that its death ends every
process of the job in the kernel. Where namespaces are forbidden (some distributions, containers),
process groups, a subreaper and parent-death signals do what they can, and leftovers are swept by
the next command. Which of the two holds is part of the plan.
"""

from __future__ import annotations

import functools
import os
from enum import StrEnum

from mpijob.backends.local.worker import syscalls

HOSTS = "/etc/hosts"
WORKER_HOSTS = "hosts-of-workers"  # beside the attempt's pipes


class Isolation(StrEnum):
    """The two ways in which a job's processes are kept together."""

    NAMESPACES = "namespaces"
    GROUPS = "process-groups"

    @property
    def guarantee(self) -> str:
        """What holds when our own processes are killed, as told to users."""
        if self is Isolation.NAMESPACES:
            return "the kernel ends every process of the job together with its supervisor (PID namespace)"
        return (
            "workers end with their supervisor (parent-death signal, subreaper); "
            "a process that escapes is ended by the next mpijob command"
        )


def choose(wanted: str) -> Isolation:
    """Return the isolation that a job gets here; `wanted` is the setting: auto, namespaces, process-groups."""
    if wanted == Isolation.GROUPS.value:
        return Isolation.GROUPS
    return Isolation.NAMESPACES if namespaces_allowed() else Isolation.GROUPS


@functools.cache
def namespaces_allowed() -> bool:
    """Return whether this user may have the namespaces, by trying it in a child."""
    pid = os.fork()
    if pid == 0:
        syscalls.exit_now(_probe())
    return os.waitpid(pid, 0)[1] == 0


def _probe() -> int:
    try:
        unshare_namespaces()
        pid = os.fork()
        if pid == 0:
            try:
                mount_private()
            except OSError:
                syscalls.exit_now(1)
            syscalls.exit_now(0)
        return 1 if os.waitpid(pid, 0)[1] else 0
    except OSError:
        return 1


def unshare_namespaces() -> None:
    """Leave the user's namespaces; the next fork is PID 1 of the job's own."""
    flags = syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWIPC
    if os.geteuid() == 0:
        try:
            syscalls.unshare(flags)
            return
        except PermissionError:
            pass  # root in a container without the capability: a user namespace may still be allowed
    uid, gid = os.geteuid(), os.getegid()
    syscalls.unshare(flags | syscalls.CLONE_NEWUSER)
    syscalls.map_same_user(uid, gid)


def mount_private() -> None:
    """As PID 1: a /proc and a /dev/shm of our own (what a killed job leaves there goes with it)."""
    syscalls.make_mounts_private()
    syscalls.mount_proc()
    syscalls.mount_tmpfs("/dev/shm")  # noqa: S108 - the mount point itself


def set_host_name(name: str, hosts: str) -> None:
    """Give the calling process a host name of its own (Open MPI tells its daemons apart by it) and a hosts file.

    The launcher's has addresses that nobody has, so that it takes no worker for its own machine; a program that
    listens at its own name, as PyTorch and JAX do, needs one that it can have.
    """
    import socket

    syscalls.unshare(syscalls.CLONE_NEWUTS | syscalls.CLONE_NEWNS)
    socket.sethostname(name)
    if os.path.exists(hosts) and os.path.exists(HOSTS):
        syscalls.mount_bind(hosts, HOSTS)
