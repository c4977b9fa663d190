"""What every command is handed: the client, where to print, what time it is.

The client is made when a command first asks for it, after `-n` has been read; tests put their own
`connect` in. How commands take their common options is in `options`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from mpijob.cli.output import Output

if TYPE_CHECKING:
    from mpijob.client import Client
    from mpijob.model import JobRef


def _connect(namespace: str | None) -> Client:
    from mpijob.client import Client  # help and usage errors need no client

    return Client(namespace=namespace)


@dataclass
class App:
    """One run of the command line."""

    connect: Callable[[str | None], Client] = _connect
    program: str = "mpijob"
    namespace: str | None = None
    out: Output = field(default_factory=Output)
    now: Callable[[], float] = time.time

    @cached_property
    def client(self) -> Client:
        """The client of the namespace that was asked for."""
        return self.connect(self.namespace)

    def words(self, ref: JobRef, verb: str) -> str:
        """Return the command line that does something to this job, as the user would type it."""
        place = f" -n {ref.namespace}" if self.namespace else ""
        return f"{self.program} {verb} {ref.name}{place}"


def pass_app(function: Callable[..., Any]) -> Callable[..., Any]:
    """Hand the App to a command as its first argument."""
    return click.pass_obj(function)
