"""The Kubernetes engine: Kubeflow Trainer and the MPI Operator, through the API server, as the user.

It has no state: every answer is read from the cluster's objects (`job_reader`), every change is written to
them. Calls block and streams are read in threads (see `backends.protocol`). Modules that only some calls need
are imported in those, for a quick start of the command line.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from typing import TYPE_CHECKING

from mpijob.backends.capabilities import (
    CapableBackend,
    SupportsAccessReview,
    SupportsClose,
    SupportsDefaultImage,
    SupportsDoctor,
    SupportsFormOptions,
    SupportsModelRegistry,
    SupportsNodePlaces,
    SupportsProgress,
    SupportsProjects,
    SupportsRates,
    SupportsRemoteArtifacts,
    SupportsSecretValues,
    SupportsTeamTemplates,
    SupportsWatchAll,
)
from mpijob.backends.kubernetes.auth import kubeconfig
from mpijob.backends.kubernetes.capabilities import SupportsKubernetesApi
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.api_errors import translated
from mpijob.backends.kubernetes.status import list_jobs
from mpijob.model import Identity, JobRef, Phase
from mpijob.settings import history_directory

if TYPE_CHECKING:
    from pathlib import Path

    from mpijob.backends.kubernetes.actions.lifecycle import LifecycleActions
    from mpijob.backends.kubernetes.actions.schedules import ClusterSchedules
    from mpijob.backends.kubernetes.actions.team_templates import SharedTemplates
    from mpijob.backends.kubernetes.auth.access import Access
    from mpijob.backends.kubernetes.auth.whoami import WhoAmI
    from mpijob.backends.kubernetes.controller.reconcile import Reconciler
    from mpijob.backends.kubernetes.logs.follow_job import JobFollower
    from mpijob.backends.kubernetes.queues.live import LiveForecasts
    from mpijob.backends.kubernetes.status.job_reader import JobReader
    from mpijob.backends.kubernetes.status.job_warnings import JobWarnings
    from mpijob.backends.kubernetes.status.shortage import Counter
    from mpijob.backends.kubernetes.submit.submission import Submission
    from mpijob.backends.model_registry import Registered
    from mpijob.backends.protocol import Preflight
    from mpijob.errors import Finding
    from mpijob.history.archive_reader import ArchiveReader
    from mpijob.model import (
        Artifact,
        Event,
        JobState,
        LogLine,
        LogQuery,
        Model,
        MPIJob,
        Page,
        Plan,
        RankStack,
        Sample,
        Scope,
        Secret,
    )
    from mpijob.model.platform.form_options import Choices, Option
    from mpijob.model.platform.permission import Question
    from mpijob.model.status.accounts import Account, AccountQuery
    from mpijob.model.status.forecast import Forecast
    from mpijob.model.status.job_change import Overseen
    from mpijob.model.status.metric_line import Progress
    from mpijob.model.status.mpi_profile import RankProfiles
    from mpijob.model.status.records import NodePlace
    from mpijob.model.team_template import TeamTemplate
    from mpijob.outbound.policy import Policy
    from mpijob.settings import RateSetting, Settings


class KubernetesBackend(
    CapableBackend,
    SupportsAccessReview,
    SupportsClose,
    SupportsDefaultImage,
    SupportsDoctor,
    SupportsFormOptions,
    SupportsKubernetesApi,
    SupportsModelRegistry,
    SupportsNodePlaces,
    SupportsProgress,
    SupportsProjects,
    SupportsRates,
    SupportsRemoteArtifacts,
    SupportsSecretValues,
    SupportsTeamTemplates,
    SupportsWatchAll,
):
    """Jobs on the cluster of the user's kubeconfig."""

    def __init__(
        self, settings: Settings, visitor: Access | None = None, outbound: Policy | None = None
    ) -> None:
        """`visitor` is the access of a server's visitor, for whom it connects as `outbound` allows."""
        self._settings, self._visitor, self._given_outbound = settings, visitor, outbound
        self._access = visitor or kubeconfig.load(path=settings.kubeconfig, context=settings.context)
        self._api = Api(self._access)

    @property
    def _outbound(self) -> Policy:
        from mpijob.outbound.policy import UNRESTRICTED, default_server_policy

        return self._given_outbound or (UNRESTRICTED if self._visitor is None else default_server_policy())

    @cached_property
    def _reader(self) -> JobReader:
        from mpijob.backends.kubernetes.status.job_reader import JobReader

        return JobReader(self._api, self._settings.rules, me=self._whoami.name)

    @cached_property
    def _whoami(self) -> WhoAmI:
        from mpijob.backends.kubernetes.auth.whoami import WhoAmI

        return WhoAmI(self._api)

    @cached_property
    def _submission(self) -> Submission:
        from mpijob.backends.kubernetes.submit.submission import Submission

        return Submission(self._api, self._reader, self._settings, self._access, self.name, self.history)

    @cached_property
    def _shortages(self) -> Counter:
        from mpijob.backends.kubernetes.status.shortage import Counter

        return Counter(self._submission.capacity_for)

    @cached_property
    def _forecasts(self) -> LiveForecasts:
        from mpijob.backends.kubernetes.queues.live import LiveForecasts

        return LiveForecasts(
            self._api, self._settings, self._access, lambda: self._reader.served, self.history
        )

    @cached_property
    def _warnings(self) -> JobWarnings:
        from mpijob.backends.kubernetes.status.job_warnings import JobWarnings

        return JobWarnings(self._api, self._reader, self._settings.warn_after_seconds)

    @cached_property
    def _reconciler(self) -> Reconciler:
        from mpijob.backends.kubernetes.controller.reconcile import Reconciler

        return Reconciler(self._api, self._reader)

    @cached_property
    def _follower(self) -> JobFollower:
        from mpijob.backends.kubernetes.logs.follow_job import JobFollower

        loki = None
        if self._settings.loki:
            from mpijob.backends.kubernetes.logs import loki_client

            loki = loki_client.of_settings(self._settings)
        return JobFollower(self._api, self._reader, loki, self.history)

    @cached_property
    def _actions(self) -> LifecycleActions:
        from mpijob.backends.kubernetes.actions.lifecycle import LifecycleActions

        return LifecycleActions(self._api, self._reader, self._whoami.name)

    @property
    def api(self) -> Api:
        """The API client of this user."""
        return self._api

    def check_access(self, questions: Sequence[Question]) -> tuple[bool, ...]:
        """Return whether this user may do what is asked, from access reviews."""
        from mpijob.backends.kubernetes.auth import delegated

        with translated("check your permissions"):
            return delegated.check_access(self._api, questions)

    def doctor(self) -> tuple[Finding, ...]:
        """Return findings about whether the cluster is ready for jobs of this user."""
        from mpijob.backends.kubernetes.admin import versions

        return tuple(versions.report(self._settings, self._api))

    def close(self) -> None:
        """Close the idle connections."""
        self._api.close()

    @property
    def name(self) -> str:
        """The context's name."""
        return self._access.context or "cluster"

    @property
    def namespace(self) -> str:
        """The context's namespace."""
        return self._access.namespace or "default"

    # -- before ------------------------------------------------------------------------------------
    def whoami(self) -> Identity:
        """Return the user as the cluster identified them, at most 5 s ago."""
        return self._whoami.identity()

    def devices(self) -> frozenset[str] | None:
        """Return the resource names that nodes offer; None for a user who may not list nodes."""
        from mpijob.backends.kubernetes.preflight import node_capacity

        with translated("read the nodes"):
            return node_capacity.devices(self._api)

    def preflight(self, job: MPIJob, who: Identity, *, fresh: bool = False) -> Preflight:
        """Return the cluster's facts for this user and job."""
        self._refuse_own_files(job)
        return self._submission.preflight(job, who, fresh=fresh)

    def plan(self, job: MPIJob, found: Preflight) -> Plan:
        """Return exactly what would be created."""
        self._refuse_own_files(job)
        return self._submission.plan(job, found)

    def _refuse_own_files(self, job: MPIJob) -> None:
        # A visitor's job must not read files of the server's machine.
        if self._visitor is not None:
            from mpijob.backends.kubernetes.auth import delegated

            delegated.refuse_own_files(job)

    def server_dry_run(self, plan: Plan) -> tuple[Finding, ...]:
        """Let the API server validate the plan's objects; nothing is stored."""
        from pathlib import Path

        from mpijob.backends.kubernetes.submit import dry_run

        return dry_run.dry_run(self._api, plan, Path(self._settings.home))

    def prewarm(self) -> None:
        """Do nothing: there is nothing to prepare."""

    def submit(self, plan: Plan, who: Identity) -> JobRef:
        """Create the plan's objects, or find that they were created before."""
        self._refuse_own_files(plan.job)
        return self._submission.submit(plan)

    # -- read --------------------------------------------------------------------------------------
    def spec(self, ref: JobRef) -> MPIJob:
        """Return the job's specification, without an owner: that of the state is certified by the API server."""
        return self._reader.find_spec(ref).replace(owner="")

    def submitted_plan(self, ref: JobRef) -> Plan | None:
        """Return None: a cluster has the created objects, not the plan."""
        self._reader.find(ref)
        return None

    def get(self, ref: JobRef) -> JobState:
        """Return the job's current state; raise NotFound."""
        if (just_created := self._submission.just_created(ref)) is not None:
            return just_created
        snapshot = self._reader.read(ref)
        if snapshot.state.phase is Phase.QUEUED and snapshot.state.queue:
            uid = snapshot.found.job["metadata"]["uid"]
            found = self._forecasts.of(snapshot.state.ref.namespace, (uid,)).get(uid)
            return snapshot.state if found is None else snapshot.state.forecast(found)
        return self._shortages.with_numbers(
            snapshot.state, lambda: self._reader.spec(snapshot.found, snapshot.seen.runtime)
        )

    def attempts(self, ref: JobRef) -> tuple[JobState, ...]:
        """Return the last state of each attempt, from their objects and from the recorder."""
        from mpijob.backends.kubernetes.status import attempts

        seen = self._reader.attempts(ref)
        past = self.history()
        return seen if past is None else attempts.merged(past.attempts(seen[-1].ref), seen)

    def list(self, scope: Scope) -> Page:
        """Return one page of jobs, newest first."""
        with translated("list jobs"):
            return list_jobs.page(self._api, scope, forecasts=self._forecasts_of)

    def _forecasts_of(self, namespace: str) -> Mapping[str, Forecast]:
        return self._forecasts.of(namespace)

    def watch(self, scope: Scope) -> Iterator[JobState]:
        """Yield the state of each job once, then each change, until closed."""
        with closing(self._follower.states(scope)) as states:
            yield from states

    def watch_all(self, namespace: str) -> Iterator[Overseen]:
        """Yield the state of each job of a namespace ("" for all), then each change, from watches only."""
        from mpijob.backends.kubernetes.status import watch_cluster

        with translated("watch jobs"):
            changes = watch_cluster.watch_all(self._api, namespace, self._reader.served)
            try:
                yield from changes
            finally:
                changes.close()

    def secret_values(self, ref: JobRef, secrets: tuple[Secret, ...]) -> tuple[str, ...]:
        """Return the values of a job's secrets that this user may read in the cluster."""
        from mpijob.backends.kubernetes.logs import secret_values

        return secret_values.known(
            self._api, ref, secrets, self._reader.find, own_machine=self._visitor is None
        )

    def projects(self) -> tuple[Option, ...]:
        """Return the namespaces that this user may list, with their display names."""
        from mpijob.backends.kubernetes.admin import form_options

        with translated("list namespaces"):
            return form_options.projects(self._api, self._reader.served)

    def form_options(self, namespace: str) -> Choices:
        """Return what a namespace offers to a form."""
        from mpijob.backends.kubernetes.admin import form_options

        with translated(f"read namespace {namespace}"):
            return form_options.read_choices(self._api, namespace, self._reader.served)

    def logs(self, ref: JobRef, query: LogQuery) -> Iterator[LogLine]:
        """Yield the merged lines of all pods."""
        with closing(self._follower.lines(ref, query)) as lines:
            yield from lines

    def events(self, ref: JobRef, *, follow: bool = False) -> Iterator[Event]:
        """Yield the job's events in order; with `follow`, until it has ended."""
        with closing(self._follower.events(ref, follow=follow)) as events:
            yield from events

    def samples(self, ref: JobRef) -> tuple[Sample, ...]:
        """Return the last values of the metrics API and of the cluster's Prometheus."""
        from mpijob.backends.kubernetes.metrics import pod_usage, prometheus_query

        found = self._reader.find(ref)
        with translated(f"read the usage of {ref.name}"):
            prometheus = prometheus_query.of_settings(self._settings)
            return pod_usage.samples(self._api, found, self._reader.served, prometheus)

    def mpi_profile(self, ref: JobRef) -> RankProfiles:
        """Return the ranks' counts of MPI calls, from the pods' logs or from the recorder."""
        from mpijob.backends.kubernetes.metrics import mpi_profile
        from mpijob.history import mpi_profiles

        snapshot = self._reader.read(ref)
        slots = max(part.job.slots for part in self._reader.spec(snapshot.found, snapshot.seen.runtime).parts)
        with translated(f"read the MPI profiles of {ref.name}"):
            found = mpi_profile.read(
                self._api, self._reader.log_sources(snapshot.found), snapshot.state, slots
            )
        past = self.history()
        return found if found.ranks or past is None else mpi_profiles.read_profiles(past, snapshot.state.ref)

    def accounts(self, query: AccountQuery) -> tuple[Account, ...]:
        """Return the accounts of existing jobs; none if a recorder stores them all."""
        if self.history() is not None:
            return ()
        from mpijob.backends.kubernetes.metrics import accounts

        return accounts.find(self, query, time.time())

    def progress(self, ref: JobRef) -> Progress | None:
        """Return the progress that the program reported to Trainer; None without one."""
        from mpijob.formats.status import trainer_progress

        return trainer_progress.read(self._reader.find(ref).job)

    def node_places(self, names: Sequence[str]) -> tuple[NodePlace, ...]:
        """Return the zones and racks of nodes; none if this user may not read nodes."""
        from mpijob.backends.kubernetes.status import node_places

        return node_places.read(self._api, names)

    @property
    def default_image(self) -> str:
        """The image of a job that sets none."""
        return self._settings.image

    def rates(self) -> dict[str, RateSetting]:
        """Return the cost of hours as the cluster's administrators have set it."""
        from mpijob.backends.kubernetes.admin.namespace_limits import Governor

        with translated("read the cost rates"):
            return Governor(self._api).rates()

    @cached_property
    def _templates(self) -> SharedTemplates:
        from mpijob.backends.kubernetes.actions.team_templates import SharedTemplates

        return SharedTemplates(self._api)

    def team_templates(self, namespace: str) -> tuple[TeamTemplate, ...]:
        """Return the templates that a namespace shares."""
        return self._templates.all(namespace)

    def save_team_template(self, template: TeamTemplate, *, overwrite: bool) -> None:
        """Save a template in its namespace."""
        self._templates.save(template, overwrite=overwrite)

    def delete_team_template(self, namespace: str, name: str) -> None:
        """Delete a template of its namespace."""
        self._templates.delete(namespace, name)

    def may_save_team_templates(self, namespace: str) -> bool:
        """Return whether this user may write the templates of a namespace."""
        return self._templates.may_save(namespace)

    def warnings(self, ref: JobRef) -> tuple[Finding, ...]:
        """Return the job's warnings; samples are kept between calls."""
        return self._warnings.of(ref)

    # -- steer -------------------------------------------------------------------------------------
    def cancel(self, ref: JobRef, *, grace_seconds: float | None = None) -> JobState:
        """End the job and keep its record."""
        return self._actions.cancel(ref, grace_seconds)

    def suspend(self, ref: JobRef) -> JobState:
        """Suspend the job: its pods are deleted, and it can be resumed."""
        return self._actions.suspend(ref)

    def resume(self, ref: JobRef) -> JobState:
        """Let a suspended job start again."""
        return self._actions.resume(ref)

    def scale(self, ref: JobRef, workers: int) -> JobState:
        """Give an elastic job another number of workers; the engine decides which ones are added and removed."""
        return self._actions.scale(ref, workers)

    def delete(self, ref: JobRef, *, grace_seconds: float | None = None) -> None:
        """End the job if needed and delete all its objects; by name, all jobs of that name."""
        self._actions.delete(ref, grace_seconds)

    def reconcile(self, state: JobState) -> None:
        """Start the next attempt of a failed job, or end one that cannot start, when it is due."""
        self._reconciler.reconcile(state)

    # -- reach in ----------------------------------------------------------------------------------
    def execute(self, ref: JobRef, argv: tuple[str, ...], *, worker: int | None, rank: int | None) -> int:
        """Run a command with this terminal in a pod of the job, and return its exit code."""
        from mpijob.backends.kubernetes.actions import exec_in_pod

        snapshot = self._reader.read(ref)
        with translated(f"run a command in {ref.name}"):
            return exec_in_pod.execute(
                self._api, snapshot.state, snapshot.seen, argv, worker=worker, rank=rank
            )

    def stacks(
        self, ref: JobRef, ranks: tuple[int, ...] = (), *, bring: bool = False
    ) -> tuple[RankStack, ...]:
        """Return the stacks of the ranks, read in their workers' pods; `bring` copies py-spy there."""
        from mpijob.backends.kubernetes.actions import stacks

        snapshot = self._reader.read(ref)
        with translated(f"inspect the workers of {ref.name}"):
            return stacks.collect(
                self._api, snapshot.state, snapshot.seen, ranks, stacks.tool() if bring else b""
            )

    def artifacts(self, ref: JobRef) -> tuple[Artifact, ...]:
        """Return the files that the job left in buckets; those on claims take a pod (`list_artifacts`)."""
        from mpijob.backends.kubernetes.actions import artifacts

        job = artifacts.job_files(self._reader, ref).job
        return tuple(sorted(artifacts.list_buckets(self._api, job, self._outbound)))

    def list_artifacts(self, ref: JobRef) -> tuple[Artifact, ...]:
        """Return the files that the job left in buckets and on claims."""
        from mpijob.backends.kubernetes.actions import artifacts

        return tuple(artifacts.list_files(self._api, artifacts.job_files(self._reader, ref), self._outbound))

    def fetch(self, ref: JobRef, path: str, target: Path) -> None:
        """Copy one of those files to this machine."""
        from mpijob.backends.kubernetes.actions import artifacts

        artifacts.fetch(self._api, artifacts.job_files(self._reader, ref), path, target, self._outbound)

    def fetch_many(self, ref: JobRef, paths: Sequence[str], directory: Path) -> tuple[str, ...]:
        """Copy several of those files and folders."""
        from mpijob.backends.kubernetes.actions import artifacts

        files = artifacts.job_files(self._reader, ref)
        return artifacts.fetch_many(self._api, files, paths, directory, self._outbound)

    def schedules(self) -> ClusterSchedules:
        """Return the recurring jobs of the cluster."""
        from mpijob.backends.kubernetes.actions.schedules import ClusterSchedules

        return ClusterSchedules(self._api, self._settings)

    def register(self, ref: JobRef, model: Model) -> Registered:
        """Register the model of a job in the model registry; may be repeated."""
        from mpijob.backends.kubernetes.actions import register_model

        snapshot = self._reader.read(ref)
        job = self._reader.spec(snapshot.found, snapshot.seen.runtime)
        return register_model.register(self._api, snapshot.state, job, model, self._settings)

    def history(self) -> ArchiveReader | None:
        """Return the recorder's history of this cluster's jobs; None if it cannot be read from here."""
        from mpijob.backends.kubernetes.logs.archive import open_recorded

        return open_recorded(history_directory(self._settings, self.name), self._settings)

    def pause(self, seconds: float) -> None:
        """Sleep, at least as long as an object of the cluster takes to change."""
        from mpijob.backends.kubernetes.logs import follow_job

        follow_job.pause(seconds)
