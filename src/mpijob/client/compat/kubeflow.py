"""Methods under the names of the Kubeflow SDK and of the product's documents; each calls a method of the client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mpijob.client.base import BaseClient, JobStatus, log_query
from mpijob.client.observe import logs

if TYPE_CHECKING:
    from mpijob.client.job import Job
    from mpijob.model import Event, JobState, Resources


class Documented(BaseClient):
    """Names of the documents (`create_mpi_job` …) and of the Kubeflow SDK (`get_job`, `list_jobs` …)."""

    def create_mpi_job(
        self,
        name: str,
        runtime: str = "",
        num_nodes: int = 4,
        image: str = "",
        command: Sequence[str] = (),
        resources: Resources | Mapping[str, Any] | None = None,
    ) -> Job:
        """Submit a job; `num_nodes` are its workers, `runtime` may name the MPI library."""
        from mpijob.client.compat import arguments
        from mpijob.client.submit import pipeline

        job = arguments.job(
            name=name, workers=num_nodes, image=image, command=command, resources=resources, runtime=runtime
        )
        work = pipeline.submit(self.localized(job), self._audited, max_workers=self.settings.max_workers)
        return self._job(work)

    def get_job_status(self, name: str) -> JobStatus:
        """Return phase, launcher readiness and the count of ready workers."""
        return JobStatus.of(self.backend.get(self.ref(name)))

    def stream_job_events(self, name: str) -> Iterator[Event]:
        """Yield the events until the job has ended."""
        return self.backend.events(self.ref(name), follow=True)

    def get_job_logs(self, name: str, pod_type: str = "", pod_index: int | None = None) -> str:
        """Return the log of the launcher, of a worker (all its ranks), or of all."""
        from mpijob.client.compat import arguments

        query = log_query(roles=arguments.roles(pod_type), workers=() if pod_index is None else (pod_index,))
        lines = logs.lines(self.ref(name), self._audited, query)
        return "".join(arguments.shown(line) for line in lines)

    def get_job(self, name: str) -> Job:
        """Return a job's handle, as `get`."""
        return self._job(self.backend.get(self.ref(name)).ref)

    def list_jobs(self) -> list[JobState]:
        """Return the namespace's jobs, newest first."""
        from mpijob.client import paging

        return list(paging.pages(self.scope(), self.backend))

    def get_job_events(self, name: str) -> list[Event]:
        """Return the events so far."""
        return list(self.backend.events(self.ref(name)))

    def wait_for_job_status(
        self, name: str, status: Iterable[str] = ("Complete",), timeout: float = 600
    ) -> JobState:
        """Wait for a status (Created, Running, Complete, Failed) or a phase of mpijob, and return the state."""
        from mpijob.client.compat import arguments
        from mpijob.client.observe import wait

        wanted = arguments.phases(status)
        return wait.wait(self.ref(name), self._audited, seconds=timeout, phases=wanted)

    def delete_job(self, name: str, grace_period: float | None = None) -> None:
        """Delete a job, with this grace period if it still runs."""
        self._audited.delete(self.ref(name), grace_seconds=grace_period)
