"""Any object of a cluster by its document: where it is, made as it is wanted, taken away again.

Which kinds there are is asked of the API server, because the operator handles other people's manifests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from mpijob.backends.kubernetes.client.api import PARTIAL, Api, ApiError
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.errors import BackendError
from mpijob.formats.kubernetes.metadata.well_known import Document

MANAGER = "mpijob-operator"
COMPONENT_LABEL = "mpijob.dev/component"  # on everything that the operator made
CRD = Kind(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
# What others need comes first; what would be in the way of others goes first.
_FIRST = ("Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "Role")
_LAST = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "APIService")


class AppliedObject(NamedTuple):
    """How the inventory remembers an object."""

    api: str
    kind: str
    namespace: str
    name: str


class Objects:
    """Handles documents through one API client."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self._kinds: dict[tuple[str, str], Kind] = {}

    def kind(self, api_version: str, name: str) -> Kind | None:
        """Return a kind as the cluster serves it, None for one that it does not."""
        if (api_version, name) not in self._kinds:
            root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
            found = self.api.find(root) or {}
            for one in found.get("resources") or ():
                if "/" not in one["name"]:
                    kind = Kind(api_version, one["kind"], one["name"], bool(one["namespaced"]))
                    self._kinds[api_version, one["kind"]] = kind
        return self._kinds.get((api_version, name))

    def path(self, entry: AppliedObject) -> str | None:
        """Return where an object is; None where its kind is not served."""
        kind = self.kind(entry.api, entry.kind)
        return None if kind is None else kind.path(entry.namespace, entry.name)

    def apply(self, document: Mapping[str, Any]) -> Document:
        """Make an object as the document says, beside what others manage of it."""
        entry = entry_of(document)
        path = self.path(entry)
        if path is None:
            raise BackendError(f"the cluster does not serve {entry.kind} of {entry.api} yet")
        return self.api.patch(path, document, form="apply", manager=MANAGER, accept=PARTIAL)

    def find(self, entry: AppliedObject) -> Document | None:
        """Return an object, if it is there."""
        path = self.path(entry)
        return None if path is None else self.api.find(path)

    def remove(self, entry: AppliedObject, component: str) -> bool:
        """Delete an object that bears the component's mark; return whether nothing of ours is left there."""
        found = self.find(entry)
        if found is None or mark_of(found) != component:
            return True
        path = self.path(entry)
        assert path is not None
        self.api.delete(path, uid=found["metadata"]["uid"])
        return False

    def instances(self, crd: Document) -> int:
        """Return how many objects of a definition there are."""
        spec = crd["spec"]
        version = next(one["name"] for one in spec["versions"] if one["served"])
        path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"
        try:
            return len(self.api.list(path).items)
        except ApiError as error:
            if error.status == 404:
                return 0
            raise


def marked(document: Mapping[str, Any], component: str) -> Document:
    """Return a document with the mark of who made it."""
    metadata = dict(document["metadata"])
    metadata["labels"] = {**(metadata.get("labels") or {}), COMPONENT_LABEL: component}
    return {**document, "metadata": metadata}


def mark_of(document: Mapping[str, Any]) -> str:
    """Return which component of ours an object belongs to, "" for somebody else's."""
    return str((document["metadata"].get("labels") or {}).get(COMPONENT_LABEL, ""))


def entry_of(document: Mapping[str, Any]) -> AppliedObject:
    """Return how a document is remembered."""
    metadata = document["metadata"]
    return AppliedObject(
        document["apiVersion"], document["kind"], metadata.get("namespace") or "", metadata["name"]
    )


def in_order(documents: Iterable[Document]) -> list[Document]:
    """Return documents in the order in which they can be applied."""
    return sorted(documents, key=lambda one: _rank(one["kind"]))


def _rank(kind: str) -> int:
    if kind in _FIRST:
        return _FIRST.index(kind)
    return 90 + _LAST.index(kind) if kind in _LAST else 50
