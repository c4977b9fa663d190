"""Where pods may run: a job's `Placement` ⇄ selectors, tolerations and affinity of its pods."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from mpijob.formats.kubernetes.metadata.well_known import (
    JOB_LABEL,
    RACK_LABELS,
    ROLE_LABEL,
    TOPOLOGY_ANNOTATION,
    ZONE_LABEL,
    Document,
    Shape,
)
from mpijob.model import MPIJob, Placement, Role, Topology
from mpijob.model.status.records import NodePlace

_HOST_KEY = "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHT = 100


def pod_fields(job: MPIJob, shape: Shape, role: Role) -> Document:
    """Return the fields of a pod's spec about its placement."""
    requested = job.placement
    fields: Document = {}
    if requested.node_selector:
        fields["nodeSelector"] = dict(requested.node_selector)
    if requested.tolerations:
        fields["tolerations"] = [dict(toleration) for toleration in requested.tolerations]
    affinity = _excluding(copy.deepcopy(dict(requested.affinity)), requested.exclude_nodes)
    if role is Role.WORKER and requested.topology is Topology.SPREAD:
        fields["topologySpreadConstraints"] = [_spread(job)]
    # The launcher is not packed: it starts after the workers, and needs no fast network.
    elif role is Role.WORKER and (key := packing_key(job, shape)):
        affinity = _packed(affinity, _term(job, key))
    return fields | ({"affinity": affinity} if affinity else {})


def pod_annotations(job: MPIJob, shape: Shape, role: Role) -> dict[str, str]:
    """Return the request for Kueue's topology-aware scheduling, if the cluster's queue has it."""
    key = packing_key(job, shape)
    return {TOPOLOGY_ANNOTATION: key} if key and shape.topology_aware and role is Role.WORKER else {}


def packing_key(job: MPIJob, shape: Shape) -> str:
    """Return the node label whose value packed workers should share, "" if they are not packed."""
    keys = {
        Topology.PACKED_NODE: _HOST_KEY,
        Topology.PACKED_RACK: shape.rack_key,
        Topology.PACKED_ZONE: ZONE_LABEL,
    }
    return keys.get(job.placement.topology, "")


def _workers(job: MPIJob) -> Document:
    return {"matchLabels": {JOB_LABEL: job.name, ROLE_LABEL: Role.WORKER.value}}


def _term(job: MPIJob, key: str) -> Document:
    return {"weight": _WEIGHT, "podAffinityTerm": {"topologyKey": key, "labelSelector": _workers(job)}}


def _spread(job: MPIJob) -> Document:
    return {
        "maxSkew": 1,
        "topologyKey": _HOST_KEY,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": _workers(job),
    }


def _packed(affinity: Document, term: Document) -> Document:
    own = dict(affinity.get("podAffinity") or {})
    own[_PREFERRED] = [*(own.get(_PREFERRED) or []), term]
    return affinity | {"podAffinity": own}


def _excluding(affinity: Document, nodes: tuple[str, ...]) -> Document:
    # In every term: terms are alternatives, and one without the exclusion would allow the node.
    if not nodes:
        return affinity
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    own = dict(affinity.get("nodeAffinity") or {})
    terms = (own.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    merged = [term | {"matchFields": [*(term.get("matchFields") or []), *fields]} for term in terms]
    own[_REQUIRED] = {"nodeSelectorTerms": merged}
    return affinity | {"nodeAffinity": own}


def read(pod: Mapping[str, Any], shape: Shape) -> Placement:
    """Return the placement that a worker's pod spec asks for, as far as a job can express it."""
    affinity = copy.deepcopy(dict(pod.get("affinity") or {}))
    affinity, nodes = _without_excluded(affinity)
    affinity, topology = _without_packing(affinity)
    if any(_is_our_spread(constraint) for constraint in pod.get("topologySpreadConstraints") or ()):
        topology = Topology.SPREAD
    return Placement(
        node_selector=dict(pod.get("nodeSelector") or {}),
        exclude_nodes=nodes,
        tolerations=tuple(dict(toleration) for toleration in pod.get("tolerations") or ()),
        affinity=affinity,
        topology=topology,
    )


def _is_our_spread(constraint: Mapping[str, Any]) -> bool:
    labels = (constraint.get("labelSelector") or {}).get("matchLabels") or {}
    return constraint.get("topologyKey") == _HOST_KEY and JOB_LABEL in labels


def _without_excluded(affinity: Document) -> tuple[Document, tuple[str, ...]]:
    terms = ((affinity.get("nodeAffinity") or {}).get(_REQUIRED) or {}).get("nodeSelectorTerms") or []
    shared = [_excluded(term) for term in terms]
    if not shared or not shared[0] or any(one != shared[0] for one in shared):
        return affinity, ()
    kept = [_stripped(term) for term in terms]
    if any(kept):
        affinity["nodeAffinity"][_REQUIRED]["nodeSelectorTerms"] = kept
    else:
        del affinity["nodeAffinity"][_REQUIRED]
        if not affinity["nodeAffinity"]:
            del affinity["nodeAffinity"]
    return affinity, shared[0]


def _excluded(term: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(field["values"][0] for field in term.get("matchFields") or () if _excludes_one(field))


def _excludes_one(field: Mapping[str, Any]) -> bool:
    parts = (field.get("key"), field.get("operator"), len(field.get("values") or ()))
    return parts == ("metadata.name", "NotIn", 1)


def _stripped(term: Mapping[str, Any]) -> Document:
    fields = [field for field in term.get("matchFields") or () if not _excludes_one(field)]
    rest = {key: value for key, value in term.items() if key != "matchFields"}
    return rest | ({"matchFields": fields} if fields else {})


def _without_packing(affinity: Document) -> tuple[Document, Topology]:
    terms = list((affinity.get("podAffinity") or {}).get(_PREFERRED) or [])
    if not terms or not _is_ours(terms[-1]):
        return affinity, Topology.ANY
    key = terms.pop()["podAffinityTerm"]["topologyKey"]
    own = {name: value for name, value in affinity["podAffinity"].items() if name != _PREFERRED}
    own |= {_PREFERRED: terms} if terms else {}
    affinity = {name: value for name, value in affinity.items() if name != "podAffinity"}
    found = {_HOST_KEY: Topology.PACKED_NODE, ZONE_LABEL: Topology.PACKED_ZONE}
    return affinity | ({"podAffinity": own} if own else {}), found.get(key, Topology.PACKED_RACK)


def _is_ours(term: Mapping[str, Any]) -> bool:
    selector = (term.get("podAffinityTerm") or {}).get("labelSelector") or {}
    return JOB_LABEL in (selector.get("matchLabels") or {})


def node_place(name: str, labels: Mapping[str, str]) -> NodePlace:
    rack = next((labels[key] for key in RACK_LABELS if labels.get(key)), "")
    return NodePlace(name, labels.get(ZONE_LABEL, ""), rack)
