"""A command with a cluster around it: started when it is down, and removed again by whoever started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from testbed import cluster, places
from testbed.shell import TestBedError, say

_ENDINGS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def uses_another_cluster() -> bool:
    """Return whether KUBECONFIG names a cluster that is not the test bed; MPIJOB_TEST_CLUSTER overrules it."""
    given = os.environ.get("KUBECONFIG", "")
    return given not in ("", str(places.kubeconfig())) and not os.environ.get("MPIJOB_TEST_CLUSTER")


def run(argv: Sequence[str]) -> int:
    """Run a command against the cluster and return its exit status."""
    if not argv:
        raise TestBedError("there is no command to run: python -m testbed run -- COMMAND …")
    if uses_another_cluster():
        say(f"KUBECONFIG is set: running on the cluster of {os.environ['KUBECONFIG']}")
        return _call(argv, os.environ["KUBECONFIG"])
    with _running_cluster():
        return _call(argv, str(places.kubeconfig()))


@contextmanager
def _running_cluster() -> Iterator[None]:
    if cluster.is_up():
        yield
        return
    _on_signal(_leave)
    try:
        cluster.up()
        yield
    finally:
        _on_signal(signal.SIG_IGN)  # whoever asks again gets the same answer: it is being removed
        cluster.down()


def _call(argv: Sequence[str], kubeconfig: str) -> int:
    """Run the command; who asks us to end asks it, and it may tidy up first: it may have processes of its own."""
    child = subprocess.Popen(argv, env={**os.environ, "KUBECONFIG": kubeconfig})
    for one in _ENDINGS:  # a terminal interrupts both by itself
        signal.signal(one, lambda number, _: None if number == signal.SIGINT else child.send_signal(number))
    status = child.wait()
    return status if status >= 0 else 128 - status


def _on_signal(handler: object) -> None:
    for one in _ENDINGS:
        signal.signal(one, handler)  # type: ignore[arg-type] # a function or SIG_IGN


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
