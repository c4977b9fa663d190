"""The rules that an API server judges by itself (ValidatingAdmissionPolicy, CEL): they need no service of ours.

* `mpijob-labels`: the label by which a job's network policy knows its pods is given by the cluster's controllers
  alone; who writes it on a pod, or on anything that makes pods, would enter another job's network.
* `mpijob-owner`: whose a job is, and its uid, do not change.
* `mpijob-fixed`: a created job is what it is; engines and queues may complete it, users may only let it rest.
* `mpijob-privileges`: a job's pods get nothing of the host.
"""

from __future__ import annotations

from mpijob.dialects import terms
from mpijob.dialects.incoming import TRUSTED_NAMESPACES, TRUSTED_USERS
from mpijob.dialects.terms import Document

API = "admissionregistration.k8s.io/v1"
_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_SYSTEM = ("kube-system", "kube-public", "kube-node-lease", "mpijob-system")
_ENGINES = "[" + ", ".join(f"'system:serviceaccounts:{name}'" for name in TRUSTED_NAMESPACES) + "]"
_USERS = "[" + ", ".join(f"'{name}'" for name in TRUSTED_USERS) + "]"
_TRUSTED = (
    f"request.userInfo.username in {_USERS} || "
    f"(has(request.userInfo.groups) && request.userInfo.groups.exists(one, one in {_ENGINES}))"
)
_UID, _OWNER = terms.UID_LABEL, terms.OWNER_LABEL
_JOBS = [
    ("trainer.kubeflow.org", ["v1alpha1"], ["trainjobs"]),
    ("kubeflow.org", ["v2beta1"], ["mpijobs"]),
]
_MAKERS = [
    ("", ["v1"], ["pods", "replicationcontrollers"]),
    ("batch", ["v1"], ["jobs", "cronjobs"]),
    ("apps", ["v1"], ["deployments", "statefulsets", "daemonsets", "replicasets"]),
    ("jobset.x-k8s.io", ["v1alpha2"], ["jobsets"]),
]
_SCALED = (  # of an elastic job the number of workers may change, and nothing else
    "('Worker' in object.spec.mpiReplicaSpecs && 'Worker' in oldObject.spec.mpiReplicaSpecs"
    " && has(object.metadata.annotations)"
    f" && '{terms.REST_ANNOTATION}' in object.metadata.annotations"
    f" && object.metadata.annotations['{terms.REST_ANNOTATION}'].contains('\"elastic\":{{')"
    " && object.spec.mpiReplicaSpecs.all(role,"
    " object.spec.mpiReplicaSpecs[role].template == oldObject.spec.mpiReplicaSpecs[role].template"
    " && (role == 'Worker' || object.spec.mpiReplicaSpecs[role] == oldObject.spec.mpiReplicaSpecs[role]))"
    " && object.spec.mpiReplicaSpecs.size() == oldObject.spec.mpiReplicaSpecs.size())"
)
_LABELS = f"(has(object.metadata.labels) ? object.metadata.labels : {{}}).exists(key, key == '{_UID}')"
_KEPT = (  # an update of what the engines made, which leaves the label as it is
    "(request.operation == 'UPDATE' && ("
    "(object.kind == 'Pod' && has(object.metadata.labels) && has(oldObject.metadata.labels)"
    f" && '{_UID}' in object.metadata.labels && '{_UID}' in oldObject.metadata.labels"
    f" && object.metadata.labels['{_UID}'] == oldObject.metadata.labels['{_UID}'])"
    " || (has(object.spec.template) && has(oldObject.spec.template)"
    " && object.spec.template.metadata == oldObject.spec.template.metadata)"
    " || (has(object.spec.replicatedJobs) && object.spec.replicatedJobs == oldObject.spec.replicatedJobs)))"
)
_TEMPLATE = (
    "has(object.spec.template) && has(object.spec.template.metadata) && has(object.spec.template.metadata.labels)"
    f" && object.spec.template.metadata.labels.exists(key, key == '{_UID}')"
)


def policies() -> tuple[Document, ...]:
    """Return every policy with the binding that puts it to work."""
    return tuple(
        document
        for name, rules, validations, variables in _rules()
        for document in (_policy(name, rules, validations, variables), _binding(name))
    )


