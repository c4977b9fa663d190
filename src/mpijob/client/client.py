"""The client for scripts, notebooks and the command line, with blocking calls.

Its methods are in `read`, `write`, `inspect` and `accounting_methods`; methods under the names that
Kubeflow's documentation uses are in `compat/kubeflow`. `async_client` wraps it for event loops.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from mpijob.backends.capabilities import SupportsClose
from mpijob.client.accounting_methods import Accounting
from mpijob.client.compat.kubeflow import Documented
from mpijob.client.inspect import Inspecting
from mpijob.client.read import Reading
from mpijob.client.write import Writing

if TYPE_CHECKING:
    from mpijob.client.services.schedules import Schedules
    from mpijob.client.submit.templates import Templates


class Client(Reading, Writing, Inspecting, Accounting, Documented):
    """Client for the jobs of one engine, with blocking calls.

    >>> from mpijob import Client, MPIJob
    >>> from mpijob.backends.memory import MemoryBackend
    >>> client = Client(MemoryBackend())
    >>> job = client.run(MPIJob(name="hello", workers=2, command=("echo", "hello")))
    >>> job.phase.value
    'Succeeded'
    """

    @property
    def templates(self) -> Templates:
        """Job templates: the user's own, shared ones, and built-in ones."""
        from mpijob.client.submit.templates import Templates

        return Templates.of(self._audited, self.namespace)

    @property
    def schedules(self) -> Schedules:
        """Schedules (recurring jobs) of this engine."""
        from mpijob.client.services.schedules import Schedules

        return Schedules(self)

    def twin(self) -> Client:
        """Return a client for another thread; a backend that was passed in is shared."""
        backend = None if self.owns_backend else self.backend
        return Client(backend, namespace=self.namespace, settings=self.settings)

    def close(self) -> None:
        """Release the client's resources; jobs keep running."""
        if self.owns_backend and (held := self.backend.capability(SupportsClose)) is not None:
            held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
