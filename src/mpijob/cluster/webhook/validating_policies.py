"""Policies that the API server evaluates itself (ValidatingAdmissionPolicy, CEL), without any service of ours.

* `mpijob-labels`: the label by which a job's network policy selects its pods is set only by engines, on what
they create for a job; a user who sets it on a pod, or on anything that creates pods, would enter another
job's network.
* `mpijob-identity`: a job's identity (uid, name, attempt, owner, our annotation) is defined by the
authenticated user of its creation, and never added, changed or removed later; a job's own runtime is frozen.
* `mpijob-fixed`: a created job is immutable; engines and queues may complete it, users may only suspend it.
* `mpijob-privileges`: a job's pods have no access to the host.
* `mpijob-controller`: what our own controller may write at all, in any namespace.

Rules that need facts of the cluster are those of the webhook (`admission_review`).
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
_IDENTITY_LABELS = (_UID, well_known.JOB_LABEL, well_known.ATTEMPT_LABEL, _OWNER, well_known.MANAGED_LABEL)
_IDENTITY_ANNOTATIONS = (_OWNER, _GROUPS, well_known.REST_ANNOTATION)
_TRAINJOBS = ("trainer.kubeflow.org", ["v1alpha1"], ["trainjobs"])
_RUNTIMES = ("trainer.kubeflow.org", ["v1alpha1"], ["trainingruntimes"])
_MPIJOBS = ("kubeflow.org", ["v2beta1"], ["mpijobs"])
_JOBS = [_TRAINJOBS, _MPIJOBS]
_POD_CREATORS = [
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
    """Return every policy with its binding.

    `engines` are the trusted accounts, `namespace` is that of our services.
    """
    trusted = trust.trust_expression(engines)
    return tuple(
        document for rule in _rules(namespace) for document in (_policy(rule, trusted), _binding(rule.name))
    )


def _rules(namespace: str) -> list[_Rule]:
    create_update = ["CREATE", "UPDATE"]
    return [
        _Rule(
            "mpijob-labels", _POD_CREATORS, create_update, _label_rules(), {"by_engine": _created_by_engine()}
        ),
        _Rule(
            "mpijob-identity",
            [*_JOBS, _RUNTIMES],
            create_update,
            _identity_rules(),
            {"templates": _templates()},
        ),
        _Rule("mpijob-fixed", _JOBS, ["UPDATE"], _immutability_rules()),
        _Rule(
            "mpijob-privileges",
            [_MPIJOBS, _RUNTIMES],
            create_update,
            _privilege_rules(),
            {"templates": _templates()},
        ),
        _Rule(
            "mpijob-controller",
            _WRITTEN_BY_CONTROLLER,
            [*create_update, "DELETE"],
            _controller_rules(f"system:serviceaccount:{namespace}:mpijob-controller"),
            {"old": "request.operation == 'DELETE' ? oldObject : object"},
            everywhere=True,
        ),
    ]


def _metadata_map(value: str, field: str) -> str:
    """Return CEL for labels or annotations of an object that may have none."""
    return f"(has({value}.metadata) && has({value}.metadata.{field}) ? {value}.metadata.{field} : {{}})"


# -- mpijob-labels -------------------------------------------------------------------------------------
def _label_rules() -> list[Document]:
    message = (
        f"the label {_UID} lets pods into a job's network and is set only by engines, on what they create for "
        "the job (remove it; a job's own pods get it automatically)"
    )
    is_allowed = f"({_keeps_label()}) || (variables.trusted && variables.by_engine)"
    return [_validation(f"!({_has_network_label()}) || {is_allowed}", message)]


def _created_by_engine() -> str:
    """Return CEL: did an engine create the object for a job? Its owner reference names what it was created from."""
    owner_kinds = "{'Pod': ['Job', 'MPIJob'], 'Job': ['JobSet', 'MPIJob'], 'JobSet': ['TrainJob']}"
    return (
        f"object.kind in {owner_kinds} && has(object.metadata.ownerReferences) && "
        "object.metadata.ownerReferences.exists(owner, has(owner.controller) && owner.controller && "
        f"owner.kind in {owner_kinds}[object.kind])"
    )


def _has_network_label() -> str:
    """Return CEL: does the object, or do the pods that it creates, have the label of a job's network?"""
    cron = "object.spec.jobTemplate.spec.template"
    inner = "job.template.spec.template"
    return " || ".join(
        (
            f"(object.kind == 'Pod' && '{_UID}' in {_metadata_map('object', 'labels')})",
            f"(has(object.spec.template) && '{_UID}' in {_metadata_map('object.spec.template', 'labels')})",
            f"(has(object.spec.jobTemplate) && '{_UID}' in {_metadata_map(cron, 'labels')})",
            "(has(object.spec.replicatedJobs) && object.spec.replicatedJobs.exists(job, "
            f"'{_UID}' in {_metadata_map(inner, 'labels')}))",
        )
    )


