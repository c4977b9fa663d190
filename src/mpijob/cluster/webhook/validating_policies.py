"""The rules that an API server judges by itself (ValidatingAdmissionPolicy, CEL): they need no service of ours.

* `mpijob-labels`: the label by which a job's network policy knows its pods is given by the cluster's own engines, to
  what they make for a job; who writes it on a pod, or on anything that makes pods, would enter another job's network.
* `mpijob-identity`: whose a job is and which job it is (uid, name, attempt, owner, our annotation) is told by the
  authenticated user of its creation, and never added, changed or taken away later; a job's own runtime is frozen.
* `mpijob-fixed`: a created job is what it is; engines and queues may complete it, users may only let it rest.
* `mpijob-privileges`: a job's pods get nothing of the host.
* `mpijob-controller`: what our own controller may write at all, in any namespace.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from mpijob.cluster import trust
from mpijob.cluster.trust import Account
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document

API = "admissionregistration.k8s.io/v1"
NAMESPACE = "mpijob-system"
_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_SYSTEM = ("kube-system", "kube-public", "kube-node-lease", "mpijob-system")
_UID, _OWNER, _GROUPS = well_known.UID_LABEL, well_known.OWNER_LABEL, well_known.OWNER_GROUPS
_LABELS = (_UID, well_known.JOB_LABEL, well_known.ATTEMPT_LABEL, _OWNER, well_known.MANAGED_LABEL)
_NOTES = (_OWNER, _GROUPS, well_known.REST_ANNOTATION)
_TRAINJOBS = ("trainer.kubeflow.org", ["v1alpha1"], ["trainjobs"])
_RUNTIMES = ("trainer.kubeflow.org", ["v1alpha1"], ["trainingruntimes"])
_MPIJOBS = ("kubeflow.org", ["v2beta1"], ["mpijobs"])
_JOBS = [_TRAINJOBS, _MPIJOBS]
_MAKERS = [
    ("", ["v1"], ["pods", "replicationcontrollers"]),
    ("batch", ["v1"], ["jobs", "cronjobs"]),
    ("apps", ["v1"], ["deployments", "statefulsets", "daemonsets", "replicasets"]),
    ("jobset.x-k8s.io", ["v1alpha2"], ["jobsets"]),
]
_WRITTEN_BY_CONTROLLER = [
    ("", ["v1"], ["configmaps", "secrets", "pods"]),
    ("networking.k8s.io", ["v1"], ["networkpolicies"]),
    _RUNTIMES,
    *_JOBS,
]
Kinds = list[tuple[str, list[str], list[str]]]


class _Rule(NamedTuple):
    name: str
    kinds: Kinds
    operations: list[str]
    validations: list[Document]
    variables: dict[str, str] = {}
    everywhere: bool = False


def policies(engines: Iterable[Account] = trust.ENGINES, namespace: str = NAMESPACE) -> tuple[Document, ...]:
    """Return every policy with the binding that puts it to work.

    `engines` are the accounts that are trusted, `namespace` is where our own services are.
    """
    trusted = trust.expression(engines)
    return tuple(
        document for rule in _rules(namespace) for document in (_policy(rule, trusted), _binding(rule.name))
    )


def _rules(namespace: str) -> list[_Rule]:
    both = ["CREATE", "UPDATE"]
    return [
        _Rule("mpijob-labels", _MAKERS, both, _labels(), {"made": _made()}),
        _Rule("mpijob-identity", [*_JOBS, _RUNTIMES], both, _identity(), {"templates": _templates()}),
        _Rule("mpijob-fixed", _JOBS, ["UPDATE"], _fixed()),
        _Rule("mpijob-privileges", [_MPIJOBS, _RUNTIMES], both, _privileges(), {"templates": _templates()}),
        _Rule(
            "mpijob-controller",
            _WRITTEN_BY_CONTROLLER,
            [*both, "DELETE"],
            _controller(f"system:serviceaccount:{namespace}:mpijob-controller"),
            {"old": "request.operation == 'DELETE' ? oldObject : object"},
            everywhere=True,
        ),
    ]


def _of(value: str, field: str) -> str:
    """Return labels or annotations of something that may have none."""
    return f"(has({value}.metadata) && has({value}.metadata.{field}) ? {value}.metadata.{field} : {{}})"


# -- who gives the label of a job's network ------------------------------------------------------------
def _labels() -> list[Document]:
    message = (
        f"the label {_UID} lets pods into a job's network and is given by the engines alone, to what they make for "
        "the job (leave it out; a job's own pods get it by themselves)"
    )
    return [_validation(f"!({_marked()}) || ({_kept()}) || (variables.trusted && variables.made)", message)]


def _made() -> str:
    """Return whether an engine made an object for a job: its controller is what the engine makes it from."""
    makers = "{'Pod': ['Job', 'MPIJob'], 'Job': ['JobSet', 'MPIJob'], 'JobSet': ['TrainJob']}"
    return (
        f"object.kind in {makers} && has(object.metadata.ownerReferences) && "
        "object.metadata.ownerReferences.exists(one, has(one.controller) && one.controller && "
        f"one.kind in {makers}[object.kind])"
    )


def _marked() -> str:
    """Return whether an object, or the pods that it makes, carry the label of a job's network."""
    cron = "object.spec.jobTemplate.spec.template"
    inner = "job.template.spec.template"
    return " || ".join(
        (
            f"(object.kind == 'Pod' && '{_UID}' in {_of('object', 'labels')})",
            f"(has(object.spec.template) && '{_UID}' in {_of('object.spec.template', 'labels')})",
            f"(has(object.spec.jobTemplate) && '{_UID}' in {_of(cron, 'labels')})",
            "(has(object.spec.replicatedJobs) && object.spec.replicatedJobs.exists(job, "
            f"'{_UID}' in {_of(inner, 'labels')}))",
        )
    )


