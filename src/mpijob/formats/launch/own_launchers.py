"""Launchers that are not part of an MPI and start ranks by ssh: a wrapper script gives them the job's workers."""

from __future__ import annotations

import functools
import os

OWN_LAUNCHERS = ("horovodrun", "deepspeed")
_WITH_HOSTS = os.path.join(os.path.dirname(__file__), "scripts", "with_hosts.sh")


@functools.cache
def files() -> dict[str, str]:
    """Return the wrapper scripts by path, for a directory that is first in the launcher's PATH."""
    with open(_WITH_HOSTS, encoding="utf-8") as file:
        text = file.read()
    return {f"bin/{name}": text for name in OWN_LAUNCHERS}
