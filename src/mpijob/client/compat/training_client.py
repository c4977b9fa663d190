"""`TrainingClient` with the methods of Kubeflow's SDK, for existing code.

`create_job` is `Client.submit`. `update_job` submits a changed copy, because a created job is immutable: the
copy takes the name after the old job has ended, or at once before it has started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mpijob.client.base import JobStatus
from mpijob.client.client import Client
from mpijob.client.compat import arguments
from mpijob.client.job import Job
from mpijob.errors import InvalidJob, Unsupported
from mpijob.settings import Settings

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend

_KIND = "MPIJob"


class TrainingClient:
    """Methods of Kubeflow's TrainingClient over `Client`."""

    def __init__(
        self,
        backend: Backend | None = None,
        *,
        namespace: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.client = Client(backend, namespace=namespace, settings=settings)

    def create_job(
        self,
        *,
        name: str,
        job_kind: str = _KIND,
        num_workers: int = 4,
        resources_per_worker: Mapping[str, Any] | None = None,
        container_image: str = "",
        command: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> Job:
        """Submit a job; a worker has as many slots as GPUs."""
        if job_kind != _KIND:
            raise Unsupported(f"job_kind {job_kind!r} is not supported", hint=f"this client runs {_KIND}")
        return self.client.submit(
            arguments.job(
                name=name,
                workers=num_workers,
                image=container_image,
                command=command,
                resources=resources_per_worker,
                env=env,
            )
        )

    def update_job(
        self,
        *,
        name: str,
        num_workers: int | None = None,
        resources_per_worker: Mapping[str, Any] | None = None,
        container_image: str | None = None,
        command: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Job:
        """Submit a changed copy under the same name, once the job has ended or while it has not started."""
        resources = None if resources_per_worker is None else arguments.resources_of(resources_per_worker)
        wanted = {
            "workers": num_workers,
            "resources": resources,
            "image": container_image,
            "command": None if command is None else tuple(command),
            "env": None if env is None else dict(env),
        }
        changed = {field: value for field, value in wanted.items() if value is not None}
        if not changed:
            raise InvalidJob(f"nothing to change in '{name}'", hint="to run it again as it is, retry it")
        return self.client.clone(name, replace=True, changes=changed)

    def get_job(self, name: str) -> Job:
        """Return the newest job of that name."""
        return self.client.get(name)

    def get_job_status(self, name: str) -> JobStatus:
        """Return phase, launcher readiness and the count of ready workers."""
        return self.client.get_job_status(name)

    def get_job_logs(self, name: str, pod_type: str = "", pod_index: int | None = None) -> str:
        """Return the log of the launcher, of a worker, or of everybody."""
        return self.client.get_job_logs(name, pod_type, pod_index)

    def wait_for_job_completion(self, name: str, timeout: float | None = None) -> Job:
        """Return the job once it has succeeded; raise JobFailed when it did not."""
        self.client.wait_for_completion(name, timeout)
        return self.client.get(name)

    def delete_job(self, name: str, grace_period: float | None = None) -> None:
        """Delete a job."""
        self.client.delete_job(name, grace_period)
