"""Everything that must be known before a job is sent to a cluster, read side by side.

One round of reads answers nearly all; a second one is made only for what the first one shows to matter.
Every read may be refused: what is missing is named, the rest still judged. The judgement itself, and every
sentence about it, is in `admission`; what the planner needs beside it are the `ClusterContext`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from mpijob.backends.kubernetes.client import concurrent
from mpijob.backends.kubernetes.client.concurrent import ReadResults
from mpijob.backends.kubernetes.preflight import (
    image_pull,
    kueue_facts,
    namespace_policies,
    node_capacity,
    permissions,
    queries,
    quota,
)
from mpijob.backends.kubernetes.preflight.cache import PreflightCache
from mpijob.backends.kubernetes.preflight.context import ClusterContext
from mpijob.backends.kubernetes.preflight.permissions import Rights
from mpijob.backends.kubernetes.preflight.queries import ENGINES, Calls
from mpijob.errors import MpiJobError
from mpijob.formats.kubernetes import network_policy_check
from mpijob.formats.kubernetes.metadata import identity, well_known
from mpijob.formats.kubernetes.metadata.well_known import CANCELLED_ANNOTATION, Document, Gang
from mpijob.formats.sizing import engine_selection, node_fit
from mpijob.formats.sizing.engine_selection import Engine
from mpijob.model import Amounts, Facts, MPIJob
from mpijob.model.platform.cluster import Ask, ClusterFacts, NodeCapacity, QueueFacts, Unread
from mpijob.settings import Settings

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.client.api import Api
    from mpijob.backends.registry.image_exists import ImageLookup

PLAIN_USER = well_known.PLAIN_USER
_OVER = ("Complete", "Failed", "Succeeded")
_GANGS = {"Coscheduling": Gang.COSCHEDULING, "Volcano": Gang.VOLCANO}  # Kueue needs a queue, and no more


class PreflightResult(NamedTuple):
    """What admission judges over, and what the planner needs."""

    facts: Facts
    around: ClusterContext


def gather(
    api: Api,
    job: MPIJob,
    served: frozenset[str],
    settings: Settings,
    *,
    place: str = "this cluster",
    lately: PreflightCache | None = None,
    asker: ImageLookup | None = None,
) -> PreflightResult:
    """Return what the user of `api` is to know of a cluster for one job; `served` are its API versions.

    With `lately`, what changes seldom may be a few seconds old; `Facts.recalled` tells whether any of it is.
    """
    lately = PreflightCache() if lately is None else lately
    image = image_pull.begin(asker, api, job)
    seen, recalled = _asked(api, job, queries.first_round(api, job, served), lately)
    more, recalled_too = _asked(api, job, queries.second_round(api, job, seen, served), lately)
    seen.update(more)
    lack = _engines_lack(seen["rights"].value, served)
    usable, engine = _usable(job, served, lack)
    namespace = _namespace(job, seen)
    asks, lines, cores = quota.counted(
        job, _counted_as(engine), seen["quotas"].items, namespace.bounds, _class_name(job)
    )
    queue = _queue(job, seen, served)
    space, measured = _room(job, asks, seen, served)
    amounts = _amounts(job, queue, measured)
    facts = Facts(
        place=place,
        capacity=amounts[0] if amounts else Amounts(),
        free=amounts[1] if amounts else Amounts(),
        room_known=amounts is not None,
        waits_for_quota=queue is not None and queue.found,
        quota=quota.quota(lines, job, request_url=settings.quota_request_url),
        max_workers=settings.max_workers,
        may=_may(seen["rights"].value, engine),
        taken_names=_unfinished(job, seen),
        waiting_jobs=queue.waiting if queue else 0,
        recalled=recalled or recalled_too,
        cluster=msgspec.structs.replace(
            namespace,
            lacks=_lacks(job, seen["rights"].value, engine),
            engines_lack=lack,
            asks=asks,
            ceilings=tuple(line for line in lines if not quota.is_whole(line, job)),
            queue=queue,
            room=space,
            image=image_pull.end(image, seen["nodes"].items),
        ),
    )
    around = _surroundings(job, seen, usable, cores, facts)
    return PreflightResult(facts, msgspec.structs.replace(around, service_image=settings.service_image))


def _namespace(job: MPIJob, seen: ReadResults) -> ClusterFacts:
    """Return what is around a job in its namespace, whatever its engine, its queue and its size are."""
    return ClusterFacts(
        namespace=job.namespace,
        found=seen["namespace"].error is None or seen["namespace"].error.status != 404,
        bounds=quota.bounds(seen["ranges"].items),
        blocked=() if _isolates(job, seen) else _blocked(job, seen),
        claims=namespace_policies.claims(
            {name: seen[f"claim {name}"] for name in namespace_policies.claim_names(job)}
        ),
        priority_classes=_class_names(seen),
        pod_security=namespace_policies.security_level(seen["namespace"].value),
        inline_nfs=namespace_policies.wants_nfs(job) and not _nfs_driver(seen),
        mesh=namespace_policies.in_mesh(seen["namespace"].value),
        unread=(*concurrent.unread(seen, queries.meanings(job)), *_too_many(seen)),
    )


def _asked(api: Api, job: MPIJob, calls: Calls, lately: PreflightCache) -> tuple[ReadResults, bool]:
    """Return the answers to questions, and whether some of them were given before."""
    since, known = lately.now(), lately.recall(job.namespace, calls)
    told = concurrent.together({key: call for key, call in calls.items() if key not in known}, api.lanes())
    lately.keep(job.namespace, told, since=since)
    return ReadResults({key: known[key] if key in known else told[key] for key in calls}), bool(known)


def _engine(job: MPIJob, served: frozenset[str]) -> Engine | None:
    """Return the engine that the planner will choose; what it cannot choose it refuses itself."""
    try:
        return engine_selection.choose(job, served).engine
    except MpiJobError:
        return None


def _usable(
    job: MPIJob, served: frozenset[str], lack: Mapping[str, tuple[str, ...]]
) -> tuple[frozenset[str], Engine | None]:
    """Return what is served, less an engine that the user may not use while another may run the job."""
    refused = {ENGINES[Engine(name)].api for name, missing in lack.items() if missing}
    engine = _engine(job, served - refused)
    return (served - refused, engine) if engine else (served, _engine(job, served))


def _counted_as(engine: Engine | None) -> str:
    return f"{ENGINES[engine].plural}.{ENGINES[engine].group}" if engine else ""


def _class_name(job: MPIJob) -> str:
    return job.priority if isinstance(job.priority, str) and namespace_policies.wants_priority(job) else ""


def _queue(job: MPIJob, seen: ReadResults, served: frozenset[str]) -> QueueFacts | None:
    volcano = seen["volcano"]
    if volcano.value is not None:
        return QueueFacts(name=job.queue, behind="Volcano")
    if not queries.kueue_version(served) or seen["queues"].refused:
        return None
    cluster = seen["cluster_queues"]
    known = cluster.items if cluster.value is not None else None
    return kueue_facts.of(job, seen["queues"].items, known)


def _room(
    job: MPIJob, asks: tuple[Ask, ...], seen: ReadResults, served: frozenset[str]
) -> tuple[NodeCapacity | None, node_capacity.Measured | None]:
    if seen["nodes"].value is None:
        return None, None
    nodes = seen["nodes"].items
    return node_capacity.of(nodes, _all_pods(seen), job, asks, grows=node_fit.grows(nodes, served))


def _all_pods(seen: ReadResults) -> list[Document] | None:
    """Return the pods of all namespaces; None where they cannot be read or are too many to be counted."""
    listed = seen["pods"].value
    if listed is None or (listed.get("metadata") or {}).get("continue"):
        return None
    return list(listed.get("items") or ())


def _too_many(seen: ReadResults) -> tuple[Unread, ...]:
    if seen["pods"].value is None or _all_pods(seen) is not None:
        return ()
    what, unknown = queries.MEANINGS["pods"]
    return (Unread(what=what, why=f"more than {node_capacity.MOST_PODS}", unknown=unknown),)


def _amounts(
    job: MPIJob, queue: QueueFacts | None, measured: node_capacity.Measured | None
) -> tuple[Amounts, Amounts] | None:
    given = node_capacity.of_queue(queue, job) if queue is not None else None
    if measured is None or given is None:
        return given or ((measured.capacity, measured.free) if measured else None)
    return node_capacity.lesser(given[0], measured.capacity), node_capacity.lesser(given[1], measured.free)


def _may(found: Rights | None, engine: Engine | None) -> frozenset[str]:
    if found is None or engine is None:
        return Facts(place="", capacity=Amounts(), free=Amounts()).may
    return found.verbs(engine)


def _lacks(job: MPIJob, found: Rights | None, engine: Engine | None) -> tuple[str, ...]:
    if found is None or engine is None:
        return ()
    return found.lacking((*permissions.TO_CREATE[engine], *permissions.beside(job)))


def _engines_lack(found: Rights | None, served: frozenset[str]) -> dict[str, tuple[str, ...]]:
    there = [engine for engine, kind in ENGINES.items() if kind.api in served]
    return {engine.value: found.lacking(permissions.TO_CREATE[engine]) if found else () for engine in there}


def _mine(seen: ReadResults) -> list[Document]:
    """Return every engine's object that a job of this name has or had."""
    listed = [one for kind in ENGINES.values() for one in seen[f"{kind.plural} named"].items]
    plain = (seen[f"{kind.plural} plain"].value for kind in ENGINES.values())
    return [*listed, *(one for one in plain if one is not None)]


