"""Reads everything that must be known before a job is sent to a cluster, concurrently.

A first round of reads covers nearly everything; the second reads only what the first shows to matter. Every
read may be refused: what is missing is named, and the rest is still checked. `admission` decides and has the
messages; `ClusterContext` is what the planner needs besides.
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
# Kueue starts the pods of a job together by itself.
_GANGS = {"Coscheduling": Gang.COSCHEDULING, "Volcano": Gang.VOLCANO}


class PreflightResult(NamedTuple):
    """The facts for admission, and the context for the planner."""

    facts: Facts
    around: ClusterContext


def gather(
    api: Api,
    job: MPIJob,
    served: frozenset[str],
    settings: Settings,
    *,
    place: str = "this cluster",
    cache: PreflightCache | None = None,
    lookup: ImageLookup | None = None,
) -> PreflightResult:
    """Return the facts about a cluster for one job of the user of `api`; `served` are its API versions.

    With `cache`, facts that change rarely may be a few seconds old; `Facts.recalled` is whether any of them are.
    """
    cache = PreflightCache() if cache is None else cache
    # The registry is the slowest: it is asked while the cluster is read.
    image = image_pull.start(lookup, api, job)
    reads, recalled = _read(api, job, queries.first_round(api, job, served), cache)
    second_reads, recalled_too = _read(api, job, queries.second_round(api, job, reads, served), cache)
    reads.update(second_reads)
    engines_lack = _engines_lack(reads["rights"].value, served)
    usable, engine = _usable(job, served, engines_lack)
    namespace = _namespace(job, reads)
    asks, lines, cores = quota.counted(
        job, _counted_as(engine), reads["quotas"].items, namespace.bounds, _class_name(job)
    )
    queue = _queue(job, reads, served)
    space, measured = _capacity(job, asks, reads, served)
    amounts = _amounts(job, queue, measured)
    facts = Facts(
        place=place,
        capacity=amounts[0] if amounts else Amounts(),
        free=amounts[1] if amounts else Amounts(),
        room_known=amounts is not None,
        waits_for_quota=queue is not None and queue.found,
        quota=quota.quota(lines, job, request_url=settings.quota_request_url),
        max_workers=settings.max_workers,
        may=_may(reads["rights"].value, engine),
        taken_names=_unfinished(job, reads),
        waiting_jobs=queue.waiting if queue else 0,
        recalled=recalled or recalled_too,
        cluster=msgspec.structs.replace(
            namespace,
            lacks=_lacks(job, reads["rights"].value, engine),
            engines_lack=engines_lack,
            asks=asks,
            ceilings=tuple(line for line in lines if not quota.is_whole(line, job)),
            queue=queue,
            room=space,
            image=image_pull.finish(image, reads["nodes"].items),
        ),
    )
    around = _context(job, reads, usable, cores, facts)
    return PreflightResult(facts, msgspec.structs.replace(around, service_image=settings.service_image))


def _namespace(job: MPIJob, reads: ReadResults) -> ClusterFacts:
    """Return the facts about the namespace, which do not depend on engine, queue and size."""
    return ClusterFacts(
        namespace=job.namespace,
        found=reads["namespace"].error is None or reads["namespace"].error.status != 404,
        bounds=quota.bounds(reads["ranges"].items),
        blocked=() if _isolates(job, reads) else _blocked(job, reads),
        claims=namespace_policies.claims(
            {name: reads[f"claim {name}"] for name in namespace_policies.claim_names(job)}
        ),
        priority_classes=_class_names(reads),
        pod_security=namespace_policies.security_level(reads["namespace"].value),
        inline_nfs=namespace_policies.wants_nfs(job) and not _nfs_driver(reads),
        mesh=namespace_policies.in_mesh(reads["namespace"].value),
        unread=(*concurrent.unread(reads, queries.meanings(job)), *_too_many(reads)),
    )


def _read(api: Api, job: MPIJob, calls: Calls, cache: PreflightCache) -> tuple[ReadResults, bool]:
    """Return the results of the reads, and whether some are from the cache."""
    since, known = cache.now(), cache.recall(job.namespace, calls)
    results = concurrent.together({key: call for key, call in calls.items() if key not in known}, api.lanes())
    cache.keep(job.namespace, results, since=since)
    return ReadResults({key: known[key] if key in known else results[key] for key in calls}), bool(known)


def _engine(job: MPIJob, served: frozenset[str]) -> Engine | None:
    """Return the engine that the planner will choose; None if the planner will refuse the job."""
    try:
        return engine_selection.choose(job, served).engine
    except MpiJobError:
        return None


def _usable(
    job: MPIJob, served: frozenset[str], engines_lack: Mapping[str, tuple[str, ...]]
) -> tuple[frozenset[str], Engine | None]:
    """Return the served APIs without an engine that the user may not use, if another one can run the job."""
    refused = {ENGINES[Engine(name)].api for name, missing in engines_lack.items() if missing}
    engine = _engine(job, served - refused)
    return (served - refused, engine) if engine else (served, _engine(job, served))


def _counted_as(engine: Engine | None) -> str:
    return f"{ENGINES[engine].plural}.{ENGINES[engine].group}" if engine else ""


def _class_name(job: MPIJob) -> str:
    return job.priority if isinstance(job.priority, str) and namespace_policies.wants_priority(job) else ""


def _queue(job: MPIJob, reads: ReadResults, served: frozenset[str]) -> QueueFacts | None:
    volcano = reads["volcano"]
    if volcano.value is not None:
        return QueueFacts(name=job.queue, behind="Volcano")
    if not queries.kueue_version(served) or reads["queues"].refused:
        return None
    cluster = reads["cluster_queues"]
    known = cluster.items if cluster.value is not None else None
    return kueue_facts.of(job, reads["queues"].items, known)


def _capacity(
    job: MPIJob, asks: tuple[Ask, ...], reads: ReadResults, served: frozenset[str]
) -> tuple[NodeCapacity | None, node_capacity.Measured | None]:
    if reads["nodes"].value is None:
        return None, None
    nodes = reads["nodes"].items
    return node_capacity.of(nodes, _all_pods(reads), job, asks, grows=node_fit.grows(nodes, served))


def _all_pods(reads: ReadResults) -> list[Document] | None:
    """Return the pods of all namespaces; None if they cannot be read or are too many to count."""
    listed = reads["pods"].value
    if listed is None or (listed.get("metadata") or {}).get("continue"):
        return None
    return list(listed.get("items") or ())


def _too_many(reads: ReadResults) -> tuple[Unread, ...]:
    if reads["pods"].value is None or _all_pods(reads) is not None:
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
    return found.lacking((*permissions.TO_CREATE[engine], *permissions.additional(job)))


def _engines_lack(found: Rights | None, served: frozenset[str]) -> dict[str, tuple[str, ...]]:
    there = [engine for engine, kind in ENGINES.items() if kind.api in served]
    return {engine.value: found.lacking(permissions.TO_CREATE[engine]) if found else () for engine in there}


def _objects_of_name(reads: ReadResults) -> list[Document]:
    """Return the engine objects that a job of this name has or had."""
    listed = [item for kind in ENGINES.values() for item in reads[f"{kind.plural} named"].items]
    plain = (reads[f"{kind.plural} plain"].value for kind in ENGINES.values())
    return [*listed, *(item for item in plain if item is not None)]


def _unfinished(job: MPIJob, reads: ReadResults) -> frozenset[str]:
    alive = [item for item in _objects_of_name(reads) if not _is_over(item)]
    return frozenset({job.name} if alive else ())


def _is_over(document: Document) -> bool:
    """Return whether a job has ended, was cancelled, or is being deleted: its name can be used again then."""
    metadata = document["metadata"]
    if metadata.get("deletionTimestamp") or CANCELLED_ANNOTATION in (metadata.get("annotations") or {}):
        return True
    conditions = (document.get("status") or {}).get("conditions") or ()
    return any(
        condition.get("type") in _OVER and condition.get("status") == "True" for condition in conditions
    )


def _isolates(job: MPIJob, reads: ReadResults) -> bool:
    # NetworkPolicies add up: the job's own opens what it needs, whatever others close.
    found: Rights | None = reads["rights"].value
    return job.network.isolated and found is not None and not found.lacking(permissions.NETWORK)


def _blocked(job: MPIJob, reads: ReadResults) -> tuple[Any, ...]:
    around = namespace_policies.labels(reads["namespace"].value)
    return network_policy_check.blocked(reads["policies"].items, job, namespace_labels=around)


def _class_names(reads: ReadResults) -> tuple[str, ...] | None:
    answer = reads["classes"]
    return namespace_policies.names(answer.items) if answer.value is not None else None


def _gang(reads: ReadResults) -> Gang:
    """Return the gang scheduler of the namespace's limits, as far as this user may read them."""
    limits = reads["limits"].value
    results = ((limits or {}).get("spec") or {}).get("gang") or {}
    return _GANGS.get(str(results.get("kind", "")), Gang.NONE)


