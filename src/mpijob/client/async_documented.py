"""The names that the product's documents print, as coroutines; `documented` has the blocking ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from mpijob.client import legacy, saying
from mpijob.client.async_desk import AsyncDesk
from mpijob.client.async_job import AsyncJob
from mpijob.client.front import JobStatus, log_query
from mpijob.model import Event, Resources


class AsyncDocumented(AsyncDesk):
    """`create_mpi_job`, `get_job_status`, `stream_job_events`, `get_job_logs`, `delete_job`."""

    async def create_mpi_job(
        self,
        name: str,
        runtime: str = "",
        num_nodes: int = 4,
        image: str = "",
        command: Sequence[str] = (),
        resources: Resources | Mapping[str, Any] | None = None,
    ) -> AsyncJob:
        """Submit a job; `num_nodes` are its workers, `runtime` may name the MPI library."""
        from mpijob.client import flow

        job = legacy.job(
            name=name, workers=num_nodes, image=image, command=command, resources=resources, runtime=runtime
        )
        work = flow.submit(self.localized(job), self.port, max_workers=self.settings.max_workers)
        return await self._job(await work)

    async def get_job_status(self, name: str) -> JobStatus:
        """Return phase, launcher readiness and the count of ready workers."""
        return JobStatus.of(await self.port.get(self.ref(name)))

    def stream_job_events(self, name: str) -> AsyncIterator[Event]:
        """Yield what happens, until the job has ended."""
        return self.port.events(self.ref(name), follow=True)

    async def get_job_logs(self, name: str, pod_type: str = "", pod_index: int | None = None) -> str:
        """Return the log of the launcher, of a worker (all its ranks), or of everybody."""
        query = log_query(roles=legacy.roles(pod_type), workers=() if pod_index is None else (pod_index,))
        lines = saying.lines(self.ref(name), self.port, query)
        return "".join([legacy.shown(line) async for line in lines])

    async def delete_job(self, name: str, grace_period: float | None = None) -> None:
        """Delete a job, with this grace period if it still runs."""
        await self.port.delete(self.ref(name), grace_seconds=grace_period)