def _unfinished(job: MPIJob, seen: ReadResults) -> frozenset[str]:
    alive = [one for one in _mine(seen) if not _is_over(one)]
    return frozenset({job.name} if alive else ())


def _is_over(document: Document) -> bool:
    """Whether a job has ended, was ended, or is being deleted: its name may then be used again."""
    metadata = document["metadata"]
    if metadata.get("deletionTimestamp") or CANCELLED_ANNOTATION in (metadata.get("annotations") or {}):
        return True
    conditions = (document.get("status") or {}).get("conditions") or ()
    return any(one.get("type") in _OVER and one.get("status") == "True" for one in conditions)


def _isolates(job: MPIJob, seen: ReadResults) -> bool:
    """Whether the job brings a network policy: one opens all that it needs, whatever others close."""
    found: Rights | None = seen["rights"].value
    return job.network.isolated and found is not None and not found.lacking(permissions.NETWORK)


def _blocked(job: MPIJob, seen: ReadResults) -> tuple[Any, ...]:
    around = namespace_policies.labels(seen["namespace"].value)
    return network_policy_check.blocked(seen["policies"].items, job, namespace_labels=around)


def _class_names(seen: ReadResults) -> tuple[str, ...] | None:
    answer = seen["classes"]
    return namespace_policies.names(answer.items) if answer.value is not None else None


