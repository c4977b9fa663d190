"""The client of a fit broker: adds what the user may not read to a preflight's facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from mpijob import codec
from mpijob.errors import InvalidJob, MpiJobError
from mpijob.model import Facts, MPIJob
from mpijob.model.platform.cluster import ClusterFacts, Unread
from mpijob.model.platform.fit import Seen
from mpijob.model.status.forecast import Forecast

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.auth.access import Access
    from mpijob.settings import Settings

_LOOPBACK = ("http://127.0.0.1", "http://localhost", "http://[::1]")
_SECONDS = 5.0
# The reads that a broker's response makes up for.
_BY_BROKER = ("ClusterQueues", "nodes", "pods of all namespaces")


def with_broker(facts: Facts, job: MPIJob, access: Access, settings: Settings) -> Facts:
    """Return the facts with those of the broker; if it does not respond, that is added to the unread facts."""
    if not settings.broker or _knows_enough(facts):
        return facts
    try:
        return with_seen(facts, ask(job, access, settings))
    except MpiJobError as error:
        return _with_failure(facts, error)


def ask(job: MPIJob, access: Access, settings: Settings) -> Seen:
    """Return the broker's numbers for a job of this user; raise MpiJobError."""
    response = _post("/v1/fit", {"job": msgspec.to_builtins(_shape(job))}, access, settings)
    try:
        return codec.convert(response.get("seen") or {}, Seen)
    except msgspec.ValidationError as error:
        raise InvalidJob(f"invalid response of the fit broker: {error}") from error


def ask_waits(namespace: str, access: Access, settings: Settings) -> dict[str, Forecast]:
    """Return the start times of a namespace's queued jobs, by the uids of their objects."""
    response = _post("/v1/waits", {"namespace": namespace}, access, settings)
    try:
        return codec.convert(response.get("waits") or {}, dict[str, Forecast])
    except msgspec.ValidationError as error:
        raise InvalidJob(f"invalid response of the fit broker: {error}") from error


def _post(path: str, body: Mapping[str, Any], access: Access, settings: Settings) -> Mapping[str, Any]:
    from mpijob.backends.kubernetes.client.api import Api
    from mpijob.backends.kubernetes.client.api_errors import translated

    if not settings.broker.startswith(("https://", *_LOOPBACK)):
        raise InvalidJob("the broker's address must begin with https://, because it receives your token")
    # Only the user's token: a client certificate would not reach the broker through TLS termination, and
    # impersonation is a matter of the API server.
    broker = msgspec.structs.replace(
        access, server=settings.broker.rstrip("/"), ca=_read_ca(settings) or access.ca, certificate="", key="",
        impersonate=None, tls_server_name="", proxy="",
    )  # fmt: skip
    with translated("query the fit broker"), Api(broker, timeout=_SECONDS) as api:
        return api.create(path, body)


def _shape(job: MPIJob) -> MPIJob:
    """Return the job's size and placement only: commands, variables, files and secrets stay here."""
    return MPIJob(
        name=job.name,
        namespace=job.namespace,
        workers=job.workers,
        slots=job.slots,
        ranks=job.ranks,
        groups=job.groups,
        mpi=job.mpi,
        command=("true",),
        resources=job.resources,
        launcher=job.launcher,
        placement=job.placement,
        queue=job.queue,
        priority=job.priority,
    )


def with_seen(facts: Facts, seen: Seen) -> Facts:
    """Return the facts with the broker's numbers where they had none."""
    cluster = facts.cluster or ClusterFacts(namespace="")
    queue = cluster.queue
    if seen.queue is not None and (queue is None or queue.shares is None):
        queue = seen.queue
    known = not facts.room_known and seen.room_known
    return msgspec.structs.replace(
        facts,
        capacity=seen.capacity if known else facts.capacity,
        free=seen.free if known else facts.free,
        room_known=facts.room_known or seen.room_known,
        waits_for_quota=facts.waits_for_quota or (queue is not None and queue.found),
        waiting_jobs=(seen.position - 1) if seen.position is not None else facts.waiting_jobs,
        position=seen.position,
        ahead=dict(seen.ahead),
        wait_range_seconds=seen.wait_range,
        wait_estimate_seconds=seen.wait_seconds,
        wait_sample=seen.basis,
        wait_basis=seen.wait_basis,
        cluster=msgspec.structs.replace(
            cluster,
            queue=queue,
            room=cluster.room or seen.room,
            unread=tuple(item for item in cluster.unread if item.what not in _BY_BROKER),
        ),
    )


def _knows_enough(facts: Facts) -> bool:
    # A job in a queue needs the broker even if the user may read nodes: Workloads of other namespaces decide.
    cluster = facts.cluster
    if cluster is None or cluster.room is None or not facts.room_known:
        return False
    return cluster.queue is None


def _with_failure(facts: Facts, error: MpiJobError) -> Facts:
    if facts.cluster is None:
        return facts
    failure = Unread(what="the fit broker", why=error.message, unknown="how the queue and the machines stand")
    cluster = msgspec.structs.replace(facts.cluster, unread=(*facts.cluster.unread, failure))
    return msgspec.structs.replace(facts, cluster=cluster)


def _read_ca(settings: Settings) -> str:
    if not settings.broker_ca:
        return ""
    try:
        with open(settings.broker_ca, encoding="ascii") as file:
            return file.read()
    except OSError as error:
        raise InvalidJob(f"broker_ca {settings.broker_ca}: {error.strerror}") from error
