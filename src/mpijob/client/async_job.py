"""The handle of one job for coroutines; `job` is the blocking one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any, Unpack

from mpijob.client.base import Format, LogOptions
from mpijob.errors import Finding
from mpijob.model import Event, JobRef, JobState, LogLine, MPIJob, Phase, Sample, StackReport

if TYPE_CHECKING:
    from pathlib import Path

    from mpijob.client.async_client import AsyncClient
    from mpijob.client.observe.bundle import Bundle
    from mpijob.diagnosis.report import Diagnosis


class AsyncJob:
    """One job, with coroutines for verbs."""

    def __init__(self, client: AsyncClient, state: JobState) -> None:
        self.client = client
        self.last = state

    @property
    def ref(self) -> JobRef:
        """The job's address."""
        return self.last.ref

    @property
    def name(self) -> str:
        """The job's name."""
        return self.ref.name

    @property
    def namespace(self) -> str:
        """The job's namespace."""
        return self.ref.namespace

    async def spec(self) -> MPIJob:
        """Return what was asked for."""
        return await self.client.spec(self.ref)

    async def state(self) -> JobState:
        """Return what is seen of the job now."""
        self.last = await self.client.state(self.ref)
        return self.last

    async def wait(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 the blocking name
        for_phases: Collection[Phase] | None = None,
    ) -> JobState:
        """Return the state once the job is in one of the phases; without any, once it has ended."""
        self.last = await self.client.wait(self.ref, timeout, for_phases)
        return self.last

    async def wait_for_completion(self, timeout: float | None = None) -> JobState:  # noqa: ASYNC109 the blocking name
        """Return the state once the job has succeeded; raise JobFailed with the findings, or WaitTimeout."""
        self.last = await self.client.wait_for_completion(self.ref, timeout)
        return self.last

    def logs(self, **wanted: Unpack[LogOptions]) -> AsyncIterator[LogLine]:
        """Yield the merged lines; the options are those of `AsyncClient.logs`."""
        return self.client.logs(self.ref, **wanted)

    async def download_logs(
        self,
        target: str | Path | IO[bytes],
        *,
        merged: bool = False,
        compress: bool = False,
        **wanted: Unpack[LogOptions],
    ) -> tuple[Path, ...]:
        """Write the log byte for byte into a directory, or merged into one file; return the files."""
        return await self.client.download_logs(self.ref, target, merged=merged, compress=compress, **wanted)

    def events(self, follow: bool = False) -> AsyncIterator[Event]:
        """Yield what happened, in order."""
        return self.client.events(self.ref, follow)

    async def metrics(self) -> tuple[Sample, ...]:
        """Return the usage measured so far."""
        return await self.client.metrics(self.ref)

    async def why(self) -> tuple[Finding, ...]:
        """Return why the job stands where it stands, the first cause first."""
        return await self.client.why(self.ref)

    async def diagnose(self) -> Diagnosis:
        """Return why the job stands where it stands: causes, timeline, checklist, numbered fixes."""
        return await self.client.diagnose(self.ref)

    async def bundle(self, file: str | Path | None = None, *, stacks: bool = False) -> Bundle:
        """Write everything known of the job into one archive, without secrets."""
        return await self.client.bundle(self.ref, file, stacks=stacks)

    async def warnings(self) -> tuple[Finding, ...]:
        """Return what is worrying about the job while it runs."""
        return await self.client.warnings(self.ref)

    async def stacks(self, ranks: Iterable[int] = (), *, bring: bool = False) -> StackReport:
        """Return where the ranks stand now, grouped: all of them, or those named."""
        return await self.client.stacks(self.ref, ranks, bring=bring)

    async def result(self) -> Any:
        """Return what the job's function returned on rank 0 (see `client.function`)."""
        from mpijob.client.submit import function

        return function.result(self.name, [line async for line in self.logs(ranks=(0,))])

    async def cancel(self, grace_period: float | None = None) -> JobState:
        """Ask the job to end."""
        self.last = await self.client.cancel(self.ref, grace_period)
        return self.last

    async def suspend(self) -> JobState:
        """End the processes, keep the job to be resumed."""
        self.last = await self.client.suspend(self.ref)
        return self.last

    async def resume(self) -> JobState:
        """Queue the suspended job again."""
        self.last = await self.client.resume(self.ref)
        return self.last

    async def scale(self, workers: int) -> JobState:
        """Give the job, which must be elastic, another number of workers."""
        self.last = await self.client.scale(self.ref, workers)
        return self.last

    async def delete(self, grace_period: float | None = None, *, forget: bool = False) -> None:
        """Remove the job; its record stays for a while, unless it is to be forgotten too."""
        await self.client.delete(self.ref, grace_period, forget=forget)

    async def retry(self, *, with_fix: int | None = None) -> AsyncJob:
        """Submit the same configuration again, with a fix of `diagnose` if one is named, and return the new job."""
        return await self.client.retry(self.ref, with_fix=with_fix)

    async def clone(
        self,
        new_name: str | None = None,
        *,
        replace: bool = False,
        with_fix: int | None = None,
        **fields: Any,
    ) -> AsyncJob:
        """Submit a changed copy and return the new job."""
        return await self.client.clone(self.ref, new_name, replace=replace, with_fix=with_fix, **fields)

    async def then(self, job: MPIJob) -> AsyncJob:
        """Submit a job that starts when this one has succeeded, and return its handle."""
        wanted = job.replace(namespace=self.namespace, after=(*job.after, self.name))
        return await self.client.submit(wanted)

    async def export(self, format: Format = "yaml") -> str:
        """Return the job as a job file."""
        return await self.client.export(self.ref, format)

    async def execute(self, argv: Sequence[str], worker: int | None = None, rank: int | None = None) -> int:
        """Run a command with this terminal inside the job."""
        return await self.client.execute(self.ref, argv, worker, rank)

    def _repr_html_(self) -> str:
        from mpijob.client.observe import notebook

        return notebook.html(self.last)

    def __repr__(self) -> str:
        return f"<AsyncJob {self.ref}: {self.last.phase.value}>"
