"""Find, apply and delete any object of a cluster by its manifest.

Kinds are discovered from the API server, because the operator handles other projects' manifests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from mpijob.backends.kubernetes.client.api import PARTIAL, Api, ApiError
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.errors import BackendError
from mpijob.formats.kubernetes.metadata.well_known import Document

MANAGER = "mpijob-operator"
# On every object that the operator creates.
COMPONENT_LABEL = "mpijob.dev/component"
CRD = Kind(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
# Objects that others depend on are created first; webhooks, which could block others, are created last.
_CREATED_FIRST = ("Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "Role")
_CREATED_LAST = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "APIService")


class AppliedObject(NamedTuple):
    """Identifies an object; an entry of the inventory."""

    api: str
    kind: str
    namespace: str
    name: str


class ObjectClient:
    """Finds, applies and deletes objects of any kind through one API client."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self._kinds: dict[tuple[str, str], Kind] = {}

    def kind(self, api_version: str, name: str) -> Kind | None:
        """Return a kind as the cluster serves it; None if it does not."""
        # A kind that is missing is not cached: its CRD may be the next object that is applied.
        if (api_version, name) not in self._kinds:
            root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
            discovery = self.api.find(root) or {}
            for resource in discovery.get("resources") or ():
                if "/" not in resource["name"]:
                    kind = Kind(api_version, resource["kind"], resource["name"], bool(resource["namespaced"]))
                    self._kinds[api_version, resource["kind"]] = kind
        return self._kinds.get((api_version, name))

    def path(self, entry: AppliedObject) -> str | None:
        """Return the API path of an object; None if its kind is not served."""
        kind = self.kind(entry.api, entry.kind)
        return None if kind is None else kind.path(entry.namespace, entry.name)

    def apply(self, document: Mapping[str, Any]) -> Document:
        """Apply a manifest with server-side apply; fields of other managers stay."""
        entry = entry_of(document)
        path = self.path(entry)
        if path is None:
            raise BackendError(f"the cluster does not serve {entry.kind} ({entry.api}) yet")
        return self.api.patch(path, document, form="apply", manager=MANAGER, accept=PARTIAL)

    def find(self, entry: AppliedObject) -> Document | None:
        path = self.path(entry)
        return None if path is None else self.api.find(path)

    def remove(self, entry: AppliedObject, component: str) -> bool:
        """Delete an object that has the component's label; return whether none is left."""
        found = self.find(entry)
        if found is None or component_of(found) != component:
            return True
        path = self.path(entry)
        assert path is not None
        # With the uid: a new object of the same name may belong to somebody else.
        self.api.delete(path, uid=found["metadata"]["uid"])
        return False

    def instances(self, crd: Document) -> int:
        """Return the number of objects of a CRD in all namespaces."""
        spec = crd["spec"]
        version = next(served["name"] for served in spec["versions"] if served["served"])
        path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"
        try:
            return len(self.api.list(path).items)
        except ApiError as error:
            if error.status == 404:
                return 0
            raise


def with_component(document: Mapping[str, Any], component: str) -> Document:
    metadata = dict(document["metadata"])
    metadata["labels"] = {**(metadata.get("labels") or {}), COMPONENT_LABEL: component}
    return {**document, "metadata": metadata}


def component_of(document: Mapping[str, Any]) -> str:
    """Return the component of ours that an object belongs to, "" for other objects."""
    return str((document["metadata"].get("labels") or {}).get(COMPONENT_LABEL, ""))


def entry_of(document: Mapping[str, Any]) -> AppliedObject:
    metadata = document["metadata"]
    return AppliedObject(
        document["apiVersion"], document["kind"], metadata.get("namespace") or "", metadata["name"]
    )


def creation_order(documents: Iterable[Document]) -> list[Document]:
    """Return manifests in the order in which they can be applied."""
    return sorted(documents, key=lambda document: _rank(document["kind"]))


def _rank(kind: str) -> int:
    if kind in _CREATED_FIRST:
        return _CREATED_FIRST.index(kind)
    return 90 + _CREATED_LAST.index(kind) if kind in _CREATED_LAST else 50
