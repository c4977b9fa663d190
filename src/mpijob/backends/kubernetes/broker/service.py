"""The fit broker: facts about queues and machines for users who may not read them themselves.

It acts with rights of its own (read nodes, pods, queues, workloads), and answers only for what a user may do: the
bearer token is reviewed, then whether that user may create jobs in the namespace. It hands over numbers, never a
name of somebody else's job. Judging is `admission`'s business, here and at the client alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mpijob.admission import wait_estimates
from mpijob.admission.wait_estimates import Held
from mpijob.backends.kubernetes.auth.token_access import Tokens
from mpijob.backends.kubernetes.client import discovery, resources
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.api_errors import ApiError, telling
from mpijob.backends.kubernetes.preflight import preflight
from mpijob.backends.kubernetes.preflight.cache import PreflightCache
from mpijob.errors import NotAllowed
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.status import kueue_usage
from mpijob.formats.status.kueue_usage import WorkloadUsage
from mpijob.model import Facts, Identity, MPIJob
from mpijob.model.platform.cluster import QueueFacts
from mpijob.model.platform.fit import Seen
from mpijob.settings import Settings


class Broker:
    """Answers for users; safe to use from several threads."""

    def __init__(self, api: Api, settings: Settings, place: str) -> None:
        self._api, self._settings, self._place = api, settings, place
        self._tokens = Tokens(api)
        self._lately = PreflightCache()

    def seen(self, token: str, job: MPIJob) -> Seen:
        """Return what is to be known for a job of the token's user; raise Unauthenticated or NotAllowed."""
        self._permit(self._tokens.user(token), job.namespace)
        with telling("look at the cluster"):
            served = discovery.served(self._api)
        gathered = preflight.gather(
            self._api, job, served, self._settings, place=self._place, lately=self._lately
        )
        return self._seen(job, gathered.facts)

    def _permit(self, who: Identity, namespace: str) -> None:
        for kind in (resources.TRAINJOB, resources.MPIJOB):
            attributes = {
                "namespace": namespace,
                "verb": "create",
                "group": kind.group,
                "resource": kind.plural,
            }
            if self._tokens.may(who, resourceAttributes=attributes):
                return
        raise NotAllowed(
            f"User '{who.user}' lacks 'create' permission for MPIJobs in namespace '{namespace}'",
            hint=f"ask an administrator of namespace '{namespace}', or use another namespace",
        )

    def _seen(self, job: MPIJob, facts: Facts) -> Seen:
        cluster = facts.cluster
        queue = cluster.queue if cluster is not None else None
        found = Seen(
            place=facts.place,
            capacity=facts.capacity,
            free=facts.free,
            room_known=facts.room_known,
            queue=queue,
            room=cluster.room if cluster is not None else None,
        )
        if queue is None or not queue.behind or not queue.shares:
            return found
        return self._with_line(found, queue, job, facts)

    def _with_line(self, found: Seen, queue: QueueFacts, job: MPIJob, facts: Facts) -> Seen:
        """Return it with the job's place in the line, and when it may start."""
        entries = self._entries(queue.behind)
        now = self._api.now()
        mine = self._priority(job)
        ahead = [one for one in entries if _waits(one) and one.priority >= mine]
        before = total(ahead)
        running = [Held(one.admitted, one.amounts) for one in entries if one.admitted and not one.finished]
        durations = [one.finished - one.admitted for one in entries if one.admitted and one.finished]
        assert facts.cluster is not None
        wanted = _wanted(facts, job)
        free = {share.resource: share.free for share in queue.shares or ()}
        short = wait_estimates.missing(wanted, before, free)
        return Seen(
            place=found.place,
            capacity=found.capacity,
            free=found.free,
            room_known=found.room_known,
            queue=queue,
            room=found.room,
            position=len(ahead) + 1 if ahead or short else None,
            ahead=before,
            wait_range=wait_estimates.wait_range(short, running, durations, now),
            basis=len(durations),
        )

    def _entries(self, cluster_queue: str) -> list[WorkloadUsage]:
        with telling("look at the queue"):
            local = self._api.list(resources.LOCAL_QUEUE.path()).items
            workloads = self._api.list(resources.WORKLOAD.path()).items
        mine = {
            _address(one) for one in local if (one.get("spec") or {}).get("clusterQueue") == cluster_queue
        }
        found = (kueue_usage.read(one) for one in workloads)
        return [one for one in found if (one.namespace, one.queue) in mine]

    def _priority(self, job: MPIJob) -> int:
        try:
            classes = self._api.list(resources.WORKLOAD_PRIORITY.path()).items
        except ApiError:
            classes = []
        values = {one["metadata"]["name"]: int(one.get("value") or 0) for one in classes}
        return values.get(str(job.priority), 0) if isinstance(job.priority, str) else job.priority


def total(entries: Sequence[WorkloadUsage]) -> dict[str, float]:
    """Return what several ask for together."""
    found: dict[str, float] = {}
    for one in entries:
        for name, amount in one.amounts.items():
            found[name] = found.get(name, 0.0) + amount
    return found


def _waits(entry: WorkloadUsage) -> bool:
    return entry.admitted is None and entry.finished is None and not entry.stuck


def _wanted(facts: Facts, job: MPIJob) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for ask in facts.cluster.asks if facts.cluster is not None else ():
        count = job.workers if ask.role == "worker" else 1
        for name, amount in ask.requests.items():
            found[name] = found.get(name, 0.0) + count * amount
    return found


def _address(document: Document) -> tuple[str, str]:
    return document["metadata"]["namespace"], document["metadata"]["name"]
