"""A command on a machine of the cluster, as one of its users; the cluster is started when it is down, and removed by
whoever started it.
"""

from __future__ import annotations

import compileall
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from testbed.shell import TestBedError
from testbed.slurm import cluster, control, machines, places

_HANDED_ON = ("PYTEST_ADDOPTS", "HYPOTHESIS_PROFILE", "TERM", "BENCH_FLAGS")
_ENDINGS = (signal.SIGTERM, signal.SIGHUP)


def run(argv: Sequence[str], *, machine: str = places.LOGIN, user: str = "alice") -> int:
    """Run a command in the checkout, with the programs of its environment, and return its exit status."""
    if not argv:
        raise TestBedError("there is no command to run: python -m testbed.slurm run -- COMMAND …")
    started = not cluster.is_up()
    cluster.up()
    compileall.compile_dir(places.CHECKOUT / "src", quiet=2)  # inside nobody can write it
    try:
        control.serve()
        return _call(argv, machine, user)
    finally:
        if started:
            cluster.down()


def _call(argv: Sequence[str], machine: str, user: str) -> int:
    child = subprocess.Popen(inside(argv, machine, user))
    for one in _ENDINGS:
        signal.signal(one, lambda number, _: child.send_signal(number))
    try:
        status = child.wait()
    except KeyboardInterrupt:
        status = child.wait()
    return status if status >= 0 else 128 - status


def inside(argv: Sequence[str], machine: str, user: str, *, cwd: str = "") -> list[str]:
    """Return the command that runs another one in the checkout, with its environment's programs first."""
    programs = places.CHECKOUT / ".venv" / "bin"
    variables = {name: os.environ[name] for name in _HANDED_ON if name in os.environ}
    variables["PATH"] = f"{programs}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    variables["PYTHONDONTWRITEBYTECODE"] = "1"  # the checkout is mounted read-only
    return machines.inside(machine, argv, user=user, env=variables, cwd=cwd or str(places.CHECKOUT))


def shell(machine: str, user: str) -> int:
    """Open a shell on a machine, as `ssh` would."""
    if not cluster.is_up():
        raise TestBedError("the Slurm cluster is down: make slurm")
    home = "/root" if user == "root" else f"/home/{user}"
    return subprocess.call(inside(("bash", "-i"), machine, user, cwd=home), stdin=sys.stdin)
