"""The controller: does for all jobs of a cluster what no engine does.

Each job that changed is read again (`work_queue`). Its transitions and findings are published on it
(`status_publisher`), a failed one gets its next attempt and one that cannot start is ended (`reconcile`), the limits
of its namespace are enforced, lost nodes are reported (`node_heartbeat`) and orphans are deleted
(`garbage_collector`). All its state is on the cluster's own objects, so it may be killed at any moment. Of several
replicas the holder of a Lease acts (`leader_election`).
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
# What every pod of every job says when all is well is not kept, but that it started: what it waited for is over then.
_DULL = ("Scheduled", "Pulled", "Created")
_TICK_SECONDS = 0.1
_SETTLE_SECONDS = 0.1
_SWEEP_SECONDS = 60.0
_STARTING_SECONDS = 2.0  # what only the launcher's log tells: that its world is proved
_WAITING_SECONDS = 15.0
_RUNNING_SECONDS = 120.0  # nothing is due before, and whatever moves is told by a watch
_ENDING = (Reason.DEADLINE_EXCEEDED.value, Reason.CANCELLING.value)
_ENDING_SECONDS = 40.0  # after that whoever noted the end of a job was killed before bringing it about
_log = logging.getLogger(__name__)


class Controller:
    """Tends the jobs of one namespace, or of all, while it leads."""

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
        self._tending = Reconciler(api, self._reader, self._gang_seconds, Owners(api).acting_for)
        self._model_registration = ModelRegistration(api, self._reader, settings or Settings())
        self._warnings = EarlyWarnings(
            api, self._reader, namespace, (settings or Settings()).warn_after_seconds
        )
        self._idle_gpus = IdleGpus(api, self._reader)
        self._silence = node_heartbeat.NodeHeartbeats()
        self._told_silent: dict[JobRef, frozenset[str]] = {}
        self._isolated: set[tuple[JobRef, str]] = set()  # with the name of the attempt's object
        self._led = False
        self._swept = 0.0
        self.beat = time.monotonic()
        self.looks = 0
        self._rounds = WorkQueue(
            api,
            self._reader.served,
            namespace,
            look=self._attend,
            gone=self._forget,
            trim=trim.pod,
            more=self._more_sources(),
            settle_seconds=_SETTLE_SECONDS,
        )

    def _forget(self, ref: JobRef) -> None:
        self._idle_gpus.forget(ref)
        self._warnings.forget(ref)
        self._isolated -= {one for one in self._isolated if one[0] == ref}
        self._told_silent.pop(ref, None)
        self._tending.forget(ref)

    def _more_sources(self) -> dict[str, ListWatch]:
        dull = ",".join(f"reason!={one}" for one in _DULL)
        return {
            _EVENTS: ListWatch(resources.EVENT.path(self._namespace), fields=dull, trim=trim.event),
            node_heartbeat.SOURCE: node_heartbeat.source(),
            LIMITS.plural: ListWatch(LIMITS.path(), trim=trim.spec),
            PLATFORM.plural: ListWatch(PLATFORM.path(), trim=trim.spec),
        }

    @property
    def jobs(self) -> int:
        """How many jobs there are."""
        return len(self._rounds.there())

    @property
    def leads(self) -> bool:
        """Whether this is the one that acts."""
        return self._election.leads

    def run(self, stop: threading.Event, ready: Callable[[], None] = lambda: None) -> None:
        """Tend jobs until told to stop; raise BackendError where the cluster does not answer at first."""
        from mpijob.backends.kubernetes.status import evidence  # noqa: F401 - the first failure is told as soon as others

        self._rounds.cache.subscribe(self._silence.heard)
        with self._rounds:
            self._rounds.settle()
            with self._election:
                ready()
                while not stop.wait(_TICK_SECONDS):
                    self.beat = time.monotonic()
                    self._tick()

    def _tick(self) -> None:
        leads = self._election.leads
        if leads and not self._led:
            _log.warning("leader: watching %d jobs", self.jobs)
            for ref in self._rounds.there():
                self._rounds.wish(ref, 0.0)
        self._led = leads
        if not leads:
            return
        self._tell_silence()
        _carefully(self._measure)
        self._rounds.go()
        if time.monotonic() - self._swept >= _SWEEP_SECONDS:
            self._swept = time.monotonic()
            _carefully(lambda: garbage_collector.sweep(self._api, self._namespace, self._reader.served))

    def _measure(self) -> None:
        """Have jobs that may run out of memory looked at."""
        for ref in self._warnings.measure():
            self._rounds.wish(ref)

    # -- one job ----------------------------------------------------------------------------------
    def _attend(self, ref: JobRef) -> None:
        if not self._election.leads:
            return  # whoever leads looks at every job anew
        self.looks += 1
        look = self._reader.look(ref)
        if not job_conditions.is_ours(look.found.job):
            return
        limits = self._limits(ref.namespace)
        if noted := controller_notes.noted(look.found.job, well_known.SILENT_NODES_ANNOTATION):
            self._told_silent.setdefault(ref, frozenset(noted.split(",")))  # by the one that led before
        self._reconcile(look)
        self._tending.mend(look)
        self._tell_not_retried(look)
        self._isolate(look, limits)
        self._note_reached(look)
        self._model_registration.register_model_of(look)
        if self._ended_by_limit(look, limits):
            return
        if look.state.phase is not Phase.DELETING:
            alarms = [*self._alarms(look, limits)]
            _publish(self._api, look, alarms)
            self._enforce_idle(look, alarms, (limits.idle or Idle()).action)
        self._rounds.wish(ref, self._next_look(look.state, limits, self._ttl_seconds(look)))

    def _reconcile(self, look: JobSnapshot) -> None:
        """Do what the job needs now; what its owner may not have is told on the job, and tried again later."""
        try:
            self._tending.tend(look.state)
        except (BackendError, NotFound):
            raise
        except MpiJobError as error:
            message = f"{error.message}; {error.hint}" if error.hint else error.message
            key = f"{look.state.attempt} {hashlib.sha256(message.encode()).hexdigest()[:16]}"
            status_publisher.say(
                self._api, look.found.job, "Refused", message, key, warning=True, when=self._api.now()
            )

    def _tell_not_retried(self, look: JobSnapshot) -> None:
        """Tell once on a failed job that its cause is none for which it is tried again."""
        state, job = look.state, look.found.job
        if state.phase is not Phase.FAILED or '"Failed"' in controller_notes.noted(job, PROGRESS_ANNOTATION):
            return
        retry = self._reader.spec(look.found, look.seen.runtime).retry
        if state.attempt <= retry.limit and (why := retry_cause.refusal(state, retry)):
            key, now = str(state.attempt), self._api.now()
            status_publisher.say(self._api, job, "NotRetried", why, key, warning=True, when=now)

    def _isolate(self, look: JobSnapshot, limits: NamespaceLimits) -> None:
        """Give a job its NetworkPolicy where whoever created it could not; it opens what the limits allow."""
        key = (look.state.ref, look.found.name)
        if key in self._isolated or look.state.phase.final:
            return
        job, runtime, namespace = look.found.job, look.seen.runtime, look.state.ref.namespace
        may = partial(network.covered, allowed=limits.allowed_egress, home=namespace)
        policy = network_policy.of_object(job, runtime, allowed=may)
        if policy is not None:
            policy["metadata"]["ownerReferences"] = [owner_references.reference(job)]
            try:
                self._api.create(resources.NETWORK_POLICY.path(namespace), policy, accept=PARTIAL)
            except ApiError as error:
                if error.status not in (403, 409):  # there already, or the namespace goes
                    raise
            else:
                self._tell_closed(job, [one for one in network_policy.egress(job, runtime) if not may(one)])
        self._isolated.add(key)

    def _tell_closed(self, job: Document, closed: list[Destination]) -> None:
        """Tell on a job where its pods wanted to go and may not."""
        if closed:
            names = ", ".join(str(one) for one in closed)
            message = f"no egress to {names}: ask an administrator (allowedEgress of MPIJobLimits)"
            status_publisher.say(
                self._api, job, "EgressNotAllowed", message, names, warning=True, when=self._api.now()
            )

    def _note_reached(self, look: JobSnapshot) -> None:
        """Keep how far a pre-empted job had come: what its launcher said goes with its pods."""
        reached = look.seen.reached
        if reached and reached != controller_notes.noted(look.found.job, well_known.REACHED_ANNOTATION):
            body = {"metadata": {"annotations": {well_known.REACHED_ANNOTATION: reached}}}
            self._api.patch(look.found.path, body, accept=PARTIAL)

    def _ended_by_limit(self, look: JobSnapshot, limits: NamespaceLimits) -> bool:
        """End a job that ran too long, remove one that was kept long enough; return whether it is gone."""
        state, now = look.state, self._api.now()
        if (why := limits_policy.overrun(state, limits, now)) and state.reason not in _ENDING:
            grace = self._reader.spec(look.found, look.seen.runtime).grace_seconds
            patches.give_up(self._api, look.found, look.seen, Reason.DEADLINE_EXCEEDED.value, why, grace)
        elif not state.phase.final and (since := _ending_since(look)) and now - since > _ENDING_SECONDS:
            patches.finish(self._api, look.found, look.seen)
        if not limits_policy.expired(state, self._ttl_seconds(look), limits, now):
            return False
        _publish(self._api, look, ())
        patches.delete(self._api, look.found, (*look.found.earlier, look.found.job))
        return True

    def _ttl_seconds(self, look: JobSnapshot) -> float | None:
        """Return how long a job that has ended is to be kept, by its own wish."""
        if not look.state.phase.final:
            return None
        return self._reader.spec(look.found, look.seen.runtime).ttl_seconds

    def _alarms(self, look: JobSnapshot, limits: NamespaceLimits) -> Iterator[Finding]:
        yield from self._warnings.of(look)
        if look.state.phase is not Phase.RUNNING:
            self._idle_gpus.forget(look.state.ref)
            return
        now, job = self._api.now(), self._reader.spec(look.found, look.seen.runtime)
        if (near := limits_policy.deadline_alarm(look.state, job.deadline_seconds, limits, now)) is not None:
            yield near
        if (idle := self._idle_gpus.of(look, job, limits.idle or Idle())) is not None:
            yield idle

    def _enforce_idle(self, look: JobSnapshot, alarms: list[Finding], action: IdleAction) -> None:
        """Do what the rule of the namespace says about GPUs that are idle."""
        if any(one.code == _IDLE for one in alarms):
            job = self._reader.spec(look.found, look.seen.runtime)
            self._idle_gpus.free(look, job, action)
        elif action is IdleAction.REQUEUE:
            self._idle_gpus.queue_again(look)

    def _next_look(self, state: JobState, limits: NamespaceLimits, ttl_seconds: float | None) -> float:
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
            case _:  # the longer it takes, the less a look is worth
                age = now - (state.started or state.created)
                return max(_STARTING_SECONDS, min(_WAITING_SECONDS, age / 10))

    # -- what is known without asking ---------------------------------------------------------------
    def _limits(self, namespace: str) -> NamespaceLimits:
        """Return the limits of a namespace; what cannot be understood limits nothing."""
        own = self._rounds.cache.find(LIMITS.plural, "", namespace)
        whole = self._rounds.cache.find(PLATFORM.plural, "", SINGLETON)
        try:
            defaults = platform_of(whole or {}).defaults
            return effective(None if own is None else limits_of(own), defaults)
        except msgspec.ValidationError as error:
            _log.warning("the limits of %s are not valid: %s", namespace, error)
            return NamespaceLimits()

    def _gang_seconds(self, namespace: str) -> float:
        """Return how long a gang of a namespace may take to start, by its limits."""
        gang = self._limits(namespace).gang
        return math.inf if gang is None else gang.timeout_seconds

    def _events(self, namespace: str, name: str) -> list[Document]:
        return [
            one
            for one in self._rounds.cache.objects(_EVENTS)
            if one["metadata"]["namespace"] == namespace
            and job_objects.belongs(one["involvedObject"].get("name", ""), name)
        ]

    # -- lost nodes ---------------------------------------------------------------------------------
    def _tell_silence(self) -> None:
        """Have jobs on nodes that fell silent, or came back, say so."""
        silent = self._silence.silent(self._election.well_seconds)
        for ref, nodes in self._nodes_of_jobs(bool(silent)).items():
            lost = nodes & silent.keys()
            if lost != self._told_silent.get(ref, frozenset()):
                self._told_silent[ref] = lost
                since = ",".join(sorted(f"{one} {silent[one]}" for one in lost))
                if not _carefully(partial(self._note_silence, ref, lost, since)):
                    self._told_silent.pop(ref, None)

    def _nodes_of_jobs(self, silent: bool) -> dict[JobRef, frozenset[str]]:
        if not silent and not any(self._told_silent.values()):
            return {}
        found: dict[JobRef, frozenset[str]] = {}
        for source in PODS:
            for pod in self._rounds.cache.objects(source):
                for ref in self._rounds.jobs_of(pod) if pod["alive"] else ():
                    found[ref] = found.get(ref, frozenset()) | {pod["node"]}
        return found

    def _note_silence(self, ref: JobRef, lost: frozenset[str], since: str) -> None:
        found, now = self._reader.find(ref), self._api.now()
        names = ",".join(sorted(lost))
        if names:
            message = f"node {names} has sent no heartbeat for {node_heartbeat.SILENT_SECONDS:g} s; workers run there"
            status_publisher.say(self._api, found.job, "NodeLost", message, since, warning=True, when=now)
        status_publisher.note(self._api, found, {well_known.SILENT_NODES_ANNOTATION: names or None})
        self._rounds.wish(ref)


def _publish(api: Api, look: JobSnapshot, alarms: list[Finding] | tuple[Finding, ...]) -> None:
    """Tell what is new; a job that changed meanwhile is looked at again anyway."""
    try:
        status_publisher.publish(api, look, alarms)
    except ApiError as error:
        if error.status not in (404, 409):
            raise


def _carefully(act: Callable[[], object]) -> bool:
    """Do what can be done again later; return whether it was done."""
    try:
        act()
    except MpiJobError as error:
        _log.warning("%s", error)
        return False
    return True


def _ending_since(look: JobSnapshot) -> float | None:
    """Return when somebody noted that the job is to end."""
    notes = look.found.job["metadata"].get("annotations") or {}
    stamp = (
        notes.get(well_known.CANCELLED_ANNOTATION)
        or notes.get(well_known.GIVEN_UP_ANNOTATION, "").partition(" ")[0]
    )
    return time_of(stamp) if stamp else None
