"""Whom our controller may act as: the owners of jobs that it may have to start again, and nobody else.

An unlimited right to impersonate is the right to be anybody. So the operator, which is an administrator anyway, keeps
the controller's right as narrow as the work is: the users, groups and service accounts that own a job with retries
or one that waits for others, whose identity admission has noted and nobody can have forged. Components of the
cluster (`system:…`) are never among them.
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
_OURS = f"{well_known.MANAGED_LABEL}={well_known.MANAGED_BY},{well_known.UID_LABEL}"


def of_jobs(api: Api) -> list[Document]:
    """Return the metadata of every job that the controller may have to act for."""
    found: list[Document] = []
    for kind in (resources.TRAINJOB, resources.MPIJOB):
        try:
            found += api.list(kind.path(), labels=_OURS, accept=METADATA).items
        except ApiError as error:
            if error.status != 404:  # the cluster does not serve the kind
                raise
    return [one["metadata"] for one in found if _may_need_it(one["metadata"])]


def _may_need_it(metadata: Mapping[str, Any]) -> bool:
    notes = metadata.get("annotations") or {}
    uid = (metadata.get("labels") or {}).get(well_known.UID_LABEL, "")
    proved = job_uid.belongs_to(uid, metadata["namespace"], str(notes.get(well_known.OWNER_LABEL, "")))
    return proved and (
        '"retry":' in notes.get(well_known.REST_ANNOTATION, "") or well_known.AFTER_ANNOTATION in notes
    )


def documents(jobs: Iterable[Mapping[str, Any]], namespace: str) -> list[Document]:
    """Return the roles by which the controller in `namespace` may act as the owners of jobs."""
    owners = [one for one in map(impersonation.owner, jobs) if one is not None]
    accounts = sorted({one.user.removeprefix(_ACCOUNT) for one in owners if one.user.startswith(_ACCOUNT)})
    users = sorted({one.user for one in owners if not one.user.startswith(_ACCOUNT)})
    groups = sorted({group for one in owners for group in one.groups})
    rules = [_rule(plural, names) for plural, names in (("users", users), ("groups", groups)) if names]
    found = _bound("Cluster", "", rules, namespace)
    for home in sorted({one.partition(":")[0] for one in accounts} - {"kube-system", namespace}):
        names = [name for place, _, name in (one.partition(":") for one in accounts) if place == home]
        found += _bound("", home, [_rule("serviceaccounts", names)], namespace)
    return found


def _rule(plural: str, names: list[str]) -> Document:
    return {"apiGroups": [""], "resources": [plural], "verbs": ["impersonate"], "resourceNames": names}


def _bound(scope: str, home: str, rules: list[Document], namespace: str) -> list[Document]:
    """Return a role, of the cluster or of one namespace, and what gives it to the controller."""
    metadata = {"name": NAME, "labels": {"app.kubernetes.io/part-of": "mpijob"}}
    metadata |= {"namespace": home} if home else {}
    role = {"apiVersion": f"{_RBAC}/v1", "kind": f"{scope}Role", "metadata": metadata, "rules": rules}
    binding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{scope}RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": f"{scope}Role", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": "mpijob-controller", "namespace": namespace}],
    }
    return [role, binding]
