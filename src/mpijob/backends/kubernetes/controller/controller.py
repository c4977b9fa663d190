"""The controller: does for all jobs of a cluster what engines do not do.

Each job that changed is read again (`work_queue`). Its transitions and findings are published on it
(`status_publisher`), a failed one gets its next attempt and one that cannot start is ended (`reconcile`), the
limits of its namespace are enforced, lost nodes are reported (`node_heartbeat`) and orphans are deleted
(`garbage_collector`). All state is stored in the cluster's objects, so the controller may be killed at any
time. Of several replicas, the holder of a Lease acts (`leader_election`).
"""

from __future__ import annotations

import hashlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from mpijob.backends.kubernetes.actions import patches
from mpijob.backends.kubernetes.auth.impersonation import Owners
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import PARTIAL, Api, ApiError
from mpijob.backends.kubernetes.client.informer import ListWatch
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.backends.kubernetes.controller import garbage_collector, node_heartbeat, status_publisher, trim
from mpijob.backends.kubernetes.controller.early_warnings import EarlyWarnings
from mpijob.backends.kubernetes.controller.idle_gpus import IdleGpus
from mpijob.backends.kubernetes.controller.leader_election import Election
from mpijob.backends.kubernetes.controller.model_registration import ModelRegistration
from mpijob.backends.kubernetes.controller.reconcile import Reconciler
from mpijob.backends.kubernetes.controller.work_queue import PODS, WorkQueue
from mpijob.backends.kubernetes.status import job_objects
from mpijob.backends.kubernetes.status.job_reader import JobReader, JobSnapshot
from mpijob.backends.kubernetes.submit import owner_references
from mpijob.errors import BackendError, Finding, MpiJobError, NotFound
from mpijob.formats.kubernetes import network_policy
from mpijob.formats.kubernetes.metadata import controller_notes, well_known
from mpijob.formats.kubernetes.metadata.controller_notes import PROGRESS_ANNOTATION
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.status import job_conditions
from mpijob.formats.status.nested_fields import time_of
from mpijob.model import JobRef, JobState, Phase
from mpijob.model.platform.governance import API as GOVERNANCE
from mpijob.model.platform.governance import (
    SINGLETON,
    Idle,
    IdleAction,
    NamespaceLimits,
    effective,
    limits_of,
    platform_of,
)
from mpijob.model.spec import network
from mpijob.model.spec.network import Destination
from mpijob.observation.state import limits_policy, retry_cause
from mpijob.observation.state.phase import Reason
from mpijob.settings import Settings

LIMITS = Kind(GOVERNANCE, "MPIJobLimits", "mpijoblimits", namespaced=False)
PLATFORM = Kind(GOVERNANCE, "MPIJobPlatform", "mpijobplatforms", namespaced=False)
_EVENTS = "events"
_IDLE = "GPUS_IDLE"
# Events that every healthy pod has; not selected, to save memory. "Started" is kept: it ends the waiting of a pod.
_ROUTINE_REASONS = ("Scheduled", "Pulled", "Created")
_TICK_SECONDS = 0.1
_SETTLE_SECONDS = 0.1
_SWEEP_SECONDS = 60.0
# The proof that the world is complete is in the launcher's log only, and no watch reports a log.
_STARTING_SECONDS = 2.0
_WAITING_SECONDS = 15.0
# Nothing is due earlier, and a watch reports whatever changes.
_RUNNING_SECONDS = 120.0
_ENDING = (Reason.DEADLINE_EXCEEDED.value, Reason.CANCELLING.value)
# Then the process that noted the end of a job was killed before it deleted the pods.
_ENDING_SECONDS = 40.0
_log = logging.getLogger(__name__)