def _kept() -> str:
    """Return whether an update leaves the label of what the engines made as it is."""
    now, before = (_of(one, "labels") for one in ("object", "oldObject"))
    same = f"'{_UID}' in {now} && '{_UID}' in {before} && {now}['{_UID}'] == {before}['{_UID}']"
    return (
        f"request.operation == 'UPDATE' && ((object.kind == 'Pod' && {same})"
        " || (has(object.spec.template) && has(oldObject.spec.template)"
        " && object.spec.template.metadata == oldObject.spec.template.metadata)"
        " || (has(object.spec.replicatedJobs) && object.spec.replicatedJobs == oldObject.spec.replicatedJobs))"
    )


# -- whose a job is ------------------------------------------------------------------------------------
def _templates() -> str:
    """Return the pod templates of an MPIJob or of a runtime."""
    replicas = "object.spec.mpiReplicaSpecs"
    jobs = "object.spec.template.spec.replicatedJobs"
    return (
        f"has({replicas}) ? {replicas}.map(role, {replicas}[role].template) : "
        "(object.kind == 'TrainingRuntime' && has(object.spec.template) && has(object.spec.template.spec) && "
        f"has({jobs}) ? {jobs}.map(job, job.template.spec.template) : [])"
    )


def _identity() -> list[Document]:
    labels, notes = _of("object", "labels"), _of("object", "annotations")
    created = "request.operation != 'CREATE' || "
    groups = "(has(request.userInfo.groups) ? request.userInfo.groups : []).join('\\n')"
    own = "a job belongs to whoever creates it (leave mpijob.dev/owner and mpijob.dev/owner-groups out)"
    found = [
        _validation(
            f"{created}!('{_OWNER}' in {notes}) || {notes}['{_OWNER}'] == request.userInfo.username", own
        ),
        _validation(f"{created}!('{_GROUPS}' in {notes}) || {notes}['{_GROUPS}'] == {groups}", own),
        _validation(f"{created}!('{_UID}' in {labels}) || '{_OWNER}' in {notes}", own),
    ]
    for place, keys in (("labels", _LABELS), ("annotations", _NOTES)):
        now, before = _of("object", place), _of("oldObject", place)
        for key in keys:
            both = f"'{key}' in {now} && '{key}' in {before} && {now}['{key}'] == {before}['{key}']"
            neither = f"!('{key}' in {now}) && !('{key}' in {before})"
            message = f"{key} says which job this is and whose: it cannot be added, changed or removed"
            found.append(_validation(f"request.operation == 'CREATE' || ({both}) || ({neither})", message))
    old = _of("oldObject", "labels")
    found.append(
        _validation(
            f"request.operation == 'CREATE' || object.kind != 'TrainingRuntime' || !('{_UID}' in {old}) || "
            "object.spec == oldObject.spec",
            "the runtime of a job cannot be changed (clone the job with the change, or delete it)",
        )
    )
    return [*found, *_pods_identity(labels)]


