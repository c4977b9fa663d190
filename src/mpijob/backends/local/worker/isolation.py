"""Isolation of a job's processes: Linux namespaces where they are allowed, else process groups.

With namespaces, the supervisor is PID 1 of the job's PID namespace, so the kernel ends every process of the job with
it. Where they are forbidden (some distributions, containers), a subreaper and parent-death signals end most processes,
and `queue.recovery` the rest. The plan says which of the two a job gets.
"""

from __future__ import annotations

import functools
import os
from enum import StrEnum

from mpijob.backends.local.worker import syscalls

HOSTS = "/etc/hosts"
# The name of a file in the directory of the attempt's pipes.
WORKER_HOSTS = "hosts-of-workers"


class Isolation(StrEnum):
    """The two ways in which a job's processes are kept together."""

    NAMESPACES = "namespaces"
    GROUPS = "process-groups"

    @property
    def guarantee(self) -> str:
        """A sentence for users: what happens to the job's processes when the supervisor is killed."""
        if self is Isolation.NAMESPACES:
            return "the kernel ends every process of the job together with its supervisor (PID namespace)"
        return (
            "workers end with their supervisor (parent-death signal, subreaper); "
            "a process that escapes is ended by the next mpijob command"
        )


def choose(setting: str) -> Isolation:
    """Return the isolation that jobs get on this machine, by the setting: auto, namespaces or process-groups."""
    if setting == Isolation.GROUPS.value:
        return Isolation.GROUPS
    return Isolation.NAMESPACES if namespaces_allowed() else Isolation.GROUPS


@functools.cache
def namespaces_allowed() -> bool:
    # By trying, in a child: kernel settings, security modules and container runtimes each may forbid a part.
    pid = os.fork()
    if pid == 0:
        syscalls.exit_now(_probe())
    return os.waitpid(pid, 0)[1] == 0


def _probe() -> int:
    try:
        unshare_namespaces()
        pid = os.fork()
        if pid == 0:
            # Where parts of /proc are masked, as in containers, `unshare` may work but not a new mount of /proc.
            try:
                mount_private()
            except OSError:
                syscalls.exit_now(1)
            syscalls.exit_now(0)
        return 1 if os.waitpid(pid, 0)[1] else 0
    except OSError:
        return 1


def unshare_namespaces() -> None:
    """Enter new PID, mount and IPC namespaces; the next fork is PID 1."""
    flags = syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWIPC
    if os.geteuid() == 0:
        try:
            syscalls.unshare(flags)
            return
        # Root of a container without CAP_SYS_ADMIN: a user namespace may be allowed all the same.
        except PermissionError:
            pass
    uid, gid = os.geteuid(), os.getegid()
    syscalls.unshare(flags | syscalls.CLONE_NEWUSER)
    syscalls.map_same_user(uid, gid)


def mount_private() -> None:
    """Mount the namespace's own /proc and /dev/shm; call it as PID 1."""
    # Killed MPI jobs leave segments in /dev/shm: these are gone with the namespace.
    syscalls.make_mounts_private()
    syscalls.mount_proc()
    syscalls.mount_tmpfs("/dev/shm")  # noqa: S108 - the mount point itself


def set_host_name(name: str, hosts: str) -> None:
    """Give the calling process its own host name, and `hosts` as its /etc/hosts."""
    # Open MPI tells its daemons apart by host name. The launcher's hosts file has unreachable addresses for workers
    # (see `AttemptSpec.prepare_mounts`), at which PyTorch and JAX cannot listen.
    import socket

    syscalls.unshare(syscalls.CLONE_NEWUTS | syscalls.CLONE_NEWNS)
    socket.sethostname(name)
    if os.path.exists(hosts) and os.path.exists(HOSTS):
        syscalls.mount_bind(hosts, HOSTS)
