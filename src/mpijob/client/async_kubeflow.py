"""The names that the product's documents print, as coroutines; `kubeflow` has the blocking ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from mpijob.client.async_base import AsyncBase
from mpijob.client.async_job import AsyncJob
from mpijob.client.base import JobStatus, log_query
from mpijob.client.compat import arguments
from mpijob.client.observe import logs
from mpijob.model import Event, JobState, Resources


class AsyncDocumented(AsyncBase):
    """Names of the documents (`create_mpi_job` …) and of the Kubeflow SDK (`get_job`, `list_jobs` …)."""

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
        from mpijob.client.submit import pipeline

        job = arguments.job(
            name=name, workers=num_nodes, image=image, command=command, resources=resources, runtime=runtime
        )
        work = pipeline.submit(self.localized(job), self.port, max_workers=self.settings.max_workers)
        return await self._job(await work)

    async def get_job_status(self, name: str) -> JobStatus:
        """Return phase, launcher readiness and the count of ready workers."""
        return JobStatus.of(await self.port.get(self.ref(name)))

    def stream_job_events(self, name: str) -> AsyncIterator[Event]:
        """Yield what happens, until the job has ended."""
        return self.port.events(self.ref(name), follow=True)

    async def get_job_logs(self, name: str, pod_type: str = "", pod_index: int | None = None) -> str:
        """Return the log of the launcher, of a worker (all its ranks), or of everybody."""
        query = log_query(roles=arguments.roles(pod_type), workers=() if pod_index is None else (pod_index,))
        lines = logs.lines(self.ref(name), self.port, query)
        return "".join([arguments.shown(line) async for line in lines])

    async def get_job(self, name: str) -> AsyncJob:
        """Return a job's handle, as `get`."""
        return await self._job((await self.port.get(self.ref(name))).ref)

    async def list_jobs(self) -> list[JobState]:
        """Return the namespace's jobs, newest first."""
        from mpijob.client.submit import resubmit

        return [state async for state in resubmit.pages(self.scope(), self.port)]

    async def get_job_events(self, name: str) -> list[Event]:
        """Return what has happened so far."""
        return [event async for event in self.port.events(self.ref(name))]

    async def wait_for_job_status(
        self,
        name: str,
        status: Iterable[str] = ("Complete",),
        timeout: float = 600,  # noqa: ASYNC109 the blocking name
    ) -> JobState:
        """Return the state once the job has one of these: Created, Running, Complete, Failed, or a phase of ours."""
        from mpijob.client.observe import wait

        wanted = arguments.phases(status)
        return await wait.wait(self.ref(name), self.port, seconds=timeout, phases=wanted)

    async def delete_job(self, name: str, grace_period: float | None = None) -> None:
        """Delete a job, with this grace period if it still runs."""
        await self.port.delete(self.ref(name), grace_seconds=grace_period)
