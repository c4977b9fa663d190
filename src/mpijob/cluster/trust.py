"""Whom an API server need not ask us about: exact accounts of the cluster's own controllers and engines.

A namespace is never trusted: users run code in many of them, and a name that is absent today can be taken by a tenant
tomorrow. An engine's account must have the exact name that was chosen at install, and must hold a right that only
the engine has: to write the status of its own objects in every namespace. Both are judged by the API server itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

_ACCOUNT = "system:serviceaccount:"


class Account(NamedTuple):
    """An engine's account, and the kind of object whose status it writes."""

    namespace: str
    name: str
    group: str
    plural: str

    @property
    def user(self) -> str:
        """The account as the API server names it."""
        return f"{_ACCOUNT}{self.namespace}:{self.name}"


def _accounts(name: str, group: str, plural: str, *namespaces: str) -> tuple[Account, ...]:
    return tuple(Account(one, name, group, plural) for one in namespaces)


JOBSET = ("jobset-controller-manager", "jobset.x-k8s.io", "jobsets")
TRAINER = ("kubeflow-trainer-controller-manager", "trainer.kubeflow.org", "trainjobs")
KUEUE = ("kueue-controller-manager", "kueue.x-k8s.io", "workloads")
MPI_OPERATOR = ("mpi-operator", "kubeflow.org", "mpijobs")
# Where the engines' own manifests, Kubeflow, Open Data Hub and OpenShift AI put them. An operator of ours that finds
# them elsewhere, or finds some of them absent, writes what it found instead.
ENGINES = (
    *_accounts(*JOBSET, "jobset-system", "openshift-jobset-operator"),
    *_accounts(*TRAINER, "kubeflow-system", "kubeflow", "opendatahub", "redhat-ods-applications"),
    *_accounts(*KUEUE, "kueue-system", "openshift-kueue-operator"),
    *_accounts(*MPI_OPERATOR, "mpi-operator", "kubeflow"),
)
_RIGHTS = {one[0]: one[1:] for one in (JOBSET, TRAINER, KUEUE, MPI_OPERATOR)}  # by their Deployments' names
# The control plane makes the pods of Jobs; its accounts are in a namespace that exists on every cluster.
CONTROL_PLANE = ("system:kube-controller-manager", f"{_ACCOUNT}kube-system:job-controller")


def of_deployments(deployments: Iterable[Mapping[str, Any]]) -> tuple[Account, ...]:
    """Return the accounts of engines by their Deployments, whatever namespace they are in."""
    found = []
    for one in deployments:
        metadata, pod = one["metadata"], one["spec"]["template"]["spec"]
        right = _RIGHTS.get(metadata["name"])
        if right is not None:
            found.append(Account(metadata["namespace"], pod.get("serviceAccountName") or "default", *right))
    return tuple(sorted(found))


def expression(engines: Iterable[Account] = ENGINES) -> str:
    """Return, in CEL, whether one of the cluster's own controllers or engines asks."""
    users = ", ".join(f"'{one}'" for one in CONTROL_PLANE)
    rights = ", ".join(f"'{one.user}': ['{one.group}', '{one.plural}']" for one in engines)
    asks = f"request.userInfo.username in [{users}]"
    if not rights:
        return asks
    own = f"{{{rights}}}[request.userInfo.username]"
    writes = f"authorizer.group({own}[0]).resource({own}[1]).subresource('status').check('update').allowed()"
    return f"{asks} || (request.userInfo.username in {{{rights}}} && {writes})"