def _pods_identity(labels: str) -> list[Document]:
    """Return the rules for pod templates: the job's own uid or none, and no label that an engine writes."""
    theirs = _of("pod", "labels")
    foreign = f"'{_UID}' in {theirs} && !('{_UID}' in {labels} && {theirs}['{_UID}'] == {labels}['{_UID}'])"
    engine = " || ".join(f"'{one}' in {theirs}" for one in well_known.ENGINE_NAMES.values())
    return [
        _validation(
            f"!variables.templates.exists(pod, {foreign})",
            f"pods carry the label {_UID} of another job (leave it out: it lets pods into that job's network)",
        ),
        _validation(
            f"!variables.templates.exists(pod, {engine})",
            "pods carry a label by which an engine names its jobs (leave it out: the engine writes it)",
        ),
    ]


# -- what does not change ------------------------------------------------------------------------------
_SCALED = (  # of an elastic job the number of workers may change, and nothing else
    "('Worker' in object.spec.mpiReplicaSpecs && 'Worker' in oldObject.spec.mpiReplicaSpecs"
    " && has(object.metadata.annotations)"
    f" && '{well_known.REST_ANNOTATION}' in object.metadata.annotations"
    f" && object.metadata.annotations['{well_known.REST_ANNOTATION}'].contains('\"elastic\":{{')"
    " && object.spec.mpiReplicaSpecs.all(role,"
    " object.spec.mpiReplicaSpecs[role].template == oldObject.spec.mpiReplicaSpecs[role].template"
    " && (role == 'Worker' || object.spec.mpiReplicaSpecs[role] == oldObject.spec.mpiReplicaSpecs[role]))"
    " && object.spec.mpiReplicaSpecs.size() == oldObject.spec.mpiReplicaSpecs.size())"
)


def _fixed() -> list[Document]:
    fields = (
        "trainer",
        "runtimeRef",
        "initializer",
        "mpiReplicaSpecs",
        "slotsPerWorker",
        "mpiImplementation",
    )
    found = []
    for field in fields:
        now, before = f"object.spec.{field}", f"oldObject.spec.{field}"
        same = f"{now} == {before}" if field != "mpiReplicaSpecs" else f"({now} == {before} || {_SCALED})"
        both = f"has({now}) && has({before}) && {same}"
        neither = f"!has({now}) && !has({before})"
        message = (
            f"spec.{field} cannot be changed: a job is what it was when it was created "
            "(clone it with the change, or delete it and create it anew)"
        )
        found.append(_validation(f"variables.trusted || ({both}) || ({neither})", message))
    return found