def _keeps_label() -> str:
    """Return CEL: does an update keep the label that an engine set?"""
    new_labels, old_labels = _metadata_map("object", "labels"), _metadata_map("oldObject", "labels")
    is_same = (
        f"'{_UID}' in {new_labels} && '{_UID}' in {old_labels} && {new_labels}['{_UID}'] == "
        f"{old_labels}['{_UID}']"
    )
    return (
        f"request.operation == 'UPDATE' && ((object.kind == 'Pod' && {is_same})"
        " || (has(object.spec.template) && has(oldObject.spec.template)"
        " && object.spec.template.metadata == oldObject.spec.template.metadata)"
        " || (has(object.spec.replicatedJobs) && object.spec.replicatedJobs == oldObject.spec.replicatedJobs))"
    )


# -- mpijob-identity -----------------------------------------------------------------------------------
def _templates() -> str:
    """Return CEL for the pod templates of an MPIJob or of a runtime."""
    replicas = "object.spec.mpiReplicaSpecs"
    jobs = "object.spec.template.spec.replicatedJobs"
    return (
        f"has({replicas}) ? {replicas}.map(role, {replicas}[role].template) : "
        "(object.kind == 'TrainingRuntime' && has(object.spec.template) && has(object.spec.template.spec) && "
        f"has({jobs}) ? {jobs}.map(job, job.template.spec.template) : [])"
    )


def _identity_rules() -> list[Document]:
    labels, annotations = _metadata_map("object", "labels"), _metadata_map("object", "annotations")
    on_create = "request.operation != 'CREATE' || "
    groups = "(has(request.userInfo.groups) ? request.userInfo.groups : []).join('\\n')"
    owner_message = (
        "a job belongs to the user who creates it (remove mpijob.dev/owner and mpijob.dev/owner-groups)"
    )
    rules = [
        _validation(
            f"{on_create}!('{_OWNER}' in {annotations}) || {annotations}['{_OWNER}'] == request.userInfo.username",
            owner_message,
        ),
        _validation(
            f"{on_create}!('{_GROUPS}' in {annotations}) || {annotations}['{_GROUPS}'] == {groups}",
            owner_message,
        ),
        _validation(f"{on_create}!('{_UID}' in {labels}) || '{_OWNER}' in {annotations}", owner_message),
    ]
    for metadata_field, keys in (("labels", _IDENTITY_LABELS), ("annotations", _IDENTITY_ANNOTATIONS)):
        new_values, old_values = (
            _metadata_map("object", metadata_field),
            _metadata_map("oldObject", metadata_field),
        )
        for key in keys:
            is_unchanged = (
                f"'{key}' in {new_values} && '{key}' in {old_values} && {new_values}['{key}'] == "
                f"{old_values}['{key}']"
            )
            is_absent = f"!('{key}' in {new_values}) && !('{key}' in {old_values})"
            message = f"{key} identifies the job and its owner: it cannot be added, changed or removed"
            rules.append(
                _validation(f"request.operation == 'CREATE' || ({is_unchanged}) || ({is_absent})", message)
            )
    old_labels = _metadata_map("oldObject", "labels")
    rules.append(
        _validation(
            f"request.operation == 'CREATE' || object.kind != 'TrainingRuntime' || !('{_UID}' in {old_labels}) || "
            "object.spec == oldObject.spec",
            "the runtime of a job cannot be changed (clone the job with the change, or delete it)",
        )
    )
    return [*rules, *_pod_identity_rules(labels)]


def _pod_identity_rules(labels: str) -> list[Document]:
    """Return the rules for pod templates: the job's own uid or none, and no label that an engine sets."""
    pod_labels = _metadata_map("pod", "labels")
    has_foreign_uid = (
        f"'{_UID}' in {pod_labels} && !('{_UID}' in {labels} && {pod_labels}['{_UID}'] == {labels}['{_UID}'])"
    )
    engine_labels = well_known.ENGINE_NAMES.values()
    has_engine_label = " || ".join(f"'{label}' in {pod_labels}" for label in engine_labels)
    return [
        _validation(
            f"!variables.templates.exists(pod, {has_foreign_uid})",
            f"pods have the label {_UID} of another job (remove it: it lets pods into that job's network)",
        ),
        _validation(
            f"!variables.templates.exists(pod, {has_engine_label})",
            "pods have a label by which an engine names its jobs (remove it: the engine sets it)",
        ),
    ]


# -- mpijob-fixed --------------------------------------------------------------------------------------
# The number of workers of an elastic job may change, and nothing else.
_ONLY_SCALED = (
    "('Worker' in object.spec.mpiReplicaSpecs && 'Worker' in oldObject.spec.mpiReplicaSpecs"
    " && has(object.metadata.annotations)"
    f" && '{well_known.REST_ANNOTATION}' in object.metadata.annotations"
    f" && object.metadata.annotations['{well_known.REST_ANNOTATION}'].contains('\"elastic\":{{')"
    " && object.spec.mpiReplicaSpecs.all(role,"
    " object.spec.mpiReplicaSpecs[role].template == oldObject.spec.mpiReplicaSpecs[role].template"
    " && (role == 'Worker' || object.spec.mpiReplicaSpecs[role] == oldObject.spec.mpiReplicaSpecs[role]))"
    " && object.spec.mpiReplicaSpecs.size() == oldObject.spec.mpiReplicaSpecs.size())"
)


