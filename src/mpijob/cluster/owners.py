"""RBAC for impersonation: the owners of jobs that the controller may have to recreate, and nobody else.

An unlimited right to impersonate allows acting as anybody. So the operator, which is an administrator anyway,
keeps the controller's permission minimal: the users, groups and service accounts that own a job with retries
or with dependencies, whose identity was recorded by admission and cannot be forged. Components of the cluster
(`system:…`) are never included (docs/decisions/0049).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mpijob.backends.kubernetes.auth import impersonation
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import METADATA, Api, ApiError
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.model import job_uid

NAME = "mpijob-controller-owners"
_RBAC = "rbac.authorization.k8s.io"
_ACCOUNT = "system:serviceaccount:"
_SELECTOR = f"{well_known.MANAGED_LABEL}={well_known.MANAGED_BY},{well_known.UID_LABEL}"


def jobs_to_recreate(api: Api) -> list[Document]:
    """Return the metadata of every job that the controller may have to recreate."""
    jobs: list[Document] = []
    for kind in (resources.TRAINJOB, resources.MPIJOB):
        try:
            # Metadata is enough, and much smaller than thousands of jobs.
            jobs += api.list(kind.path(), labels=_SELECTOR, accept=METADATA).items
        except ApiError as error:
            # 404: the cluster does not serve the kind.
            if error.status != 404:
                raise
    return [job["metadata"] for job in jobs if _may_be_recreated(job["metadata"])]


def _may_be_recreated(metadata: Mapping[str, Any]) -> bool:
    annotations = metadata.get("annotations") or {}
    uid = (metadata.get("labels") or {}).get(well_known.UID_LABEL, "")
    # The uid contains a digest of namespace and owner, so a copied owner annotation does not match it.
    is_verified = job_uid.belongs_to(
        uid, metadata["namespace"], str(annotations.get(well_known.OWNER_LABEL, ""))
    )
    return is_verified and (
        '"retry":' in annotations.get(well_known.REST_ANNOTATION, "")
        or well_known.AFTER_ANNOTATION in annotations
    )


def rbac_documents(jobs: Iterable[Mapping[str, Any]], namespace: str) -> list[Document]:
    """Return the RBAC objects with which the controller in `namespace` may impersonate the owners of jobs."""
    owners = [owner for owner in map(impersonation.owner, jobs) if owner is not None]
    accounts = sorted(
        {owner.user.removeprefix(_ACCOUNT) for owner in owners if owner.user.startswith(_ACCOUNT)}
    )
    users = sorted({owner.user for owner in owners if not owner.user.startswith(_ACCOUNT)})
    groups = sorted({group for owner in owners for group in owner.groups})
    rules = [_rule(plural, names) for plural, names in (("users", users), ("groups", groups)) if names]
    objects = _role_and_binding("Cluster", "", rules, namespace)
    # Service accounts are namespaced: a Role there, never for those of the control plane or of our services.
    for account_namespace in sorted(
        {owner.partition(":")[0] for owner in accounts} - {"kube-system", namespace}
    ):
        names = [
            name for ns, _, name in (owner.partition(":") for owner in accounts) if ns == account_namespace
        ]
        objects += _role_and_binding("", account_namespace, [_rule("serviceaccounts", names)], namespace)
    return objects


def _rule(plural: str, names: list[str]) -> Document:
    return {"apiGroups": [""], "resources": [plural], "verbs": ["impersonate"], "resourceNames": names}


def _role_and_binding(
    scope: str, role_namespace: str, rules: list[Document], namespace: str
) -> list[Document]:
    """Return a Role or ClusterRole and its binding to the controller."""
    metadata = {"name": NAME, "labels": {"app.kubernetes.io/part-of": "mpijob"}}
    metadata |= {"namespace": role_namespace} if role_namespace else {}
    role = {"apiVersion": f"{_RBAC}/v1", "kind": f"{scope}Role", "metadata": metadata, "rules": rules}
    binding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{scope}RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": f"{scope}Role", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": "mpijob-controller", "namespace": namespace}],
    }
    return [role, binding]
