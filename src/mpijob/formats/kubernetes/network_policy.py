"""The NetworkPolicy of a job: its pods reach each other, DNS and the job's destinations, nothing else.

Policies are additive, so a namespace that denies everything (`namespace_defaults`) needs no other rule.
`network_policy_check` decides whether a namespace's policies block a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mpijob.errors import InvalidJob
from mpijob.formats.kubernetes import trainjob
from mpijob.formats.kubernetes.metadata import passthrough, well_known
from mpijob.formats.kubernetes.metadata.well_known import Document, Shape
from mpijob.model import MPIJob
from mpijob.model.spec.network import Destination, Where, destinations

API, KIND = "networking.k8s.io/v1", "NetworkPolicy"
_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_NODE_LOCAL_DNS = "169.254.20.10/32"
# RFC 1918, RFC 6598, loopback and link-local addresses (the cloud's metadata service is among them).
_NOT_PUBLIC = (
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
)


def write(
    job: MPIJob,
    shape: Shape,
    *,
    kind: str = "TrainJob",
    more: Iterable[str] = (),
    monitoring: Iterable[str] = (),
) -> Document:
    """Return the policy of a job; `more` are destinations that are known from its secrets only.

    `kind` is the kind of the engine's object; pods of the namespaces `monitoring` may read the job's metrics.
    """
    name = well_known.name(job, shape)
    metadata = {
        "name": name + well_known.NETWORK_SUFFIX,
        "namespace": job.namespace,
        "labels": {
            well_known.MANAGED_LABEL: well_known.MANAGED_BY,
            well_known.JOB_LABEL: job.name,
            well_known.UID_LABEL: shape.uid,
        },
    }
    named = {one: one if "://" in one else f"tcp://{one}" for one in more}
    egress = destinations(job.network.egress, {**job.env, **named}, job.namespace)
    return _policy(metadata, _selector(kind, name, shape.uid), egress, monitoring)


def of_object(
    document: Mapping[str, Any],
    runtime: Mapping[str, Any] | None = None,
    *,
    allowed: Callable[[Destination], bool] = lambda one: True,
    monitoring: Iterable[str] = (),
) -> Document | None:
    """Return the policy of a TrainJob or MPIJob in the cluster, None if the job asks for none.

    For a job of ours it equals the policy of `write`, less the destinations that are not `allowed`; another job is
    selected by its engine's label. Variables of a TrainJob may be in its `runtime`.
    """
    metadata = document["metadata"]
    labels = metadata.get("labels") or {}
    if not _annotated_job(metadata).network.isolated:
        return None
    uid, name = labels.get(well_known.UID_LABEL, ""), metadata["name"]
    selector = _selector(document["kind"], name, uid)
    marks = {
        well_known.MANAGED_LABEL: well_known.MANAGED_BY,
        well_known.JOB_LABEL: labels.get(well_known.JOB_LABEL) or name,
    }
    policy_metadata = {
        "name": name + well_known.NETWORK_SUFFIX,
        "namespace": metadata["namespace"],
        "labels": marks | ({well_known.UID_LABEL: uid} if uid else {}),
    }
    wanted = egress(document, runtime)
    return _policy(policy_metadata, selector, filter(allowed, wanted), monitoring)


def egress(document: Mapping[str, Any], runtime: Mapping[str, Any] | None = None) -> tuple[Destination, ...]:
    """Return the destinations of a TrainJob's or MPIJob's pods, named in its annotation and in its variables."""
    metadata = document["metadata"]
    words = _annotated_job(metadata).network.egress
    return destinations(words, _variables(document, runtime), metadata["namespace"])


def _selector(kind: str, name: str, uid: str) -> dict[str, str]:
    # The engine writes the first label itself from the name of its object, and no second object can have that name;
    # the uid distinguishes a later job of the same name. MPI uses random ports, so ports cannot be the boundary.
    return {well_known.ENGINE_NAMES[kind]: name} | ({well_known.UID_LABEL: uid} if uid else {})


def namespace_defaults(namespace: str) -> tuple[Document, ...]:
    """Return the policies of a namespace for jobs: deny all traffic, allow DNS."""
    labels = {well_known.MANAGED_LABEL: well_known.MANAGED_BY}
    deny = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    names = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [_dns()]}
    return tuple(
        {
            "apiVersion": API,
            "kind": KIND,
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": spec,
        }
        for name, spec in (("mpijob-deny-all", deny), ("mpijob-allow-dns", names))
    )


def _annotated_job(metadata: Mapping[str, Any]) -> MPIJob:
    """Return the job with its annotation's network fields; the closed default if the annotation cannot be read."""
    plain = MPIJob(name=metadata.get("name") or "", namespace=metadata["namespace"])
    try:
        job = passthrough.annotated_job(plain, metadata.get("annotations") or {})
        destinations(job.network.egress, {}, job.namespace)
    except (InvalidJob, ValueError):
        return plain
    return job


def _variables(document: Mapping[str, Any], runtime: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the variables with a value that an engine's object and its runtime set."""
    spec = document.get("spec") or {}
    replicas = (spec.get("mpiReplicaSpecs") or {}).values()
    pods = [replica.get("template") or {} for replica in replicas] + [
        *trainjob.pod_templates(runtime).values()
    ]
    containers = [container for pod in pods for container in (pod.get("spec") or {}).get("containers") or ()]
    named = [*((spec.get("trainer") or {}).get("env") or ())]
    named += [variable for container in containers for variable in container.get("env") or ()]
    return {name["name"]: str(name["value"]) for name in named if name.get("value")}


def _policy(
    metadata: Document, selector: Mapping[str, str], egress: Iterable[Destination], monitoring: Iterable[str]
) -> Document:
    own = {"podSelector": {"matchLabels": dict(selector)}}
    ingress: list[Document] = [{"from": [own]}]
    if scrapers := [_namespace(namespace) for namespace in monitoring]:
        ingress.append({"from": scrapers})
    return {
        "apiVersion": API,
        "kind": KIND,
        "metadata": metadata,
        "spec": {
            "podSelector": {"matchLabels": dict(selector)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": [{"to": [own]}, _dns(), *(_opened(destination) for destination in egress)],
        },
    }


def _dns() -> Document:
    # Kubernetes (CoreDNS), OpenShift (whose DNS pods listen on 5353), and NodeLocal DNSCache, which has a link-local
    # address.
    plain = _namespace("kube-system") | {"podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}}
    peers = [plain, _namespace("openshift-dns"), {"ipBlock": {"cidr": _NODE_LOCAL_DNS}}]
    ports = [{"protocol": protocol, "port": port} for port in (53, 5353) for protocol in ("UDP", "TCP")]
    return {"to": peers, "ports": ports}


def _namespace(name: str) -> Document:
    return {"namespaceSelector": {"matchLabels": {_NAMESPACE_NAME: name}}}


def _opened(one: Destination) -> Document:
    if one.where is Where.NAMESPACE:
        return {"to": [_namespace(one.value)]}
    block: Document = {"cidr": one.value}
    if one.where is Where.INTERNET:
        block = {"cidr": "0.0.0.0/0", "except": list(_NOT_PUBLIC)}
    rule: Document = {"to": [{"ipBlock": block}]}
    if one.port is not None:
        rule["ports"] = [{"protocol": protocol, "port": one.port} for protocol in ("TCP", "UDP")]
    return rule
