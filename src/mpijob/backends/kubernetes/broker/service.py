"""The fit broker: facts about queues and nodes for users who may not read them themselves.

It has permissions of its own (read nodes, pods, queues, workloads) and answers only for what a user may do:
the token is reviewed, then whether the user may create jobs in the namespace. Responses are numbers, never
names of other users' jobs. `admission` evaluates them, here and at the client.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from mpijob.backends.bounded_dict import BoundedDict
from mpijob.backends.kubernetes.auth.token_access import Tokens
from mpijob.backends.kubernetes.client import discovery, resources
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.api_errors import ApiError, translated
from mpijob.backends.kubernetes.preflight import preflight
from mpijob.backends.kubernetes.preflight.cache import PreflightCache
from mpijob.backends.kubernetes.queues import collect, forecasts, live, new_job
from mpijob.errors import NotAllowed
from mpijob.model import Facts, Identity, MPIJob
from mpijob.model.platform.fit import Seen
from mpijob.model.status.forecast import Forecast
from mpijob.settings import Settings

if TYPE_CHECKING:
    from mpijob.history.archive_reader import ArchiveReader

# A page asks for many jobs at once.
_SAME_SECONDS = 2.0
_NAMESPACES = 256


class Broker:
    """Answers users' requests; safe to use from several threads."""

    def __init__(self, api: Api, settings: Settings, place: str, past: ArchiveReader | None = None) -> None:
        """`past` is the job history, if it can be read from here."""
        self._api, self._settings, self._place, self._past = api, settings, place, past
        self._known: BoundedDict[str, tuple[float, tuple[forecasts.Seen, ...]]] = BoundedDict(_NAMESPACES)
        self._tokens = Tokens(api)
        self._lately = PreflightCache()

    def seen(self, token: str, job: MPIJob) -> Seen:
        """Return the facts for a job of the token's user; raise Unauthenticated or NotAllowed."""
        self._check_permission(self._tokens.user(token), job.namespace)
        with translated("read the cluster state"):
            served = discovery.served(self._api)
        gathered = preflight.gather(
            self._api, job, served, self._settings, place=self._place, cache=self._lately
        )
        return self._seen(job, gathered.facts)

    def _check_permission(self, who: Identity, namespace: str, verb: str = "create") -> None:
        # Either engine is enough: a cluster may have only one of them.
        for kind in (resources.TRAINJOB, resources.MPIJOB):
            attributes = {
                "namespace": namespace,
                "verb": verb,
                "group": kind.group,
                "resource": kind.plural,
            }
            if self._tokens.may(who, resourceAttributes=attributes):
                return
        raise NotAllowed(
            f"User '{who.user}' lacks '{verb}' permission for MPIJobs in namespace '{namespace}'",
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
        return self._with_queue_position(found, job, facts)

    def _with_queue_position(self, found: Seen, job: MPIJob, facts: Facts) -> Seen:
        placement = new_job.placed(self._queues(job.namespace), job, facts, self._classes(), self._api.now())
        if placement is None:
            return found
        forecast = placement.forecast
        return msgspec.structs.replace(
            found,
            position=forecast.position if placement.ahead or forecast.seconds != 0.0 else None,
            ahead=placement.ahead,
            wait_range=forecast.span,
            wait_seconds=forecast.seconds,
            basis=placement.ended,
            wait_basis=forecast.basis,
        )

    def waits(self, token: str, namespace: str) -> dict[str, Forecast]:
        """Return the start times of the queued jobs of this namespace only, by the uids of their objects.

        Raise Unauthenticated or NotAllowed.
        """
        self._check_permission(self._tokens.user(token), namespace, "list")
        found: dict[str, Forecast] = {}
        for seen in self._queues(namespace):
            owners = {entry.owner for entry in seen.entries if entry.namespace == namespace}
            all_forecasts = forecasts.forecasts(seen, self._api.now())
            found |= {owner: forecast for owner, forecast in all_forecasts.items() if owner in owners}
        return found

    def _queues(self, namespace: str) -> tuple[forecasts.Seen, ...]:
        """Return the queues of a namespace with their jobs, at most 2 s old."""
        when, known = self._known.get(namespace, (0.0, ()))
        if time.monotonic() - when > _SAME_SECONDS:
            with translated("read the queue"):
                served = discovery.served(self._api)
                known = collect.queues(self._api, namespace, served, live.of_record(self._past, ""))
            self._known[namespace] = time.monotonic(), known
        return known

    def _classes(self) -> dict[str, int]:
        try:
            classes = self._api.list(resources.WORKLOAD_PRIORITY.path()).items
        except ApiError:
            return {}
        return {item["metadata"]["name"]: int(item.get("value") or 0) for item in classes}