def _immutability_rules() -> list[Document]:
    fields = (
        "trainer",
        "runtimeRef",
        "initializer",
        "mpiReplicaSpecs",
        "slotsPerWorker",
        "mpiImplementation",
    )
    rules = []
    for field in fields:
        new_value, old_value = f"object.spec.{field}", f"oldObject.spec.{field}"
        is_same = (
            f"{new_value} == {old_value}"
            if field != "mpiReplicaSpecs"
            else f"({new_value} == {old_value} || {_ONLY_SCALED})"
        )
        is_unchanged = f"has({new_value}) && has({old_value}) && {is_same}"
        is_absent = f"!has({new_value}) && !has({old_value})"
        message = (
            f"spec.{field} is immutable: a job cannot be changed after its creation "
            "(clone it with the change, or delete and recreate it)"
        )
        rules.append(_validation(f"variables.trusted || ({is_unchanged}) || ({is_absent})", message))
    return rules


# -- mpijob-privileges ---------------------------------------------------------------------------------
def _privilege_rules() -> list[Document]:
    host = " || ".join(
        f"(has(pod.spec.{field}) && pod.spec.{field})" for field in ("hostNetwork", "hostPID", "hostIPC")
    )
    paths = "has(pod.spec.volumes) && pod.spec.volumes.exists(volume, has(volume.hostPath))"
    sysctls = (
        "has(pod.spec.securityContext) && has(pod.spec.securityContext.sysctls) && "
        "pod.spec.securityContext.sysctls.size() > 0"
    )
    descriptions = {
        host: "the host's network, processes or memory",
        paths: "a directory of the host",
        sysctls: "kernel parameters (sysctls)",
        _some_container(
            "(has(container.securityContext) && has(container.securityContext.privileged) && "
            "container.securityContext.privileged)"
        ): "a privileged container",
        _some_container(
            "(has(container.ports) && container.ports.exists(port, has(port.hostPort) && port.hostPort > 0))"
        ): "a port of the host",
        _some_container(
            "(has(container.securityContext) && has(container.securityContext.procMount) && "
            "container.securityContext.procMount != 'Default')"
        ): "an unmasked /proc",
        f"({_unconfined('pod.spec')}) || {_some_container(_unconfined('container'))}": (
            "a container without seccomp"
        ),
    }
    return [
        _validation(
            f"variables.trusted || !variables.templates.exists(pod, has(pod.spec) && ({test}))",
            f"the job requests {description}, which is not allowed for jobs here (remove it)",
        )
        for test, description in descriptions.items()
    ]


def _unconfined(part: str) -> str:
    return (
        f"(has({part}.securityContext) && has({part}.securityContext.seccompProfile) && "
        f"{part}.securityContext.seccompProfile.type == 'Unconfined')"
    )


def _some_container(test: str) -> str:
    return " || ".join(
        f"(has(pod.spec.{field}) && pod.spec.{field}.exists(container, {test}))"
        for field in ("containers", "initContainers")
    )


# -- mpijob-controller ---------------------------------------------------------------------------------
def _controller_rules(account: str) -> list[Document]:
    """Return the rules for our controller: no ConfigMap, no Secret, no policy, pod or runtime of others."""
    is_ours = f"'{_UID}' in {_metadata_map('variables.old', 'labels')}"
    is_other_user = f"request.userInfo.username != '{account}' || "
    rules = {
        "ConfigMap": "false",
        "Secret": "false",
        "NetworkPolicy": f"{is_ours} && variables.old.metadata.name.endsWith('{well_known.NETWORK_SUFFIX}')",
        "Pod": f"request.operation == 'DELETE' && {is_ours}",
        "TrainingRuntime": f"request.operation != 'CREATE' && {is_ours}",
        "TrainJob": "request.operation != 'CREATE'",
        "MPIJob": "request.operation != 'CREATE'",
    }
    return [
        _validation(
            f"{is_other_user}request.kind.kind != '{kind}' || ({rule})",
            f"the controller of mpijob may not write this {kind}",
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
    not_off = {"key": f"{well_known.DOMAIN}/admission", "operator": "NotIn", "values": ["off"]}
    variables = {"trusted": trusted, **rule.variables}
    used = {
        name: expression
        for name, expression in variables.items()
        if f"variables.{name}" in str(rule.validations)
    }
    return {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": rule.name, "labels": {"app.kubernetes.io/part-of": "mpijob"}},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": {} if rule.everywhere else {"matchExpressions": [system, not_off]},
                "resourceRules": _matching(rule.kinds, rule.operations),
            },
            "variables": [{"name": name, "expression": expression} for name, expression in used.items()],
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