# -- what pods do not get ------------------------------------------------------------------------------
def _privileges() -> list[Document]:
    host = " || ".join(
        f"(has(pod.spec.{one}) && pod.spec.{one})" for one in ("hostNetwork", "hostPID", "hostIPC")
    )
    paths = "has(pod.spec.volumes) && pod.spec.volumes.exists(volume, has(volume.hostPath))"
    sysctls = (
        "has(pod.spec.securityContext) && has(pod.spec.securityContext.sysctls) && "
        "pod.spec.securityContext.sysctls.size() > 0"
    )
    words = {
        host: "the host's network, processes or memory",
        paths: "a directory of the host",
        sysctls: "settings of the kernel",
        _some_container(f"({_holds('privileged')})"): "a privileged container",
        _some_container(
            "(has(one.ports) && one.ports.exists(port, has(port.hostPort) && port.hostPort > 0))"
        ): "a port of the host",
        _some_container(
            "(has(one.securityContext) && has(one.securityContext.procMount) && "
            "one.securityContext.procMount != 'Default')"
        ): "another /proc than a container has",
        f"({_unconfined('pod.spec')}) || {_some_container(_unconfined('one'))}": "a container without seccomp",
    }
    return [
        _validation(
            f"variables.trusted || !variables.templates.exists(pod, has(pod.spec) && ({test}))",
            f"the job asks for {what}, which jobs do not get here (leave it out)",
        )
        for test, what in words.items()
    ]


def _holds(field: str) -> str:
    return f"has(one.securityContext) && has(one.securityContext.{field}) && one.securityContext.{field}"


def _unconfined(part: str) -> str:
    return (
        f"(has({part}.securityContext) && has({part}.securityContext.seccompProfile) && "
        f"{part}.securityContext.seccompProfile.type == 'Unconfined')"
    )


def _some_container(test: str) -> str:
    return " || ".join(
        f"(has(pod.spec.{field}) && pod.spec.{field}.exists(one, {test}))"
        for field in ("containers", "initContainers")
    )


# -- what our controller may write ---------------------------------------------------------------------
def _controller(account: str) -> list[Document]:
    """Return the rules for our controller: no ConfigMap, no Secret, no policy, pod or runtime of others."""
    ours = f"'{_UID}' in {_of('variables.old', 'labels')}"
    other = f"request.userInfo.username != '{account}' || "
    rules = {
        "ConfigMap": "false",
        "Secret": "false",
        "NetworkPolicy": f"{ours} && variables.old.metadata.name.endsWith('{well_known.NETWORK_SUFFIX}')",
        "Pod": f"request.operation == 'DELETE' && {ours}",
        "TrainingRuntime": f"request.operation != 'CREATE' && {ours}",
        "TrainJob": "request.operation != 'CREATE'",
        "MPIJob": "request.operation != 'CREATE'",
    }
    return [
        _validation(
            f"{other}request.kind.kind != '{kind}' || ({rule})",
            f"the controller of mpijob does not write this {kind}",
        )
        for kind, rule in rules.items()
    ]


# -- documents -----------------------------------------------------------------------------------------
def _validation(expression: str, message: str) -> Document:
    return {"expression": expression, "message": message, "reason": "Forbidden"}


def _matching(kinds: Kinds, operations: list[str]) -> list[Document]:
    return [
        {"apiGroups": [group], "apiVersions": versions, "resources": resources, "operations": operations}
        for group, versions, resources in kinds
    ]


def _policy(rule: _Rule, trusted: str) -> Document:
    system = {"key": _NAMESPACE_NAME, "operator": "NotIn", "values": list(_SYSTEM)}
    spared = {"key": f"{well_known.DOMAIN}/admission", "operator": "NotIn", "values": ["off"]}
    variables = {"trusted": trusted, **rule.variables}
    used = {name: one for name, one in variables.items() if f"variables.{name}" in str(rule.validations)}
    return {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": rule.name, "labels": {"app.kubernetes.io/part-of": "mpijob"}},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": {} if rule.everywhere else {"matchExpressions": [system, spared]},
                "resourceRules": _matching(rule.kinds, rule.operations),
            },
            "variables": [{"name": name, "expression": one} for name, one in used.items()],
            "validations": rule.validations,
        },
    }


def _binding(name: str) -> Document:
    return {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "mpijob"}},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
