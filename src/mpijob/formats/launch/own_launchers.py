"""Launchers that are no MPI's and start ranks by ssh: they are given the job's workers by a script before them."""

from __future__ import annotations

import functools
import os

OWN_LAUNCHERS = ("horovodrun", "deepspeed")
_WITH_HOSTS = os.path.join(os.path.dirname(__file__), "scripts", "with_hosts.sh")


@functools.cache
def files() -> dict[str, str]:
    """Return the scripts by name, for a directory that stands first on the launcher's path."""
    with open(_WITH_HOSTS, encoding="utf-8") as file:
        text = file.read()
    return {f"bin/{name}": text for name in OWN_LAUNCHERS}