def _nfs_driver(reads: ReadResults) -> str:
    there = namespace_policies.names(reads["drivers"].items)
    return namespace_policies.NFS_DRIVER if namespace_policies.NFS_DRIVER in there else ""


def _context(
    job: MPIJob,
    reads: ReadResults,
    served: frozenset[str],
    cores: float,
    facts: Facts,
) -> ClusterContext:
    cluster = facts.cluster
    assert cluster is not None
    # OpenShift assigns the user ID of pods itself (SecurityContextConstraints).
    openshift = any(api.startswith("security.openshift.io/") for api in served)
    kueue = bool(queries.kueue_version(served))
    volcano = cluster.queue is not None and cluster.queue.behind == "Volcano"
    classes = {
        item["metadata"]["name"]: int(item.get("value") or 0) for item in reads["workload_classes"].items
    }
    return ClusterContext(
        served=served,
        names=frozenset(document["metadata"]["name"] for document in _objects_of_name(reads)),
        last_run=max((identity.run_of(document["metadata"]) for document in _objects_of_name(reads)), default=0),
        openshift=openshift,
        user=None if openshift else PLAIN_USER,
        kueue=kueue and not volcano,
        gang=Gang.VOLCANO if volcano else _gang(reads),
        priority_classes=namespace_policies.priority_classes(cluster.priority_classes or ()),
        workload_priorities=classes,
        topology_aware=any((flavor.get("spec") or {}).get("topologyName") for flavor in reads["flavors"].items),
        prove_gpus=node_capacity.devices_are_real(reads["nodes"].items, job),
        ipc_lock=namespace_policies.wants_rdma(job) and cluster.pod_security in ("", "privileged") and not openshift,
        nfs_driver=_nfs_driver(reads),
        isolates=_isolates(job, reads),
        addresses=reads["addresses"].value or (),
        launcher_cores=cores,
    )  # fmt: skip
