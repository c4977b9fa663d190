"""Service accounts in tests: with a token, with rights in a namespace, or with exactly the rights that are shipped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from tests.e2e.cluster.support import Place

from mpijob.backends.kubernetes.client.resources import Kind

ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
ROLE = Kind("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", namespaced=False)
BINDING = Kind("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False)
TEAM_BINDING = Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
_GROUP = "rbac.authorization.k8s.io"


def an_account(place: Place, name: str) -> str:
    """Make an account and return a token of it."""
    place.put(ACCOUNT, name)
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600},
    }
    made = place.api.create(ACCOUNT.path(place.namespace, name, "token"), body)
    return str(made["status"]["token"])


def allow(place: Place, name: str, of: Place, role: str = "data-scientist") -> None:
    """Let an account of a place work in a namespace."""
    subject = {"kind": "ServiceAccount", "name": name, "namespace": of.namespace}
    ref = {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role}
    place.put(TEAM_BINDING, name, roleRef=ref, subjects=[subject])


def kubeconfig_with(place: Place, name: str, token: str) -> Path:
    """Write the kubeconfig of whoever has a token, and return where it is."""
    config = yaml.safe_load(place.kubeconfig.read_text())
    config["users"] = [{"name": config["contexts"][0]["context"]["user"], "user": {"token": token}}]
    path = Path(place.settings.home) / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@contextmanager
def allowed_everywhere(place: Place, account: str, role: str, name: str) -> Iterator[None]:
    """Let an account of a place do in the whole cluster what a role allows; `name` is the binding's."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": place.namespace}
    ref = {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role}
    binding = {"apiVersion": BINDING.api, "kind": BINDING.name, "metadata": {"name": name}, "roleRef": ref}
    place.api.create(BINDING.path(), binding | {"subjects": [subject]})
    try:
        yield
    finally:
        place.api.delete(BINDING.path("", name))


@contextmanager
def shipped_account(place: Place, service: str, rights: Path) -> Iterator[Path]:
    """Make a service's account with exactly the rights that are shipped, and yield its kubeconfig."""
    name = place.namespace
    (role,) = (one for one in yaml.safe_load_all(rights.read_text()) if one["kind"] == "ClusterRole")
    token = an_account(place, service)
    place.api.create(ROLE.path(), role | {"metadata": {"name": name}})
    try:
        with allowed_everywhere(place, service, name, name):
            yield kubeconfig_with(place, service, token)
    finally:
        place.api.delete(ROLE.path("", name))
