"""What every command gets: the client, the output, the clock.

The client is created when a command first uses it, after `-n` was parsed; tests pass their own `connect`.
Common options are in `options`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from mpijob.cli.output import Output

if TYPE_CHECKING:
    from mpijob.client import Client
    from mpijob.model import JobRef
    from mpijob.settings import Settings


def _connect(namespace: str | None) -> Client:
    # Imported here because help and usage errors need no client.
    from mpijob.client import Client

    return Client(namespace=namespace)


def _connect_to(place: str, namespace: str | None) -> Client:
    from mpijob.client import Client
    from mpijob.settings import at, load

    return Client(namespace=namespace, settings=at(load(), place))


class App:
    """One run of the command line."""

    def __init__(
        self,
        connect: Callable[[str | None], Client] = _connect,
        *,
        namespace: str | None = None,
        place: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.connect = connect
        self.program = "mpijob"
        self.namespace = namespace
        self.place = place
        self.mpi_directories: dict[str, str] = {}
        self.out = Output()
        self.now = now

    def set_program(self, program: str) -> None:
        """Store the name of the program."""
        self.program = program
        if program.startswith(("kubectl ", "oc ")) and self.place is None:
            # Users of kubectl mean the cluster of their kubeconfig.
            self.place = ""

    @cached_property
    def client(self) -> Client:
        """The client of the selected context and namespace."""
        if self.mpi_directories:
            from mpijob.client import Client

            return Client(namespace=self.namespace, settings=self.settings())
        return self.connect(self.namespace) if self.place is None else _connect_to(self.place, self.namespace)

    def settings(self) -> Settings:
        """Return the settings of the selected context and namespace, without a client."""
        from mpijob.settings import at, load

        found = load() if self.place is None else at(load(), self.place)
        if self.mpi_directories:
            directories = found.mpi_directories | self.mpi_directories
            found = msgspec.structs.replace(found, mpi_directories=directories)
        return found if self.namespace is None else msgspec.structs.replace(found, namespace=self.namespace)

    def words(self, ref: JobRef, verb: str) -> str:
        """Return a command line for this job, as the user would type it."""
        place = f" --context {self.place}" if self.place else ""
        elsewhere = self.namespace or ref.namespace != self.client.namespace
        where = f" -n {ref.namespace}" if elsewhere else ""
        return f"{self.program} {verb} {ref.name}{where}{place}"


def pass_app(function: Callable[..., Any]) -> Callable[..., Any]:
    """Pass the App to a command as its first argument."""
    # Imported here because commands such as `list` must start quickly.
    import click

    return click.pass_obj(function)
