"""Whether a namespace's network policies block connections that a job's pods need.

What cannot be decided from here (an address block, another namespace's labels) counts as open, so that there are no
false warnings. Nothing in the API says whether the cluster's network enforces policies at all; `admission` mentions
that.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any

import msgspec

from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document, Shape
from mpijob.formats.sizing.node_fit import holds
from mpijob.model import MPIJob, Role
from mpijob.model.platform.cluster import Blocked, Flow

_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_INGRESS, _EGRESS = "Ingress", "Egress"
# Linux's default range of ephemeral ports (ip_local_port_range).
_ANY_PORT = (32768, 60999)
_PRIVATE = tuple(
    ipaddress.ip_network(net)
    for net in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
)


class Open(IntEnum):
    """Whether a connection is allowed; MAYBE if that cannot be decided here."""

    NO = 0
    MAYBE = 1
    YES = 2


class Pod(msgspec.Struct, frozen=True):
    """A pod as policies see it; `partly` if labels of its namespace or itself are unknown."""

    labels: Mapping[str, str]
    namespace: str
    namespace_labels: Mapping[str, str]
    partly: bool = False


class Port(msgspec.Struct, frozen=True):
    """One port, or a range of which any may be used."""

    protocol: str
    first: int
    last: int
    name: str = ""


class _Connection(msgspec.Struct, frozen=True):
    flow: Flow
    sender: Pod
    receivers: tuple[Pod, ...]
    ports: tuple[Port, ...]
    words: str


_SSH = Port("TCP", well_known.SSH_PORT, well_known.SSH_PORT, "ssh")
_DATA = Port("TCP", *_ANY_PORT)
_NAMES = (Port("UDP", 53, 53, "dns"), Port("UDP", 5353, 5353, "dns"))


def blocked(
    policies: Iterable[Document], job: MPIJob, *, namespace_labels: Mapping[str, str] | None = None
) -> tuple[Blocked, ...]:
    """Return the connections that policies block; `namespace_labels` are None if they could not be read."""
    known = tuple(policies)
    found = (_closed(connection, known) for connection in _connections(job, namespace_labels))
    return tuple(one for one in found if one is not None)


def _connections(job: MPIJob, namespace_labels: Mapping[str, str] | None) -> Iterator[_Connection]:
    worker, launcher = (_pod(job, role, namespace_labels) for role in (Role.WORKER, Role.LAUNCHER))
    yield _Connection(Flow.SSH, launcher, (worker,), (_SSH,), "from the launcher to the workers")
    yield _Connection(Flow.DATA, worker, (worker,), (_DATA,), "between workers")
    yield _Connection(Flow.DATA, worker, (launcher,), (_DATA,), "from the workers to the launcher")
    yield _Connection(Flow.DNS, launcher, _name_servers(), _NAMES, "from the launcher to the cluster's DNS")


def _pod(job: MPIJob, role: Role, namespace_labels: Mapping[str, str] | None) -> Pod:
    part = "node" if role is Role.WORKER else "launcher"
    engine = {
        "jobset.sigs.k8s.io/jobset-name": job.name,
        "jobset.sigs.k8s.io/replicatedjob-name": part,
        "training.kubeflow.org/job-name": job.name,
        "training.kubeflow.org/job-role": role.value,
        "training.kubeflow.org/operator-name": "mpi-operator",
    }
    labels = well_known.labels(job, Shape()) | {well_known.ROLE_LABEL: role.value} | engine
    around = {_NAMESPACE_NAME: job.namespace} | dict(namespace_labels or {})
    return Pod(labels, job.namespace, around, partly=namespace_labels is None)


def _name_servers() -> tuple[Pod, ...]:
    plain = Pod({"k8s-app": "kube-dns"}, "kube-system", {_NAMESPACE_NAME: "kube-system"}, partly=True)
    openshift = Pod(
        {"dns.operator.openshift.io/daemonset-dns": "default"},
        "openshift-dns",
        {_NAMESPACE_NAME: "openshift-dns"},
        partly=True,
    )
    return plain, openshift


def _closed(connection: _Connection, policies: tuple[Document, ...]) -> Blocked | None:
    # A connection needs the sender's egress and the receiver's ingress. A pod that no policy selects is open; one
    # that some select may do what any of them allows. Ingress of the DNS pods is the cluster's business.
    out = _selecting(policies, connection.sender, _EGRESS)
    if out and not _open(out, connection.receivers, connection.ports, "egress", "to"):
        return Blocked(flow=connection.flow, policies=_named(out), direction=connection.words)
    for receiver in connection.receivers if connection.flow is not Flow.DNS else ():
        into = _selecting(policies, receiver, _INGRESS)
        if into and not _open(into, (connection.sender,), connection.ports, "ingress", "from"):
            return Blocked(flow=connection.flow, policies=_named(into), direction=connection.words)
    return None


def _named(policies: Iterable[Document]) -> tuple[str, ...]:
    return tuple(sorted(policy["metadata"]["name"] for policy in policies))


def _selecting(policies: Iterable[Document], pod: Pod, direction: str) -> list[Document]:
    return [
        policy
        for policy in policies
        if direction in _directions(policy["spec"])
        and _selects(policy["spec"].get("podSelector") or {}, pod.labels, partly=False) is Open.YES
    ]


def _directions(spec: Mapping[str, Any]) -> tuple[str, ...]:
    if spec.get("policyTypes"):
        return tuple(spec["policyTypes"])
    return (_INGRESS, _EGRESS) if spec.get("egress") else (_INGRESS,)


def _open(
    policies: Iterable[Document], peers: tuple[Pod, ...], ports: tuple[Port, ...], field: str, key: str
) -> bool:
    rules = [(rule, policy) for policy in policies for rule in policy["spec"].get(field) or ()]
    return any(
        _port_open(rule.get("ports"), port) and _peer_open(rule.get(key), peer, policy) is not Open.NO
        for rule, policy in rules
        for peer in peers
        for port in ports
    )


def _port_open(allowed: list[Mapping[str, Any]] | None, port: Port) -> bool:
    if not allowed:
        return True
    return any(_covers(port_, port) for port_ in allowed)


def _covers(allowed: Mapping[str, Any], port: Port) -> bool:
    if (allowed.get("protocol") or "TCP") != port.protocol:
        return False
    first = allowed.get("port")
    if first is None:
        return True
    if isinstance(first, str):
        return first == port.name
    return int(first) <= port.first and port.last <= int(allowed.get("endPort") or first)


def _peer_open(peers: list[Mapping[str, Any]] | None, pod: Pod, policy: Document) -> Open:
    if not peers:
        return Open.YES
    return max(_peer(peer, pod, policy) for peer in peers)


def _peer(peer: Mapping[str, Any], pod: Pod, policy: Document) -> Open:
    if "ipBlock" in peer:
        return _block(str(peer["ipBlock"].get("cidr", "")))
    policy_namespace = policy["metadata"].get("namespace") or pod.namespace
    if peer.get("namespaceSelector") is None:
        there = Open.YES if pod.namespace == policy_namespace else Open.NO
    else:
        there = _selects(peer["namespaceSelector"], pod.namespace_labels, partly=pod.partly)
    if peer.get("podSelector") is None:
        return there
    foreign = pod.partly and pod.namespace != policy_namespace
    return min(there, _selects(peer["podSelector"], pod.labels, partly=foreign))


def _block(cidr: str) -> Open:
    """Whether an address block may contain pods: only if it overlaps a private range."""
    try:
        net = ipaddress.ip_network(cidr, strict=False)
    except ValueError:
        return Open.MAYBE
    inside = any(net.version == network.version and net.overlaps(network) for network in _PRIVATE)
    return Open.MAYBE if inside else Open.NO


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str], *, partly: bool) -> Open:
    """Return whether a selector matches; with `partly` a label that is not known may be there after all."""
    rules = [
        {"key": key, "operator": "In", "values": [value]}
        for key, value in (selector.get("matchLabels") or {}).items()
    ]
    rules += selector.get("matchExpressions") or ()
    verdicts = [_requirement(rule, labels, partly) for rule in rules]
    return min(verdicts, default=Open.YES)


def _requirement(rule: Mapping[str, Any], labels: Mapping[str, str], partly: bool) -> Open:
    if partly and rule.get("key") not in labels:
        return Open.MAYBE
    return Open.YES if holds(rule, labels) else Open.NO