class Controller:
    """Reconciles the jobs of one namespace, or of all, while this replica leads."""

    def __init__(
        self,
        api: Api,
        election: Election,
        namespace: str = "",
        settings: Settings | None = None,
    ) -> None:
        self._api = api
        self._election = election
        self._namespace = namespace
        self._reader = JobReader(api, events=self._events)
        self._reconciler = Reconciler(api, self._reader, self._gang_seconds, Owners(api).acting_for)
        self._model_registration = ModelRegistration(api, self._reader, settings or Settings())
        self._warnings = EarlyWarnings(
            api, self._reader, namespace, (settings or Settings()).warn_after_seconds
        )
        self._idle_gpus = IdleGpus(api, self._reader)
        self._heartbeats = node_heartbeat.NodeHeartbeats()
        self._published_silent: dict[JobRef, frozenset[str]] = {}
        # With the name of the attempt's object: each attempt needs a policy of its own.
        self._isolated: set[tuple[JobRef, str]] = set()
        self._led = False
        self._swept = 0.0
        self.beat = time.monotonic()
        self.looks = 0
        self._queue = WorkQueue(
            api,
            self._reader.served,
            namespace,
            reconcile=self._reconcile,
            removed=self._forget,
            trim=trim.pod,
            more=self._more_sources(),
            batch_seconds=_SETTLE_SECONDS,
        )

    def _forget(self, ref: JobRef) -> None:
        self._idle_gpus.forget(ref)
        self._warnings.forget(ref)
        self._isolated -= {key for key in self._isolated if key[0] == ref}
        self._published_silent.pop(ref, None)
        self._reconciler.forget(ref)

    def _more_sources(self) -> dict[str, ListWatch]:
        selector = ",".join(f"reason!={reason}" for reason in _ROUTINE_REASONS)
        return {
            _EVENTS: ListWatch(resources.EVENT.path(self._namespace), fields=selector, trim=trim.event),
            node_heartbeat.SOURCE: node_heartbeat.source(),
            LIMITS.plural: ListWatch(LIMITS.path(), trim=trim.spec),
            PLATFORM.plural: ListWatch(PLATFORM.path(), trim=trim.spec),
        }

    @property
    def jobs(self) -> int:
        return len(self._queue.jobs())

    @property
    def leads(self) -> bool:
        """Whether this replica may act."""
        return self._election.leads

    def run(self, stop: threading.Event, ready: Callable[[], None] = lambda: None) -> None:
        """Reconcile until `stop` is set; raise BackendError if the cluster does not respond at the start."""
        # Loaded before the first failure, so that its explanation is not later than those of others.
        from mpijob.backends.kubernetes.status import evidence  # noqa: F401 - loads the rules

        self._queue.cache.subscribe(self._heartbeats.on_change)
        with self._queue:
            self._queue.wait_until_listed()
            with self._election:
                ready()
                while not stop.wait(_TICK_SECONDS):
                    self.beat = time.monotonic()
                    self._tick()

    def _tick(self) -> None:
        leads = self._election.leads
        if leads and not self._led:
            _log.warning("leader: watching %d jobs", self.jobs)
            for ref in self._queue.jobs():
                self._queue.enqueue(ref, 0.0)
        self._led = leads
        if not leads:
            return
        self._publish_silence()
        _carefully(self._measure)
        self._queue.start_due()
        if time.monotonic() - self._swept >= _SWEEP_SECONDS:
            self._swept = time.monotonic()
            _carefully(lambda: garbage_collector.sweep(self._api, self._namespace, self._reader.served))

    def _measure(self) -> None:
        # A job that may run out of memory is due at once.
        for ref in self._warnings.measure():
            self._queue.enqueue(ref)

    # -- one job ----------------------------------------------------------------------------------
    def _reconcile(self, ref: JobRef) -> None:
        if not self._election.leads:
            # The leader reconciles every job when it takes over.
            return
        self.looks += 1
        snapshot = self._reader.read(ref)
        if not job_conditions.is_ours(snapshot.found.job):
            return
        limits = self._limits(ref.namespace)
        if noted := controller_notes.annotation_of(snapshot.found.job, well_known.SILENT_NODES_ANNOTATION):
            # By the replica that led before.
            self._published_silent.setdefault(ref, frozenset(noted.split(",")))
        self._reconcile_as_owner(snapshot)
        self._reconciler.repair_owner(snapshot)
        self._publish_not_retried(snapshot)
        self._isolate(snapshot, limits)
        self._store_reached(snapshot)
        self._model_registration.register_model_of(snapshot)
        if self._ended_by_limit(snapshot, limits):
            return
        if snapshot.state.phase is not Phase.DELETING:
            alarms = [*self._alarms(snapshot, limits)]
            _publish(self._api, snapshot, alarms)
            self._enforce_idle(snapshot, alarms, (limits.idle or Idle()).action)
        self._queue.enqueue(ref, self._seconds_until_due(snapshot.state, limits, self._ttl_seconds(snapshot)))

    def _reconcile_as_owner(self, snapshot: JobSnapshot) -> None:
        """Do what the job needs now."""
        try:
            self._reconciler.reconcile(snapshot.state)
        except (BackendError, NotFound):
            raise
        except MpiJobError as error:
            # What the owner may not do is published on the job, and tried again at the next snapshot.
            message = f"{error.message}; {error.hint}" if error.hint else error.message
            key = f"{snapshot.state.attempt} {hashlib.sha256(message.encode()).hexdigest()[:16]}"
            status_publisher.write_event(
                self._api, snapshot.found.job, "Refused", message, key, warning=True, when=self._api.now()
            )

    def _publish_not_retried(self, snapshot: JobSnapshot) -> None:
        state, job = snapshot.state, snapshot.found.job
        if state.phase is not Phase.FAILED or '"Failed"' in controller_notes.annotation_of(
            job, PROGRESS_ANNOTATION
        ):
            return
        retry = self._reader.spec(snapshot.found, snapshot.seen.runtime).retry
        if state.attempt <= retry.limit and (why := retry_cause.refusal(state, retry)):
            key, now = str(state.attempt), self._api.now()
            status_publisher.write_event(self._api, job, "NotRetried", why, key, warning=True, when=now)

    def _isolate(self, snapshot: JobSnapshot, limits: NamespaceLimits) -> None:
        """Create the job's NetworkPolicy, with the egress that the limits allow."""
        # Most users may not create NetworkPolicies; for the others it exists already.
        key = (snapshot.state.ref, snapshot.found.name)
        if key in self._isolated or snapshot.state.phase.final:
            return
        job, runtime, namespace = snapshot.found.job, snapshot.seen.runtime, snapshot.state.ref.namespace
        may = partial(network.covered, allowed=limits.allowed_egress, home=namespace)
        policy = network_policy.of_object(job, runtime, allowed=may)
        if policy is not None:
            policy["metadata"]["ownerReferences"] = [owner_references.reference(job)]
            try:
                self._api.create(resources.NETWORK_POLICY.path(namespace), policy, accept=PARTIAL)
            except ApiError as error:
                # 409: it exists. 403: the namespace is being deleted.
                if error.status not in (403, 409):
                    raise
            else:
                self._publish_denied_egress(
                    job, [target for target in network_policy.egress(job, runtime) if not may(target)]
                )
        self._isolated.add(key)

    def _publish_denied_egress(self, job: Document, closed: list[Destination]) -> None:
        if closed:
            names = ", ".join(map(str, closed))
            message = f"no egress to {names}: ask an administrator (allowedEgress of MPIJobLimits)"
            status_publisher.write_event(
                self._api, job, "EgressNotAllowed", message, names, warning=True, when=self._api.now()
            )

    def _store_reached(self, snapshot: JobSnapshot) -> None:
        # Of a pre-empted job: Kueue deletes the pods, and the launcher's log with them.
        reached = snapshot.seen.reached
        if reached and reached != controller_notes.annotation_of(
            snapshot.found.job, well_known.REACHED_ANNOTATION
        ):
            body = {"metadata": {"annotations": {well_known.REACHED_ANNOTATION: reached}}}
            self._api.patch(snapshot.found.path, body, accept=PARTIAL)

    def _ended_by_limit(self, snapshot: JobSnapshot, limits: NamespaceLimits) -> bool:
        """End a job that ran too long, delete one whose retention is over; return whether it was deleted."""
        state, now = snapshot.state, self._api.now()
        if (why := limits_policy.overrun_message(state, limits, now)) and state.reason not in _ENDING:
            grace = self._reader.spec(snapshot.found, snapshot.seen.runtime).grace_seconds
            patches.end_early(
                self._api, snapshot.found, snapshot.seen, Reason.DEADLINE_EXCEEDED.value, why, grace
            )
        elif not state.phase.final and (since := _ending_since(snapshot)) and now - since > _ENDING_SECONDS:
            # The process that wrote the note was killed before it deleted the pods.
            patches.finish(self._api, snapshot.found, snapshot.seen)
        if not limits_policy.is_expired(state, self._ttl_seconds(snapshot), limits, now):
            return False
        _publish(self._api, snapshot, ())
        patches.delete(self._api, snapshot.found, (*snapshot.found.earlier, snapshot.found.job))
        return True

    def _ttl_seconds(self, snapshot: JobSnapshot) -> float | None:
        """Return the retention that an ended job asks for."""
        if not snapshot.state.phase.final:
            return None
        return self._reader.spec(snapshot.found, snapshot.seen.runtime).ttl_seconds

    def _alarms(self, snapshot: JobSnapshot, limits: NamespaceLimits) -> Iterator[Finding]:
        yield from self._warnings.of(snapshot)
        if snapshot.state.phase is not Phase.RUNNING:
            self._idle_gpus.forget(snapshot.state.ref)
            return
        now, job = self._api.now(), self._reader.spec(snapshot.found, snapshot.seen.runtime)
        if (
            near := limits_policy.deadline_alarm(snapshot.state, job.deadline_seconds, limits, now)
        ) is not None:
            yield near
        if (idle := self._idle_gpus.of(snapshot, job, limits.idle or Idle())) is not None:
            yield idle

    def _enforce_idle(self, snapshot: JobSnapshot, alarms: list[Finding], action: IdleAction) -> None:
        """Act on idle GPUs as the namespace's limits say."""
        if any(alarm.code == _IDLE for alarm in alarms):
            job = self._reader.spec(snapshot.found, snapshot.seen.runtime)
            self._idle_gpus.free(snapshot, job, action)
        elif action is IdleAction.REQUEUE:
            self._idle_gpus.queue_again(snapshot)

    def _seconds_until_due(
        self, state: JobState, limits: NamespaceLimits, ttl_seconds: float | None
    ) -> float:
        now = self._api.now()
        begun, most = state.running or state.started, limits.max_duration_seconds
        ends = begun + most - now if begun is not None and most is not None else _RUNNING_SECONDS
        match state.phase:
            case Phase.SUCCEEDED | Phase.FAILED | Phase.CANCELLED:
                keep = limits_policy.kept_seconds(ttl_seconds, limits)
                since = now - (state.finished or now)
                return _RUNNING_SECONDS if keep is None else max(0.5, keep - since)
            case _ if state.reason in _ENDING:
                return _WAITING_SECONDS
            case Phase.RUNNING | Phase.SUSPENDED:
                return max(0.5, min(self._warnings.quiet_seconds or _RUNNING_SECONDS, _RUNNING_SECONDS, ends))
            case Phase.QUEUED if state.reason != Reason.BACKING_OFF.value:
                return _WAITING_SECONDS
            case _:
                # The longer a job has been starting, the less likely is a change.
                age = now - (state.started or state.created)
                return max(_STARTING_SECONDS, min(_WAITING_SECONDS, age / 10))

    # -- what is known without asking ---------------------------------------------------------------
    def _limits(self, namespace: str) -> NamespaceLimits:
        """Return the limits of a namespace; none if they are not valid."""
        own = self._queue.cache.find(LIMITS.plural, "", namespace)
        platform = self._queue.cache.find(PLATFORM.plural, "", SINGLETON)
        try:
            defaults = platform_of(platform or {}).defaults
            return effective(None if own is None else limits_of(own), defaults)
        except msgspec.ValidationError as error:
            # A typo of an administrator must not stop all jobs of the namespace.
            _log.warning("the limits of %s are not valid: %s", namespace, error)
            return NamespaceLimits()

    def _gang_seconds(self, namespace: str) -> float:
        """Return the start timeout of the namespace's limits, infinity without one."""
        gang = self._limits(namespace).gang
        return math.inf if gang is None else gang.timeout_seconds

    def _events(self, namespace: str, name: str) -> list[Document]:
        return [
            event
            for event in self._queue.cache.objects(_EVENTS)
            if event["metadata"]["namespace"] == namespace
            and job_objects.belongs(event["involvedObject"].get("name", ""), name)
        ]

    # -- lost nodes ---------------------------------------------------------------------------------
    def _publish_silence(self) -> None:
        silent = self._heartbeats.silent(self._election.well_seconds)
        for ref, nodes in self._nodes_of_jobs(bool(silent)).items():
            lost = nodes & silent.keys()
            if lost != self._published_silent.get(ref, frozenset()):
                self._published_silent[ref] = lost
                since = ",".join(sorted(f"{node} {silent[node]}" for node in lost))
                if not _carefully(partial(self._note_silence, ref, lost, since)):
                    self._published_silent.pop(ref, None)

    def _nodes_of_jobs(self, silent: bool) -> dict[JobRef, frozenset[str]]:
        if not silent and not any(self._published_silent.values()):
            return {}
        found: dict[JobRef, frozenset[str]] = {}
        for source in PODS:
            for pod in self._queue.cache.objects(source):
                for ref in self._queue.jobs_of(pod) if pod["alive"] else ():
                    found[ref] = found.get(ref, frozenset()) | {pod["node"]}
        return found

    def _note_silence(self, ref: JobRef, lost: frozenset[str], since: str) -> None:
        found, now = self._reader.find(ref), self._api.now()
        names = ",".join(sorted(lost))
        if names:
            message = f"node {names} has sent no heartbeat for {node_heartbeat.SILENT_SECONDS:g} s; workers run there"
            status_publisher.write_event(
                self._api, found.job, "NodeLost", message, since, warning=True, when=now
            )
        status_publisher.note(self._api, found, {well_known.SILENT_NODES_ANNOTATION: names or None})
        self._queue.enqueue(ref)


def _publish(api: Api, snapshot: JobSnapshot, alarms: list[Finding] | tuple[Finding, ...]) -> None:
    """Publish what is new."""
    try:
        status_publisher.publish(api, snapshot, alarms)
    except ApiError as error:
        # A job that changed or was deleted meanwhile is due again anyway.
        if error.status not in (404, 409):
            raise


def _carefully(act: Callable[[], object]) -> bool:
    """Call a function whose work is repeated later anyway; return whether it succeeded."""
    try:
        act()
    except MpiJobError as error:
        _log.warning("%s", error)
        return False
    return True


def _ending_since(snapshot: JobSnapshot) -> float | None:
    """Return when the end of the job was noted on it."""
    notes = snapshot.found.job["metadata"].get("annotations") or {}
    stamp = (
        notes.get(well_known.CANCELLED_ANNOTATION)
        or notes.get(well_known.GIVEN_UP_ANNOTATION, "").partition(" ")[0]
    )
    return time_of(stamp) if stamp else None
