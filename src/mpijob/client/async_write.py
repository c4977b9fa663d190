"""The coroutines that act; the blocking twin in `write` describes each verb at length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, overload

from mpijob.client.async_base import AsyncBase
from mpijob.client.async_job import AsyncJob
from mpijob.client.base import Target
from mpijob.model import JobRef, JobState, Model, MPIJob, Phase, Plan
from mpijob.settings import CLUSTER

if TYPE_CHECKING:
    from mpijob.backends.model_registry import Registered
    from mpijob.client.submit.resubmit import Done
    from mpijob.errors import Finding
    from mpijob.model.platform.fit import Fit


class AsyncWriting(AsyncBase):
    """The half of the client that acts."""

    async def plan(self, job: MPIJob, *, server: bool = False) -> Plan:
        """Return exactly what would run; nothing is started. With `server`, a cluster judges it too."""
        from mpijob.client.history import accounts
        from mpijob.client.submit import pipeline

        found = await pipeline.plan(
            self.localized(job), self.port, max_workers=self.settings.max_workers, server=server
        )
        return await self.apart(lambda: accounts.told(self.backend, self.settings, found))

    async def fit(self, job: MPIJob) -> Fit:
        """Return whether the job would start now, wait, or never run here."""
        from mpijob.client.services import run_broker

        return await run_broker.fit(self._sound(job), self.port)

    @overload
    async def submit(self, job: MPIJob, *, dry_run: Literal[False] = False) -> AsyncJob: ...
    @overload
    async def submit(self, job: MPIJob, *, dry_run: Literal[True]) -> Plan: ...
    @overload
    async def submit(self, job: MPIJob, *, dry_run: bool) -> AsyncJob | Plan: ...
    async def submit(self, job: MPIJob, *, dry_run: bool = False) -> AsyncJob | Plan:
        """Start the job, or queue it, and return its handle; a dry run returns the plan instead."""
        from mpijob.client.submit import pipeline

        if dry_run:
            return await self.plan(job)
        work = pipeline.submit(self.localized(job), self.port, max_workers=self.settings.max_workers)
        return await self._job(await work)

    async def run(self, job: MPIJob, timeout: float | None = None) -> AsyncJob:  # noqa: ASYNC109 the blocking name
        """Submit the job and wait until it has succeeded; raise JobFailed when it did not."""
        handle = await self.submit(job)
        with self.reconciling(handle.ref):
            await handle.wait_for_completion(timeout)
        return handle

    def reconciling(self, *targets: Target, namespace: str | None = None) -> AbstractContextManager[None]:
        """Do, while the caller is inside, what jobs need and a cluster without a controller does not do."""
        if self.settings.engine != CLUSTER:
            return nullcontext()
        from mpijob.client.submit.reconcile import reconciling

        return reconciling(self._audited, [self.ref(one, namespace) for one in targets])

    async def cancel(
        self, name: Target, grace_period: float | None = None, *, namespace: str | None = None
    ) -> JobState:
        """Ask the job to end, with its grace period or this one."""
        ref = self.ref(name, namespace)
        return await self.port.cancel(ref, grace_seconds=grace_period)

    async def suspend(self, name: Target, *, namespace: str | None = None) -> JobState:
        """End the processes, free what they held, keep the job to be resumed."""
        return await self.port.suspend(self.ref(name, namespace))

    async def resume(self, name: Target, *, namespace: str | None = None) -> JobState:
        """Queue a suspended job again, as its next attempt."""
        return await self.port.resume(self.ref(name, namespace))

    async def scale(self, name: Target, workers: int, *, namespace: str | None = None) -> JobState:
        """Give an elastic job another number of workers, within its bounds; any other job is refused."""
        return await self.port.scale(self.ref(name, namespace), workers)

    async def delete(
        self,
        name: Target,
        grace_period: float | None = None,
        *,
        namespace: str | None = None,
        forget: bool = False,
    ) -> None:
        """End the job if needed and remove it; its record stays for a while, unless it is to be forgotten too."""
        from mpijob.client.history import fallback

        ref = self.ref(name, namespace)
        await fallback.delete(self.port, ref, grace_period, forget=forget)

    async def delete_all(
        self,
        *,
        selector: str = "",
        phases: Iterable[Phase | str] = (),
        namespace: str | None = None,
        every: bool = False,
        grace_period: float | None = None,
        forget: bool = False,
    ) -> tuple[Done, ...]:
        """Delete every job that matches; the answer says for each whether it worked."""
        from mpijob.client.history import fallback
        from mpijob.client.submit import resubmit

        async def act(ref: JobRef) -> None:
            await fallback.delete(self.port, ref, grace_period, forget=forget)

        scope = self.scope(namespace=namespace, selector=selector, phases=phases)
        return await resubmit.each(scope, self.port, act, unlimited=every)

    async def cancel_all(
        self,
        *,
        selector: str = "",
        phases: Iterable[Phase | str] = (),
        namespace: str | None = None,
        every: bool = False,
        grace_period: float | None = None,
    ) -> tuple[Done, ...]:
        """Cancel every job that matches; the answer says for each whether it worked."""
        from mpijob.client.submit import resubmit

        async def act(ref: JobRef) -> None:
            await self.port.cancel(ref, grace_seconds=grace_period)

        scope = self.scope(namespace=namespace, selector=selector, phases=phases)
        return await resubmit.each(scope, self.port, act, unlimited=every)

    async def retry(
        self, name: Target, *, namespace: str | None = None, with_fix: int | None = None
    ) -> AsyncJob:
        """Submit the configuration of a job that has ended again, under the same name."""
        from mpijob.client.submit import resubmit

        ref = self.ref(name, namespace)
        wanted = await resubmit.mended(ref, with_fix, self._records, self.settings)
        work = resubmit.retry(ref, self._records, max_workers=self.settings.max_workers, wanted=wanted)
        return await self._job(await work)

    async def clone(
        self,
        name: Target,
        new_name: str | None = None,
        *,
        namespace: str | None = None,
        replace: bool = False,
        changes: Mapping[str, Any] | None = None,
        with_fix: int | None = None,
        **fields: Any,
    ) -> AsyncJob:
        """Submit a changed copy: under a new name, or with `replace` in place of the job itself.

        Fields are given by name (`workers=8`), or by path in `changes` (`{"env.LR": "0.1"}`).
        """
        from mpijob.client.submit import resubmit

        ref = self.ref(name, namespace)
        mended = await resubmit.mended(ref, with_fix, self._records, self.settings)
        wanted = {**mended, **(changes or {}), **fields}
        limit = self.settings.max_workers
        if replace:
            resubmit.refuse_new_name(ref, new_name)
            return await self._job(await resubmit.replace(ref, wanted, self.port, max_workers=limit))
        return await self._job(await resubmit.clone(ref, new_name, wanted, self._records, max_workers=limit))

    async def array(self, job: MPIJob, values: Mapping[str, Sequence[Any]]) -> list[AsyncJob]:
        """Submit one job for each combination of the values: `{"env.LR": [0.1, 0.01], "workers": [2, 4]}`."""
        from mpijob.client.submit import array

        jobs = array.submitted(self.localized(job), values)
        for one in jobs:
            await self.plan(one)  # all are known to be sound before the first one starts
        return [await self.submit(one) for one in jobs]

    async def store(self, name: Target, *, namespace: str | None = None) -> tuple[str | Finding, ...]:
        """Store what a job wrote to its S3 volumes once more; return a sentence or a finding for each."""
        from mpijob.client.observe import artifacts

        return await self.apart(lambda: artifacts.store(self._audited, self.ref(name, namespace)))

    async def register(
        self, name: Target, model: Model | None = None, *, namespace: str | None = None
    ) -> Registered:
        """Write the model of a job that has succeeded down in the model registry; repeated, it changes nothing."""
        from mpijob.client.integrations import model_registry

        return await self.apart(
            lambda: model_registry.register(self._audited, self.ref(name, namespace), model)
        )

    async def submit_all(self, jobs: Iterable[MPIJob]) -> list[AsyncJob]:
        """Submit jobs of which some wait for others (`after`), all of them or none that is not sound."""
        from mpijob.client.submit import dependency_graph

        wanted = dependency_graph.ordered(map(self.localized, jobs))
        for one in wanted:
            await self.plan(dependency_graph.alone(one, wanted))
        return [await self.submit(one) for one in wanted]

    async def execute(
        self,
        name: Target,
        argv: Sequence[str],
        worker: int | None = None,
        rank: int | None = None,
        *,
        namespace: str | None = None,
    ) -> int:
        """Run a command with this terminal inside a worker, beside a rank or in the launcher."""
        ref = self.ref(name, namespace)
        return await self.port.execute(ref, tuple(argv), worker=worker, rank=rank)
