"""One MPI job as an object: create, get, delete, wait_for_completion, and the same to be awaited.

The spec is checked when it is created there, with the sentences that `mpijob` says everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpijob import AsyncClient, Client, JobState, Phase
from mpijob import MPIJob as Spec
from mpijob.errors import Conflict
from mpijob.model import JobRef
from openshift_ai_sdk.training.resources import ResourceRequirements

_LAUNCHER = ResourceRequirements(cpu="100m", memory="256Mi")


class MPIJob:
    """A job with one launcher and some workers.

    Other fields of `mpijob.MPIJob` can be given by name. `client` is made when it is first needed.
    """

    def __init__(
        self,
        name: str,
        *,
        image: str = "",
        command: Sequence[str] = (),
        num_workers: int = 4,
        slots_per_worker: int | None = None,
        resources: ResourceRequirements | None = None,
        launcher_resources: ResourceRequirements | None = None,
        env: Mapping[str, str] | None = None,
        namespace: str = "default",
        client: Client | None = None,
        **fields: Any,
    ) -> None:
        each = resources or ResourceRequirements()
        self.spec = Spec(
            name=name,
            namespace=namespace,
            image=image,
            command=tuple(command),
            workers=num_workers,
            slots=slots_per_worker or max(1, each.gpu),
            resources=each.resources(),
            launcher=(launcher_resources or _LAUNCHER).resources(),
            env=dict(env or {}),
            **fields,
        )
        self._client = client
        self._ref: JobRef | None = None

    @classmethod
    def get(cls, name: str, namespace: str | None = None, *, client: Client | None = None) -> MPIJob:
        """Return the newest job of that name; raise NotFound."""
        client = client or Client()
        found = client.get(name, namespace)
        job = cls.__new__(cls)
        job.spec, job._client, job._ref = found.spec, client, found.ref
        return job

    @property
    def name(self) -> str:
        """The job's name."""
        return self.spec.name

    @property
    def client(self) -> Client:
        """The client that does the work."""
        if self._client is None:
            self._client = Client()
        return self._client

    @property
    def status(self) -> JobState:
        """What is seen of the job now."""
        return self.client.state(self._created())

    @property
    def phase(self) -> Phase:
        """Where the job stands now."""
        return self.status.phase

    def create(self) -> MPIJob:
        """Submit the job."""
        self._ref = self.client.submit(self.spec).ref
        return self

    def wait_for_completion(self, timeout: float | None = None) -> JobState:
        """Return the state once the job has succeeded; raise JobFailed or WaitTimeout."""
        return self.client.wait_for_completion(self._created(), timeout)

    def logs(self, **wanted: Any) -> str:
        """Return what was said, each line with who said it; the options are those of `Client.logs`."""
        lines = self.client.logs(self._created(), **wanted)
        return "".join(f"[{line.source}] {line.text.decode(errors='replace')}\n" for line in lines)

    def delete(self, grace_period: float | None = None) -> None:
        """End the job if needed and remove all that is known of it."""
        self.client.delete(self._created(), grace_period)
        self._ref = None

    async def create_async(self) -> MPIJob:
        """Submit the job without blocking the loop."""
        self._ref = (await self._awaitable().submit(self.spec)).ref
        return self

    async def status_async(self) -> JobState:
        """Return what is seen of the job now."""
        return await self._awaitable().state(self._created())

    async def wait_for_completion_async(self, timeout: float | None = None) -> JobState:  # noqa: ASYNC109
        """Return the state once the job has succeeded; raise JobFailed or WaitTimeout."""
        return await self._awaitable().wait_for_completion(self._created(), timeout)

    async def logs_async(self, **wanted: Any) -> str:
        """Return what was said, each line with who said it."""
        lines = self._awaitable().logs(self._created(), **wanted)
        return "".join([f"[{line.source}] {line.text.decode(errors='replace')}\n" async for line in lines])

    def _awaitable(self) -> AsyncClient:
        client = self.client
        return AsyncClient(client.backend, namespace=client.namespace, settings=client.settings)

    def _created(self) -> JobRef:
        if self._ref is None:
            raise Conflict(f"job '{self.name}' was not created yet", hint="call create() first")
        return self._ref

    def _repr_html_(self) -> str:
        return self.client.get(self._created())._repr_html_()