def _rules() -> list[tuple[str, list[Document], list[Document], list[Document]]]:
    return [
        (
            "mpijob-labels",
            _matching(_MAKERS, ["CREATE", "UPDATE"]),
            [_validation(f"variables.trusted || {_KEPT} || !({_marked()})", _LABEL_SENTENCE)],
            [],
        ),
        ("mpijob-owner", _matching(_JOBS, ["UPDATE"]), _unowned(), []),
        ("mpijob-fixed", _matching(_JOBS, ["UPDATE"]), _fixed(), []),
        ("mpijob-privileges", _matching(_JOBS[1:], ["CREATE"]), _privileges(), [_pods_variable()]),
    ]


_LABEL_SENTENCE = (
    f"the label {_UID} lets pods into a job's network and is given by the engines alone "
    "(leave it out; a job's own pods get it by themselves)"
)


def _marked() -> str:
    """Return whether an object, or the pods that it makes, carry the label of a job's network."""
    cron = (
        "has(object.spec.jobTemplate) && has(object.spec.jobTemplate.spec.template.metadata) && "
        "has(object.spec.jobTemplate.spec.template.metadata.labels) && "
        f"object.spec.jobTemplate.spec.template.metadata.labels.exists(key, key == '{_UID}')"
    )
    jobset = (
        "has(object.spec.replicatedJobs) && object.spec.replicatedJobs.exists(job, "
        "has(job.template.spec.template.metadata) && has(job.template.spec.template.metadata.labels) && "
        f"job.template.spec.template.metadata.labels.exists(key, key == '{_UID}'))"
    )
    own = f"object.kind == 'Pod' && {_LABELS}"
    return " || ".join(f"({one})" for one in (own, _TEMPLATE, cron, jobset))


def _unowned() -> list[Document]:
    def same(place: str, key: str) -> str:
        now, before = (
            f"(has({one}.metadata.{place}) ? {one}.metadata.{place} : {{}})"
            for one in ("object", "oldObject")
        )
        absent = f"!('{key}' in {before})"
        return f"variables.trusted || {absent} || ('{key}' in {now} && {now}['{key}'] == {before}['{key}'])"

    message = "whose a job is, and its uid, cannot be changed (leave mpijob.dev/owner and mpijob.dev/uid as they are)"
    return [
        _validation(same("labels", _OWNER), message),
        _validation(same("annotations", _OWNER), message),
        _validation(same("labels", _UID), message),
    ]


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


def _pods_variable() -> Document:
    replicas = "object.spec.mpiReplicaSpecs"
    return {
        "name": "pods",
        "expression": f"['Launcher', 'Worker'].filter(role, role in {replicas} && has({replicas}[role].template.spec))"
        f".map(role, {replicas}[role].template.spec)",
    }


def _privileges() -> list[Document]:
    host = " || ".join(f"(has(pod.{one}) && pod.{one})" for one in ("hostNetwork", "hostPID", "hostIPC"))
    paths = "has(pod.volumes) && pod.volumes.exists(volume, has(volume.hostPath))"
    privileged = " || ".join(
        f"(has(pod.{field}) && pod.{field}.exists(one, has(one.securityContext) && "
        "has(one.securityContext.privileged) && one.securityContext.privileged))"
        for field in ("containers", "initContainers")
    )
    words = {
        host: "the host's network, processes or memory",
        paths: "a directory of the host",
        privileged: "a privileged container",
    }
    return [
        _validation(
            f"variables.trusted || !variables.pods.exists(pod, {test})",
            f"the job asks for {what}, which jobs do not get here (leave it out)",
        )
        for test, what in words.items()
    ]


def _validation(expression: str, message: str) -> Document:
    return {"expression": expression, "message": message, "reason": "Forbidden"}


def _matching(kinds: list[tuple[str, list[str], list[str]]], operations: list[str]) -> list[Document]:
    return [
        {"apiGroups": [group], "apiVersions": versions, "resources": resources, "operations": operations}
        for group, versions, resources in kinds
    ]


def _policy(
    name: str, rules: list[Document], validations: list[Document], variables: list[Document]
) -> Document:
    system = {"key": _NAMESPACE_NAME, "operator": "NotIn", "values": list(_SYSTEM)}
    spared = {"key": f"{terms.DOMAIN}/admission", "operator": "NotIn", "values": ["off"]}
    return {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "mpijob"}},
        "spec": {
            "failurePolicy": "Ignore" if name == "mpijob-privileges" else "Fail",
            "matchConstraints": {
                "namespaceSelector": {"matchExpressions": [system, spared]},
                "resourceRules": rules,
            },
            "variables": [{"name": "trusted", "expression": _TRUSTED}, *variables],
            "validations": validations,
        },
    }


def _binding(name: str) -> Document:
    return {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "mpijob"}},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
