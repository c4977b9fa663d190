"""Where manifests come from: a directory or a file (a volume, an image), or an address of a release or a mirror.

Nothing of the engines is kept in this project; what is installed is what the source holds. A directory of ours
is read as kustomize reads it, as far as its files go that far: resources, namespace, images.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from mpijob.errors import NotAllowed, NotFound
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.outbound import http

_LARGEST = 64 << 20
_SECONDS = 30.0


def manifests(source: str, name: str, version: str, digest: str = "") -> list[Document]:
    """Return the documents of one engine; raise NotFound with the place that was looked at.

    What does not have the digest is refused, and so is what comes from an address without one: the operator would
    apply with an administrator's rights whatever the address gives today.
    """
    if source.startswith("https://"):
        address = _address(source, name, version)
        if not digest:
            raise NotAllowed(
                f"the manifests of {name} at {address} are not installed without a digest",
                hint=f"look at them, then set spec.engines.{name}.digest to sha256:… of the file",
            )
        return _read(_proved(_fetched(address), digest, address))
    path = _file(Path(source), name, version)
    return _read(_proved(path.read_bytes(), digest, str(path)))


def _proved(content: bytes, digest: str, place: str) -> str:
    found = f"sha256:{hashlib.sha256(content).hexdigest()}"
    if digest and found != digest:
        raise NotAllowed(
            f"{place} is {found}, and {digest} is to be installed",
            hint="look at what has changed, and set the digest of what you want",
        )
    return content.decode()


def _file(source: Path, name: str, version: str) -> Path:
    if source.is_file():
        return source
    wanted = [f"{name}-{version}.yaml"] if version else []
    for candidate in (*wanted, f"{name}.yaml"):
        if (source / candidate).is_file():
            return source / candidate
    looked = " or ".join((*wanted, f"{name}.yaml"))
    raise NotFound(
        f"no manifests of {name} in {source}: {looked} was looked for",
        hint="put the engine's rendered manifests there, or name another source in the MPIJobPlatform",
    )


def _address(source: str, name: str, version: str) -> str:
    if source.endswith((".yaml", ".yml")):
        return source
    return f"{source.rstrip('/')}/{name}-{version}.yaml" if version else f"{source.rstrip('/')}/{name}.yaml"


def _fetched(address: str) -> bytes:
    try:
        answer = http.download(address, seconds=_SECONDS, most_bytes=_LARGEST)
        if not answer.ok:
            raise OSError(f"the server {answer}")
    except (OSError, ValueError) as error:
        raise NotFound(
            f"{address} cannot be read: {error}",
            hint="on a cluster without a way out, give a directory or a mirror as the source",
        ) from error
    return answer.body


def _read(text: str) -> list[Document]:
    found = [one for one in yaml.safe_load_all(text) if one]
    return [part for one in found for part in (one.get("items", []) if one["kind"] == "List" else [one])]


# -- our own ------------------------------------------------------------------------------------------
def folder(path: Path) -> list[Document]:
    """Return the documents of a kustomization of ours."""
    if not (path / "kustomization.yaml").is_file():
        raise NotFound(
            f"{path} is no kustomization", hint="set --deploy to the deploy folder of this project"
        )
    told = yaml.safe_load((path / "kustomization.yaml").read_text())
    found = [one for name in told.get("resources") or () for one in _resource(path / name)]
    found += [_config_map(path, one) for one in told.get("configMapGenerator") or ()]
    namespace = told.get("namespace") or ""
    return [in_namespace(one, namespace) for one in found] if namespace else found


def _config_map(path: Path, told: Mapping[str, Any]) -> Document:
    """Return a config map of files, which keeps its name whatever they hold."""
    metadata: Document = {"name": told["name"]}
    if labels := (told.get("options") or {}).get("labels"):
        metadata["labels"] = labels
    data = {Path(name).name: (path / name).read_text() for name in told.get("files") or ()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _resource(path: Path) -> Iterator[Document]:
    if path.is_dir():
        yield from folder(path)
    else:
        yield from _read(path.read_text())


_CLUSTER_WIDE = (
    "Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "PriorityClass",
    "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding", "APIService", "ClusterTrainingRuntime", "ConsoleLink",
    "SecurityContextConstraints", "OAuthClient",
)  # fmt: skip


def in_namespace(document: Document, namespace: str) -> Document:
    """Put a document into a namespace as kustomize does, with the accounts that bindings name."""
    changed = dict(document)
    if document["kind"] not in _CLUSTER_WIDE:
        changed["metadata"] = {**document["metadata"], "namespace": namespace}
    if document["kind"] in ("ClusterRoleBinding", "RoleBinding"):
        changed["subjects"] = [
            {**one, "namespace": namespace} if one.get("kind") == "ServiceAccount" else one
            for one in document.get("subjects") or ()
        ]
    return changed


def with_images(documents: list[Document], registry: str, own: str = "") -> list[Document]:
    """Return documents whose images come from a mirror; `own` takes the place of our services' image."""
    return [_with_images(one, registry, own) for one in documents]


def _with_images(value: Any, registry: str, own: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _image(key, one, registry, own) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_images(one, registry, own) for one in value]
    return value


def _image(key: str, value: Any, registry: str, own: str) -> Any:
    if key != "image" or not isinstance(value, str):
        return _with_images(value, registry, own)
    if own and value.partition(":")[0] == OWN_IMAGE:
        return own
    return mirrored(value, registry) if registry else value


OWN_IMAGE = "mpijob"


def mirrored(image: str, registry: str) -> str:
    """Return an image's name at a mirror: its host, if it names one, gives way."""
    host, slash, rest = image.partition("/")
    named = bool(slash) and ("." in host or ":" in host or host == "localhost")
    return f"{registry.rstrip('/')}/{rest if named else image}"
