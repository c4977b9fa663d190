"""The entry point: the name of the program, and how the process ends.

Installed as `mpijob` and as plugins of kubectl and oc; the usage line shows the words that were typed. `root`
parses them.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from typing import Any, NoReturn

_COMPLETING = "_MPIJOB_COMPLETE"
# The name that engines give to threads that must finish before the process ends.
_LASTING = "mpijob-lasting"


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    status: Any = 0
    try:
        status = _run(program_words(sys.argv[0]), sys.argv[1:])
    except SystemExit as ending:
        status = ending.code
    _finish()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    # Skips the teardown of the interpreter, which takes longer than many commands.
    os._exit(status if isinstance(status, int) else 0)


def _finish() -> None:
    """Wait for background work that must not be cut short."""
    # Not imported for this: if no module has imported it, there are no threads.
    threading = sys.modules.get("threading")
    pending = [one for one in threading.enumerate() if one.name == _LASTING] if threading else []
    if pending:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
    with contextlib.suppress(KeyboardInterrupt):
        for thread in pending:
            thread.join()


def _run(program: str, words: list[str]) -> int:
    # Imports create objects that stay: collecting garbage meanwhile only takes time.
    gc.disable()
    from mpijob.cli.root import cli

    gc.enable()
    cli.main(words, prog_name=program, complete_var=_COMPLETING)
    # Not reached: click exits with the status.
    return 0


def program_words(path: str) -> str:
    """Return the words that the user typed: `kubectl mpijob` for kubectl-mpijob."""
    name = os.path.basename(path)
    if name == "__main__.py":
        return "python -m mpijob"
    host, dash, rest = name.partition("-")
    return f"{host} {rest.replace('-', ' ')}" if dash and host in ("kubectl", "oc") else name
