"""Whoever inherits a process must be able to wait for it: a runner inherits the supervisor of its job."""

from __future__ import annotations

import subprocess
import sys

from .support import PATIENCE

# A runner in small: its child starts a grandchild and ends late, when the grandchild has ended already.
HEIR = """
import os, time
from mpijob.backends.local.worker import syscalls as linux
from mpijob.backends.local.worker import process_tree as processes

linux.become_subreaper()
go, gone = os.pipe()
told, tell = os.pipe()
leave = os._exit

def work():
    pid = os.fork()
    if pid == 0:
        os.read(go, 1)
        leave(7)
    os.write(tell, b"%d" % pid)
    def late(code):
        os.write(gone, b"1")
        while (seen := processes.read_process(pid)) and seen.state != "Z":
            time.sleep(0.01)
        leave(code)
    os._exit = late

child = processes.fork_child(work)
assert os.waitpid(child, 0)[1] == 0
print(os.waitstatus_to_exitcode(os.waitpid(int(os.read(told, 32)), 0)[1]))
"""


def test_a_process_that_ends_before_its_parent_has_left_is_told_to_the_heir() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HEIR],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == ("7", "")
