"""How tests, which run as a user on the login node, break the cluster and bring it back: a socket of the bed.

`serve` answers on this machine, as root; `ask` and the functions below it are for the tests inside.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable
from typing import Any

from testbed.shell import TestBedError
from testbed.slurm import cluster, daemons, machines, places

SOCKET = "/run/bed/control.sock"
_LONGEST_SECONDS = 180.0


def serve() -> None:
    """Answer in the background until this process ends."""
    path = places.control() / "control.sock"
    path.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(path))
    os.chmod(path, 0o666)
    server.listen(16)
    threading.Thread(target=_accept, args=(server,), daemon=True).start()


def _accept(server: socket.socket) -> None:
    while True:
        connection, _ = server.accept()
        threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    with connection, connection.makefile("rw") as stream:
        wanted = json.loads(stream.readline())
        try:
            result: dict[str, Any] = {"result": _ACTIONS[wanted["do"]](*wanted["words"])}
        except (TestBedError, OSError, TypeError, subprocess.SubprocessError) as error:
            result = {"error": str(error) or repr(error)}
        stream.write(json.dumps(result) + "\n")


def _daemon(verb: str, machine: str, name: str, skew: str = "") -> None:
    match verb:
        case "start":
            daemons.start(machine, name, clock_skew=skew)
        case "stop" | "kill":
            daemons.stop(machine, name, kill=verb == "kill")
        case _:
            daemons.pause(machine, name, go_on=verb == "continue")


def _hook(name: str, fails: bool) -> None:
    mark = places.control() / f"{name}.fail"
    if fails:
        mark.touch()
    else:
        mark.unlink(missing_ok=True)


_ACTIONS: dict[str, Callable[..., Any]] = {
    "call": lambda machine, user, *argv: machines.call(machine, *argv, user=user),
    "off": machines.stop,
    "on": cluster.power_on,
    "cut": lambda name: machines.cable(name, plugged=False),
    "heal": lambda name: machines.cable(name, plugged=True),
    "daemon": _daemon,
    "hook": _hook,
    "reset": cluster.reset,
}


# -- inside ------------------------------------------------------------------------------------------
def ask(do: str, *words: Any) -> Any:
    """Let the bed do something and return its answer; raise TestBedError with its reason."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_LONGEST_SECONDS)
        connection.connect(SOCKET)
        with connection.makefile("rw") as stream:
            stream.write(json.dumps({"do": do, "words": words}) + "\n")
            stream.flush()
            answer = json.loads(stream.readline())
    if "error" in answer:
        raise TestBedError(answer["error"])
    return answer["result"]


def call(machine: str, *argv: str, user: str = "root") -> str:
    """Run a command on a machine of the bed, as root if nobody else is named."""
    return str(ask("call", machine, user, *argv))


def admin(*argv: str) -> str:
    """Run a command as the cluster's administrator."""
    return call(places.CONTROLLER, *argv)