def _gang(seen: ReadResults) -> Gang:
    """Return who starts workers together by the namespace's limits, as far as this user may read them."""
    limits = seen["limits"].value
    told = ((limits or {}).get("spec") or {}).get("gang") or {}
    return _GANGS.get(str(told.get("kind", "")), Gang.NONE)


def _nfs_driver(seen: ReadResults) -> str:
    there = namespace_policies.names(seen["drivers"].items)
    return namespace_policies.NFS_DRIVER if namespace_policies.NFS_DRIVER in there else ""


def _surroundings(
    job: MPIJob,
    seen: ReadResults,
    served: frozenset[str],
    cores: float,
    facts: Facts,
) -> ClusterContext:
    cluster = facts.cluster
    assert cluster is not None
    openshift = any(api.startswith("security.openshift.io/") for api in served)
    kueue = bool(queries.kueue_version(served))
    volcano = cluster.queue is not None and cluster.queue.behind == "Volcano"
    classes = {one["metadata"]["name"]: int(one.get("value") or 0) for one in seen["workload_classes"].items}
    return ClusterContext(
        served=served,
        names=frozenset(one["metadata"]["name"] for one in _mine(seen)),
        last_run=max((identity.run_of(one["metadata"]) for one in _mine(seen)), default=0),
        openshift=openshift,
        user=None if openshift else PLAIN_USER,
        kueue=kueue and not volcano,
        gang=Gang.VOLCANO if volcano else _gang(seen),
        priority_classes=namespace_policies.priority_classes(cluster.priority_classes or ()),
        workload_priorities=classes,
        topology_aware=any((one.get("spec") or {}).get("topologyName") for one in seen["flavors"].items),
        prove_gpus=node_capacity.devices_are_real(seen["nodes"].items, job),
        ipc_lock=namespace_policies.wants_rdma(job) and cluster.pod_security in ("", "privileged") and not openshift,
        nfs_driver=_nfs_driver(seen),
        isolates=_isolates(job, seen),
        addresses=seen["addresses"].value or (),
        launcher_cores=cores,
    )  # fmt: skip
