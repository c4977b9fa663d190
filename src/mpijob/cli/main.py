"""The entry: under which name we were called, and how the process ends.

Installed as `mpijob` and as kubectl's and oc's plugins; the usage line shows the words that were
typed. `root` finds out what they mean.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from typing import Any, NoReturn

_COMPLETING = "_MPIJOB_COMPLETE"
_LASTING = "mpijob-lasting"  # what engines call threads that the process is to wait for


def main() -> NoReturn:
    """Run the command line of this process, and leave without taking the interpreter apart: that takes time."""
    status: Any = 0
    try:
        status = _run(program_words(sys.argv[0]), sys.argv[1:])
    except SystemExit as ending:
        status = ending.code
    _finish()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status if isinstance(status, int) else 0)


def _finish() -> None:
    """Wait for what was begun behind the user's back and is not to be cut short; what was said is seen before."""
    threading = sys.modules.get("threading")
    begun = [one for one in threading.enumerate() if one.name == _LASTING] if threading else []
    if begun:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
    with contextlib.suppress(KeyboardInterrupt):
        for thread in begun:
            thread.join()


def _run(program: str, words: list[str]) -> int:
    gc.disable()  # imports create objects that stay: collecting them would only take time
    from mpijob.cli.root import cli

    gc.enable()
    cli.main(words, prog_name=program, complete_var=_COMPLETING)
    return 0  # not reached: click ends the process with its status


def program_words(path: str) -> str:
    """Return the words that the user typed to get here: `kubectl mpijob` for kubectl-mpijob."""
    name = os.path.basename(path)
    if name == "__main__.py":
        return "python -m mpijob"
    host, dash, rest = name.partition("-")
    return f"{host} {rest.replace('-', ' ')}" if dash and host in ("kubectl", "oc") else name
