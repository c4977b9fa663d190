"""Accounts that the API server need not ask the webhook about: exact accounts of controllers and engines.

Namespaces are never trusted: users run code in many of them, and a namespace that does not exist today can be
created by a tenant tomorrow. An engine's account must have the exact name chosen at installation, and a
permission that only the engine has: to write the status of its own objects in all namespaces. The API server
checks both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

_ACCOUNT = "system:serviceaccount:"


class Account(NamedTuple):
    """The service account of an engine, and the kind of object whose status it writes."""

    namespace: str
    name: str
    group: str
    plural: str

    @property
    def user(self) -> str:
        """The account's user name in the API server."""
        return f"{_ACCOUNT}{self.namespace}:{self.name}"


def _accounts(name: str, group: str, plural: str, *namespaces: str) -> tuple[Account, ...]:
    return tuple(Account(namespace, name, group, plural) for namespace in namespaces)


JOBSET = ("jobset-controller-manager", "jobset.x-k8s.io", "jobsets")
TRAINER = ("kubeflow-trainer-controller-manager", "trainer.kubeflow.org", "trainjobs")
KUEUE = ("kueue-controller-manager", "kueue.x-k8s.io", "workloads")
MPI_OPERATOR = ("mpi-operator", "kubeflow.org", "mpijobs")
# The namespaces used by the engines' own manifests, Kubeflow, Open Data Hub and OpenShift AI. The operator replaces
# them with the accounts that it finds.
ENGINES = (
    *_accounts(*JOBSET, "jobset-system", "openshift-jobset-operator"),
    *_accounts(*TRAINER, "kubeflow-system", "kubeflow", "opendatahub", "redhat-ods-applications"),
    *_accounts(*KUEUE, "kueue-system", "openshift-kueue-operator"),
    *_accounts(*MPI_OPERATOR, "mpi-operator", "kubeflow"),
)
# By the names of their Deployments.
_STATUS_KINDS = {engine[0]: engine[1:] for engine in (JOBSET, TRAINER, KUEUE, MPI_OPERATOR)}
# The control plane creates the pods of Jobs; its accounts are in a namespace that exists on every cluster.
CONTROL_PLANE = ("system:kube-controller-manager", f"{_ACCOUNT}kube-system:job-controller")


def accounts_of(deployments: Iterable[Mapping[str, Any]]) -> tuple[Account, ...]:
    """Return the accounts of engines from their Deployments, in any namespace."""
    accounts = []
    for deployment in deployments:
        metadata, pod = deployment["metadata"], deployment["spec"]["template"]["spec"]
        kind = _STATUS_KINDS.get(metadata["name"])
        if kind is not None:
            accounts.append(Account(metadata["namespace"], pod.get("serviceAccountName") or "default", *kind))
    return tuple(sorted(accounts))


def trust_expression(engines: Iterable[Account] = ENGINES) -> str:
    """Return a CEL expression: is the request from the control plane or an engine?"""
    users = ", ".join(f"'{account}'" for account in CONTROL_PLANE)
    rights = ", ".join(f"'{account.user}': ['{account.group}', '{account.plural}']" for account in engines)
    is_control_plane = f"request.userInfo.username in [{users}]"
    if not rights:
        return is_control_plane
    entry = f"{{{rights}}}[request.userInfo.username]"
    may_write_status = (
        f"authorizer.group({entry}[0]).resource({entry}[1]).subresource('status').check('update').allowed()"
    )
    return f"{is_control_plane} || (request.userInfo.username in {{{rights}}} && {may_write_status})"
