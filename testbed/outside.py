"""A machine beyond the cluster, for tests of what pods may reach: no packet leaves this machine.

It is a network namespace with a server, linked to the node and to nothing else. It has an address that is public
by its number (of a block kept for documentation) and one that is private, as a database of the company would have.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from testbed import processes
from testbed.shell import run, succeeds, wait_for

_LINK = "outside0"
_GATE, _PREFIX = "198.51.100.1", 24


class Machine(NamedTuple):
    """Where the machine answers: by a public and by a private address."""

    public: str = "198.51.100.7"
    private: str = "10.77.0.7"


@contextmanager
def machine(port: int) -> Iterator[Machine]:
    """Let there be such a machine, which serves on a port, for a while."""
    server = subprocess.Popen(["unshare", "--net", "--", sys.executable, "-c", _SERVE.format(port=port)])
    there = Machine()
    try:
        _connect(server.pid, there)
        probe = _within(server.pid, "python3", "-c", _PROBE.format(port=port))
        wait_for("the server outside", lambda: succeeds(*probe), seconds=20)
        yield there
    finally:
        server.kill()
        server.wait(10)
        succeeds(
            *processes.inside("ip", "link", "delete", _LINK)
        )  # the kernel does it itself, a little later


_SERVE = """
import socketserver
socketserver.ThreadingTCPServer(("0.0.0.0", {port}), socketserver.BaseRequestHandler).serve_forever()
"""
_PROBE = "import socket; socket.create_connection(('127.0.0.1', {port}), 1).close()"


def _connect(process: int, there: Machine) -> None:
    wait_for("a network of its own", lambda: _is_apart(process), seconds=10, pause=0.05)
    succeeds(*processes.inside("ip", "link", "delete", _LINK))
    peer = ("peer", "name", "eth0", "netns", str(process))
    for words in (
        ("link", "add", _LINK, "type", "veth", *peer),
        ("address", "add", f"{_GATE}/{_PREFIX}", "dev", _LINK),
        ("link", "set", _LINK, "up"),
        ("route", "add", f"{there.private}/32", "via", there.public, "dev", _LINK, "onlink"),
    ):
        run(*processes.inside("ip", *words))
    for words in (
        ("link", "set", "lo", "up"),
        ("address", "add", f"{there.public}/{_PREFIX}", "dev", "eth0"),
        ("address", "add", f"{there.private}/32", "dev", "lo"),
        ("link", "set", "eth0", "up"),
        ("route", "add", "default", "via", _GATE),
    ):
        run(*_within(process, "ip", *words))


def _is_apart(process: int) -> bool:
    own, theirs = (run("readlink", f"/proc/{one}/ns/net") for one in ("self", process))
    return own != theirs


def _within(process: int, *argv: str) -> tuple[str, ...]:
    return ("nsenter", f"--net=/proc/{process}/ns/net", "--", *argv)
