"""Where pods may run: selectors, tolerations, excluded machines, workers close together or apart; and back.

The job says it in its own words (`Placement`); nothing here asks whether there is room.
"""

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
    """Return what a pod's spec says about its place.

    The launcher shares the image, so it shares selector and taints; only workers are packed or spread.
    """
    wanted = job.placement
    fields: Document = {}
    if wanted.node_selector:
        fields["nodeSelector"] = dict(wanted.node_selector)
    if wanted.tolerations:
        fields["tolerations"] = [dict(toleration) for toleration in wanted.tolerations]
    affinity = _excluding(copy.deepcopy(dict(wanted.affinity)), wanted.exclude_nodes)
    if role is Role.WORKER and wanted.topology is Topology.SPREAD:
        fields["topologySpreadConstraints"] = [_spread(job)]
    elif role is Role.WORKER and (key := packing_key(job, shape)):
        affinity = _packed(affinity, _term(job, key))
    return fields | ({"affinity": affinity} if affinity else {})


def pod_annotations(job: MPIJob, shape: Shape, role: Role) -> dict[str, str]:
    """Return the request for Kueue's topology-aware scheduling, where the cluster's queue has it."""
    key = packing_key(job, shape)
    return {TOPOLOGY_ANNOTATION: key} if key and shape.topology_aware and role is Role.WORKER else {}


def packing_key(job: MPIJob, shape: Shape) -> str:
    """Return the label of the machines that packed workers are to share, or ""."""
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
    mine = dict(affinity.get("podAffinity") or {})
    mine[_PREFERRED] = [*(mine.get(_PREFERRED) or []), term]
    return affinity | {"podAffinity": mine}


def _excluding(affinity: Document, nodes: tuple[str, ...]) -> Document:
    """Add the machines to every term: terms are alternatives, and one without them would let a machine in."""
    if not nodes:
        return affinity
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    mine = dict(affinity.get("nodeAffinity") or {})
    terms = (mine.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    merged = [term | {"matchFields": [*(term.get("matchFields") or []), *fields]} for term in terms]
    mine[_REQUIRED] = {"nodeSelectorTerms": merged}
    return affinity | {"nodeAffinity": mine}


def read(pod: Mapping[str, Any], shape: Shape) -> Placement:
    """Return the placement that a worker's pod spec asks for, as far as a job has words for it."""
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
    said = (field.get("key"), field.get("operator"), len(field.get("values") or ()))
    return said == ("metadata.name", "NotIn", 1)


def _stripped(term: Mapping[str, Any]) -> Document:
    fields = [field for field in term.get("matchFields") or () if not _excludes_one(field)]
    rest = {key: value for key, value in term.items() if key != "matchFields"}
    return rest | ({"matchFields": fields} if fields else {})


def _without_packing(affinity: Document) -> tuple[Document, Topology]:
    terms = list((affinity.get("podAffinity") or {}).get(_PREFERRED) or [])
    if not terms or not _is_ours(terms[-1]):
        return affinity, Topology.ANY
    key = terms.pop()["podAffinityTerm"]["topologyKey"]
    mine = {name: value for name, value in affinity["podAffinity"].items() if name != _PREFERRED}
    mine |= {_PREFERRED: terms} if terms else {}
    affinity = {name: value for name, value in affinity.items() if name != "podAffinity"}
    found = {_HOST_KEY: Topology.PACKED_NODE, ZONE_LABEL: Topology.PACKED_ZONE}
    return affinity | ({"podAffinity": mine} if mine else {}), found.get(key, Topology.PACKED_RACK)


def _is_ours(term: Mapping[str, Any]) -> bool:
    selector = (term.get("podAffinityTerm") or {}).get("labelSelector") or {}
    return JOB_LABEL in (selector.get("matchLabels") or {})


def node_place(name: str, labels: Mapping[str, str]) -> NodePlace:
    """Return where a node stands by its labels."""
    rack = next((labels[key] for key in RACK_LABELS if labels.get(key)), "")
    return NodePlace(name, labels.get(ZONE_LABEL, ""), rack)
