"""The coroutines that only look; the blocking twin in `read` describes each verb at length."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Unpack

from mpijob.client.async_base import AsyncBase
from mpijob.client.async_job import AsyncJob
from mpijob.client.base import Format, LogOptions, Target, log_query
from mpijob.client.history import fallback
from mpijob.client.observe import artifacts, logs, wait
from mpijob.errors import Finding
from mpijob.model import Artifact, Event, Facts, JobState, LogLine, MPIJob, Page, Phase, Sample

if TYPE_CHECKING:
    from mpijob.client.observe.compare import Comparison
    from mpijob.diagnosis.report import Diagnosis
    from mpijob.history.records import Record


class AsyncReading(AsyncBase):
    """The half of the client that changes nothing."""

    async def get(self, name: Target, namespace: str | None = None) -> AsyncJob:
        """Return the newest job of that name; raise NotFound."""
        return await self._job(self.ref(name, namespace))

    async def state(self, name: Target, namespace: str | None = None) -> JobState:
        """Return where the job stands now."""
        return await self._records.get(self.ref(name, namespace))

    async def spec(self, name: Target, namespace: str | None = None) -> MPIJob:
        """Return what was asked for."""
        return await self._records.spec(self.ref(name, namespace))

    async def facts(self, job: MPIJob | None = None) -> Facts:
        """Return what the place has, what is free and what the namespace may use."""
        about = MPIJob(name="facts", namespace=self.namespace) if job is None else self.localized(job)
        return (await self.port.preflight(about, await self.port.whoami())).facts

    async def artifacts(self, name: Target, *, namespace: str | None = None) -> tuple[Artifact, ...]:
        """Return the files that the job left."""
        return await self.port.artifacts(self.ref(name, namespace))

    async def fetch(
        self,
        name: Target,
        directory: str | Path,
        paths: Iterable[str] = (),
        *,
        overwrite: bool = False,
        namespace: str | None = None,
    ) -> tuple[Path, ...]:
        """Copy files that the job left into a directory, all of them by default; return where they are now.

        Raise Conflict, and write nothing, where the directory has other files of these names, unless told to overwrite.
        """
        ref = self.ref(name, namespace)
        return await artifacts.fetch(self.port, ref, Path(directory), tuple(paths), overwrite=overwrite)

    async def list(
        self,
        *,
        namespace: str | None = None,
        all_namespaces: bool = False,
        selector: str = "",
        phases: Iterable[Phase | str] = (),
        owner: str = "",
        queue: str = "",
        text: str = "",
        limit: int = 100,
        after: str = "",
    ) -> Page:
        """Return one page of jobs, newest first; `page.after` asks for the next one."""
        scope = self.scope(
            namespace=namespace,
            all_namespaces=all_namespaces,
            selector=selector,
            phases=phases,
            owner=owner,
            queue=queue,
            text=text,
            limit=limit,
            after=after,
        )
        return await self.port.list(scope)

    def jobs(
        self,
        *,
        namespace: str | None = None,
        all_namespaces: bool = False,
        selector: str = "",
        phases: Iterable[Phase | str] = (),
        owner: str = "",
        queue: str = "",
        text: str = "",
    ) -> AsyncIterator[JobState]:
        """Yield the jobs of all pages, newest first."""
        from mpijob.client.submit import resubmit

        scope = self.scope(
            namespace=namespace,
            all_namespaces=all_namespaces,
            selector=selector,
            phases=phases,
            owner=owner,
            queue=queue,
            text=text,
        )
        return resubmit.pages(scope, self.port)

    def watch(
        self,
        *,
        names: Iterable[str] = (),
        namespace: str | None = None,
        all_namespaces: bool = False,
        selector: str = "",
        phases: Iterable[Phase | str] = (),
        owner: str = "",
        queue: str = "",
    ) -> AsyncIterator[JobState]:
        """Yield every job's state once, then each change, until the caller stops."""
        scope = self.scope(
            names=names,
            namespace=namespace,
            all_namespaces=all_namespaces,
            selector=selector,
            phases=phases,
            owner=owner,
            queue=queue,
        )
        return self.port.watch(scope)

    async def wait(
        self,
        name: Target,
        timeout: float | None = None,  # noqa: ASYNC109 the blocking name
        for_phases: Collection[Phase] | None = None,
        *,
        namespace: str | None = None,
    ) -> JobState:
        """Return the state once the job is in one of the phases; without any, once it has ended.

        Raise WaitTimeout when time is up, JobFailed when the job ended otherwise than wanted.
        """
        ref = self.ref(name, namespace)
        return await wait.wait(ref, self.port, seconds=timeout, phases=for_phases)

    async def wait_for_completion(
        self,
        name: Target,
        timeout: float | None = None,  # noqa: ASYNC109 the blocking name
        *,
        namespace: str | None = None,
    ) -> JobState:
        """Return the state once the job has succeeded; raise JobFailed with the findings, or WaitTimeout."""
        ref = self.ref(name, namespace)
        return await wait.completion(ref, self.port, seconds=timeout)

    def logs(
        self, name: Target, *, namespace: str | None = None, **options: Unpack[LogOptions]
    ) -> AsyncIterator[LogLine]:
        """Yield the merged lines in time order; with follow, until the job has ended and all is said.

        The options are the fields of `LogQuery`. Raise NotFound for a rank, a worker or an attempt that the
        job does not have.
        """
        return logs.lines(self.ref(name, namespace), self._records, log_query(**options))

    async def download_logs(
        self,
        name: Target,
        target: str | Path | IO[bytes],
        *,
        namespace: str | None = None,
        merged: bool = False,
        compress: bool = False,
        **options: Unpack[LogOptions],
    ) -> tuple[Path, ...]:
        """Write the log byte for byte, a file for each stream into a directory, or all merged into one file.

        Return the files. `compress` packs them with gzip.
        """
        from mpijob.client.observe import download

        query, ref = log_query(**options), self.ref(name, namespace)
        return await download.download(ref, self._records, query, target, merged=merged, compress=compress)

    async def masked_values(self, name: Target, *, namespace: str | None = None) -> tuple[str, ...]:
        """Return the secrets of a job that a face must not show in its log, as far as they can be known."""
        return await logs.secrets(self.ref(name, namespace), self._records)

    def events(
        self, name: Target, follow: bool = False, *, namespace: str | None = None
    ) -> AsyncIterator[Event]:
        """Yield what happened, in order; with follow, until the job has ended."""
        return self._records.events(self.ref(name, namespace), follow=follow)

    async def metrics(self, name: Target, *, namespace: str | None = None) -> tuple[Sample, ...]:
        """Return the usage measured so far."""
        return await self._records.samples(self.ref(name, namespace))

    async def why(self, name: Target, *, namespace: str | None = None) -> tuple[Finding, ...]:
        """Return why the job stands where it stands, the first cause first."""
        return (await self.state(name, namespace)).findings

    async def diagnose(self, name: Target, *, namespace: str | None = None) -> Diagnosis:
        """Return why the job stands where it stands: causes, timeline, checklist, numbered fixes."""
        from mpijob.client.observe import diagnose

        return await diagnose.of_job(self.ref(name, namespace), self._records, self.settings)

    async def deleted(
        self, *, namespace: str | None = None, all_namespaces: bool = False, **chosen: Any
    ) -> Page:
        """Return one page of the jobs that were deleted and are remembered, the last one deleted first."""
        scope = self.scope(namespace=namespace, all_namespaces=all_namespaces, **chosen)
        return await asyncio.to_thread(fallback.deleted, self.backend, scope)

    async def record(self, name: Target, *, namespace: str | None = None) -> Record:
        """Return what was written down of a job."""
        return await asyncio.to_thread(fallback.record, self.backend, self.ref(name, namespace))

    async def compare(self, *names: Target, namespace: str | None = None) -> Comparison:
        """Return how two or more jobs differ: configuration, phase, duration, result, what they used."""
        from mpijob.client.history import accounts
        from mpijob.client.observe import compare

        pairs = [(await self.spec(name, namespace), await self.state(name, namespace)) for name in names]
        refs = [state.ref for _, state in pairs]
        return compare.compare(pairs, await self.apart(lambda: accounts.of(self.backend, refs)))

    async def export(self, name: Target, format: Format = "yaml", *, namespace: str | None = None) -> str:
        """Return the job as a job file, ready to be submitted again."""
        from mpijob.formats.jobfile import jobfile_reader

        return jobfile_reader.write(await self.spec(name, namespace), format=format)
