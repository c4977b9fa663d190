"""The fit broker: facts about queues and machines for users who may not read them themselves.

It acts with rights of its own (read nodes, pods, queues, workloads), and answers only for what a user may do: the
bearer token is reviewed, then whether that user may create jobs in the namespace. It hands over numbers, never a
name of somebody else's job. Judging is `admission`'s business, here and at the client alike.
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

_SAME_SECONDS = 2.0
_NAMESPACES = 256


class Broker:
    """Answers for users; safe to use from several threads."""

    def __init__(self, api: Api, settings: Settings, place: str, past: ArchiveReader | None = None) -> None:
        """Answer through one client; `past` is the record of jobs, where it can be read from here."""
        self._api, self._settings, self._place, self._past = api, settings, place, past
        self._known: BoundedDict[str, tuple[float, tuple[forecasts.Seen, ...]]] = BoundedDict(_NAMESPACES)
        self._tokens = Tokens(api)
        self._lately = PreflightCache()

    def seen(self, token: str, job: MPIJob) -> Seen:
        """Return what is to be known for a job of the token's user; raise Unauthenticated or NotAllowed."""
        self._permit(self._tokens.user(token), job.namespace)
        with translated("read the cluster state"):
            served = discovery.served(self._api)
        gathered = preflight.gather(
            self._api, job, served, self._settings, place=self._place, lately=self._lately
        )
        return self._seen(job, gathered.facts)

    def _permit(self, who: Identity, namespace: str, verb: str = "create") -> None:
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
        return self._with_line(found, job, facts)

    def _with_line(self, found: Seen, job: MPIJob, facts: Facts) -> Seen:
        """Return it with the job's place in the line, and when it may start."""
        line = new_job.placed(self._queues(job.namespace), job, facts, self._classes(), self._api.now())
        if line is None:
            return found
        forecast = line.forecast
        return msgspec.structs.replace(
            found,
            position=forecast.position if line.ahead or forecast.seconds != 0.0 else None,
            ahead=line.ahead,
            wait_range=forecast.span,
            wait_seconds=forecast.seconds,
            basis=line.ended,
            wait_basis=forecast.basis,
        )

    def waits(self, token: str, namespace: str) -> dict[str, Forecast]:
        """Return when the jobs of a namespace start that wait, by their objects' uids, and of no other namespace.

        Raise Unauthenticated or NotAllowed.
        """
        self._permit(self._tokens.user(token), namespace, "list")
        found: dict[str, Forecast] = {}
        for seen in self._queues(namespace):
            own = {one.owner for one in seen.entries if one.namespace == namespace}
            told = forecasts.forecasts(seen, self._api.now())
            found |= {owner: forecast for owner, forecast in told.items() if owner in own}
        return found

    def _queues(self, namespace: str) -> tuple[forecasts.Seen, ...]:
        """Return the queues of a namespace with all that wait and run in them, anew every few seconds."""
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
        return {one["metadata"]["name"]: int(one.get("value") or 0) for one in classes}
