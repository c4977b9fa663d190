"""A second user of this machine, for tests of what one user can do to another.

As root a process simply becomes that user. Otherwise a user namespace maps a subordinate id, which the kernel
treats as a different user. Where neither is possible the test fails: these attacks are executed or not shown.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

NOBODY = 65534
SOMEBODY = 54321  # has no entry in any user database


def give(path: str | os.PathLike[str], uid: int) -> None:
    """Let a file, a directory or a link belong to another user."""
    if os.geteuid() == 0:
        os.chown(path, uid, -1, follow_symlinks=False)
    else:
        command = [*_namespace(), "chown", "--no-dereference", "1", os.fspath(path)]
        subprocess.run(command, check=True)


def _namespace() -> list[str]:
    command = ["unshare", "--user", "--map-root-user", "--map-auto"]
    if not shutil.which("newuidmap") or subprocess.run([*command, "true"], check=False).returncode:
        pytest.fail(
            "this test needs a second user: run it as root, or give this user subordinate ids (newuidmap)"
        )
    return command


def argv_as(uid: int, argv: Sequence[str]) -> list[str]:
    """Return the command that runs another one as a different user."""
    drop = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    if os.geteuid() == 0:
        return [*drop, *argv]
    inside = ["setpriv", "--reuid=1", "--regid=1", "--clear-groups"]
    command = ["unshare", "--user", "--map-root-user", "--map-auto", *inside]
    if not shutil.which("newuidmap") or subprocess.run([*command, "true"], check=False).returncode:
        pytest.fail(
            "this test needs a second user: run it as root, or give this user subordinate ids (newuidmap)"
        )
    return [*command, *argv]


@contextmanager
def running_as(uid: int, *argv: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program as a different user until the end of the block."""
    process = subprocess.Popen(argv_as(uid, argv), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def result_as(uid: int, work: Callable[[], str]) -> str:
    """Return what a function returns in a forked process of a different user; only root can become one."""
    if os.geteuid() != 0:
        pytest.fail("this test becomes another user: run it as root")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            text = work()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        text = answer.read().decode()
    os.waitpid(pid, 0)
    return text
