"""The client's methods that change something: plan, submit, run, cancel, suspend, resume, scale, delete, retry …"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, overload

from mpijob.client.base import BaseClient
from mpijob.settings import CLUSTER

if TYPE_CHECKING:
    from mpijob.backends.model_registry import Registered
    from mpijob.client.base import Target
    from mpijob.client.job import Job
    from mpijob.client.submit.resubmit import Done
    from mpijob.errors import Finding
    from mpijob.model import JobRef, JobState, Model, MPIJob, Phase, Plan
    from mpijob.model.platform.fit import Fit


class Writing(BaseClient):
    """The acting methods of the client."""

    def plan(self, job: MPIJob, *, server: bool = False) -> Plan:
        """Return exactly what would run, without starting it. With `server`, run a server-side dry run."""
        from mpijob.client.history import accounts
        from mpijob.client.submit import pipeline

        work = pipeline.plan(
            self.localized(job), self.backend, max_workers=self.settings.max_workers, server=server
        )
        return accounts.with_estimate(self.backend, self.settings, work)

    def fit(self, job: MPIJob) -> Fit:
        """Return whether the job would start now, wait (and why and how long), or never start."""
        from mpijob.client.services import run_broker

        return run_broker.fit(self._sound(job), self.backend)

    @overload
    def submit(self, job: MPIJob, *, dry_run: Literal[False] = False) -> Job: ...
    @overload
    def submit(self, job: MPIJob, *, dry_run: Literal[True]) -> Plan: ...
    @overload
    def submit(self, job: MPIJob, *, dry_run: bool) -> Job | Plan: ...
    def submit(self, job: MPIJob, *, dry_run: bool = False) -> Job | Plan:
        """Create the job and return its handle; a dry run returns the plan instead."""
        from mpijob.client.submit import pipeline

        if dry_run:
            return self.plan(job)
        work = pipeline.submit(self.localized(job), self._audited, max_workers=self.settings.max_workers)
        return self._job(work)

    def run(self, job: MPIJob, timeout: float | None = None) -> Job:
        """Submit the job and wait until it succeeds; raise JobFailed if it fails."""
        handle = self.submit(job)
        with self.reconciling(handle.ref):
            handle.wait_for_completion(timeout)
        return handle

    def reconciling(self, *targets: Target, namespace: str | None = None) -> AbstractContextManager[None]:
        """Reconcile jobs in the background while inside the context, for clusters without the controller.

        The next attempt of a job that failed is started, as the caller and judged as such. Looking at jobs, waiting
        for them and following their logs never do that. On one machine there is nothing to do.
        """
        if self.settings.engine != CLUSTER:
            return nullcontext()
        from mpijob.client.submit.reconcile import reconciling

        return reconciling(self._audited, [self.ref(one, namespace) for one in targets])

    def cancel(
        self, name: Target, grace_period: float | None = None, *, namespace: str | None = None
    ) -> JobState:
        """Cancel the job, with its grace period or this one."""
        ref = self.ref(name, namespace)
        return self._audited.cancel(ref, grace_seconds=grace_period)

    def suspend(self, name: Target, *, namespace: str | None = None) -> JobState:
        """Stop the processes of the job and free its resources; the job can be resumed."""
        return self._audited.suspend(self.ref(name, namespace))

    def resume(self, name: Target, *, namespace: str | None = None) -> JobState:
        """Queue a suspended job again, as its next attempt."""
        return self._audited.resume(self.ref(name, namespace))

    def scale(self, name: Target, workers: int, *, namespace: str | None = None) -> JobState:
        """Change the number of workers of an elastic job, within its limits; other jobs are refused."""
        return self._audited.scale(self.ref(name, namespace), workers)

    def delete(
        self,
        name: Target,
        grace_period: float | None = None,
        *,
        namespace: str | None = None,
        forget: bool = False,
    ) -> None:
        """Delete the job, even if it runs; its record stays for its retention time, unless `forget` is set."""
        from mpijob.client.history import fallback

        ref = self.ref(name, namespace)
        fallback.delete(self._audited, ref, grace_period, forget=forget)

    def delete_all(
        self,
        *,
        selector: str = "",
        phases: Iterable[Phase | str] = (),
        namespace: str | None = None,
        every: bool = False,
        grace_period: float | None = None,
        forget: bool = False,
    ) -> tuple[Done, ...]:
        """Delete all matching jobs, with the earlier runs of each; return the result for each."""
        from mpijob.client import runs
        from mpijob.client.history import fallback
        from mpijob.client.submit import resubmit

        scope = self.scope(namespace=namespace, selector=selector, phases=phases)
        earlier = runs.earlier(self.scope(namespace=namespace), self._audited)

        def act(ref: JobRef) -> None:
            for one in (*earlier.get(ref.uid, ()), ref):
                fallback.delete(self._audited, one, grace_period, forget=forget)

        return resubmit.each(scope, self._audited, act, unlimited=every)

    def cancel_all(
        self,
        *,
        selector: str = "",
        phases: Iterable[Phase | str] = (),
        namespace: str | None = None,
        every: bool = False,
        grace_period: float | None = None,
    ) -> tuple[Done, ...]:
        """Cancel all matching jobs; return the result for each."""
        from mpijob.client.submit import resubmit

        def act(ref: JobRef) -> None:
            self._audited.cancel(ref, grace_seconds=grace_period)

        scope = self.scope(namespace=namespace, selector=selector, phases=phases)
        return resubmit.each(scope, self._audited, act, unlimited=every)

    def retry(self, name: Target, *, namespace: str | None = None, with_fix: int | None = None) -> Job:
        """Submit the configuration of a finished job again, under the same name.

        Of a deleted job its record has the configuration.
        `with_fix` is the number of a fix that `diagnose` names: the change that it makes is made.
        """
        from mpijob.client.submit import resubmit

        ref = self.ref(name, namespace)
        wanted = resubmit.fixed_fields(ref, with_fix, self._records, self.settings)
        work = resubmit.retry(ref, self._records, max_workers=self.settings.max_workers, wanted=wanted)
        return self._job(work)

    def clone(
        self,
        /,
        name: Target,
        new_name: str | None = None,
        *,
        namespace: str | None = None,
        replace: bool = False,
        changes: Mapping[str, Any] | None = None,
        with_fix: int | None = None,
        **fields: Any,
    ) -> Job:
        """Submit a copy with changes under a new name, or replace the job with `replace`.

        Fields are given by name (`workers=8`), or by path in `changes` (`{"env.LR": "0.1"}`); `with_fix` makes
        the change of a fix that `diagnose` names.
        """
        from mpijob.client.submit import resubmit

        ref = self.ref(name, namespace)
        fix = resubmit.fixed_fields(ref, with_fix, self._records, self.settings)
        wanted = {**fix, **(changes or {}), **fields}
        limit = self.settings.max_workers
        if replace:
            resubmit.refuse_new_name(ref, new_name)
            return self._job(resubmit.replace(ref, wanted, self._audited, max_workers=limit))
        return self._job(resubmit.clone(ref, new_name, wanted, self._records, max_workers=limit))

    def array(self, job: MPIJob, values: Mapping[str, Sequence[Any]]) -> list[Job]:
        """Submit one job for each combination of the values: `{"env.LR": [0.1, 0.01], "workers": [2, 4]}`."""
        from mpijob.client.submit import array

        jobs = array.submitted(self.localized(job), values)
        for one in jobs:
            # All are checked before the first one starts.
            self.plan(one)
        return [self.submit(one) for one in jobs]

    def store(self, name: Target, *, namespace: str | None = None) -> tuple[str | Finding, ...]:
        """Upload the files of the job's S3 volumes again; return a message or a finding for each."""
        from mpijob.client.observe import artifacts

        return artifacts.store(self._audited, self.ref(name, namespace))

    def register(
        self, name: Target, model: Model | None = None, *, namespace: str | None = None
    ) -> Registered:
        """Register the model of a succeeded job in the model registry; idempotent."""
        from mpijob.client.integrations import model_registry

        return model_registry.register(self._audited, self.ref(name, namespace), model)

    def submit_all(self, jobs: Iterable[MPIJob]) -> list[Job]:
        """Submit jobs with dependencies (`after`); if one is not valid, none is submitted.

        A job starts when those have succeeded that it waits for; when one of them fails, it ends as Failed with
        the reason and is never started.
        """
        from mpijob.client.submit import dependency_graph

        wanted = dependency_graph.ordered(map(self.localized, jobs))
        # All are checked before the first one starts.
        for one in wanted:
            self.plan(dependency_graph.alone(one, wanted))
        return [self.submit(one) for one in wanted]

    def execute(
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
        return self._audited.execute(ref, tuple(argv), worker=worker, rank=rank)
