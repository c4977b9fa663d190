"""Read manifests from a directory, a file (a volume, an image), or a URL of a release or mirror.

This project contains no manifests of engines; what is installed is what the source contains. Our own
directories are read with the subset of kustomize that they use: resources, namespace, images.
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

OUR_IMAGE = "mpijob"
_MAX_BYTES = 64 << 20
_TIMEOUT_SECONDS = 30.0
_CLUSTER_WIDE = (
    "Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "PriorityClass",
    "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding", "APIService", "ClusterTrainingRuntime", "ConsoleLink",
    "SecurityContextConstraints", "OAuthClient",
)  # fmt: skip


def manifests(source: str, name: str, version: str, digest: str = "") -> list[Document]:
    """Return the manifests of one engine; raise NotFound with the location that was tried.

    Content with another digest is rejected, and so is a URL without a digest: the operator would apply
    whatever the URL returns, with administrator permissions.
    """
    if source.startswith("https://"):
        address = _manifest_url(source, name, version)
        if not digest:
            raise NotAllowed(
                f"the manifests of {name} at {address} cannot be installed without a digest",
                hint=f"review them, then set spec.engines.{name}.digest to sha256:… of the file",
            )
        return _parse(_verify_digest(_download(address), digest, address))
    path = _find_file(Path(source), name, version)
    return _parse(_verify_digest(path.read_bytes(), digest, str(path)))


def _verify_digest(content: bytes, digest: str, location: str) -> str:
    actual = f"sha256:{hashlib.sha256(content).hexdigest()}"
    if digest and actual != digest:
        raise NotAllowed(
            f"digest mismatch for {location}: expected {digest}, found {actual}",
            hint="review what has changed, and set the digest of the file that you want",
        )
    return content.decode()


def _find_file(source: Path, name: str, version: str) -> Path:
    if source.is_file():
        return source
    plain = f"{name}.yaml"
    candidates = (f"{name}-{version}.yaml", plain) if version else (plain,)
    for candidate in candidates:
        if (source / candidate).is_file():
            return source / candidate
    tried = " or ".join(candidates)
    raise NotFound(
        f"no manifests of {name} in {source}: {tried} not found",
        hint="put the engine's rendered manifests there, or set another source in the MPIJobPlatform",
    )


def _manifest_url(source: str, name: str, version: str) -> str:
    if source.endswith((".yaml", ".yml")):
        return source
    return f"{source.rstrip('/')}/{name}-{version}.yaml" if version else f"{source.rstrip('/')}/{name}.yaml"


def _download(address: str) -> bytes:
    try:
        response = http.download(address, seconds=_TIMEOUT_SECONDS, max_bytes=_MAX_BYTES)
        if not response.ok:
            raise OSError(f"the server {response}")
    except (OSError, ValueError) as error:
        raise NotFound(
            f"cannot read {address}: {error}",
            hint="on a cluster without internet access, set a directory or a mirror as the source",
        ) from error
    return response.body


def _parse(text: str) -> list[Document]:
    documents = [document for document in yaml.safe_load_all(text) if document]
    return [
        item
        for document in documents
        for item in (document.get("items", []) if document["kind"] == "List" else [document])
    ]


# -- our own manifests --------------------------------------------------------------------------------
def read_kustomization(path: Path) -> list[Document]:
    """Return the manifests of one of our kustomizations; raise NotFound if the directory is none."""
    if not (path / "kustomization.yaml").is_file():
        raise NotFound(
            f"{path} is not a kustomization", hint="set --deploy to the deploy directory of this project"
        )
    kustomization = yaml.safe_load((path / "kustomization.yaml").read_text())
    documents = [
        document for name in kustomization.get("resources") or () for document in _resource(path / name)
    ]
    documents += [_config_map(path, document) for document in kustomization.get("configMapGenerator") or ()]
    namespace = kustomization.get("namespace") or ""
    return [in_namespace(document, namespace) for document in documents] if namespace else documents


def _config_map(path: Path, generator: Mapping[str, Any]) -> Document:
    """Return a ConfigMap generated from files."""
    # Without kustomize's hash suffix: Deployments reference it by its plain name.
    metadata: Document = {"name": generator["name"]}
    if labels := (generator.get("options") or {}).get("labels"):
        metadata["labels"] = labels
    data = {Path(name).name: (path / name).read_text() for name in generator.get("files") or ()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _resource(path: Path) -> Iterator[Document]:
    if path.is_dir():
        yield from read_kustomization(path)
    else:
        yield from _parse(path.read_text())


def in_namespace(document: Document, namespace: str) -> Document:
    """Set the namespace of a manifest as kustomize does, and of the service accounts in bindings."""
    changed = dict(document)
    if document["kind"] not in _CLUSTER_WIDE:
        changed["metadata"] = {**document["metadata"], "namespace": namespace}
    if document["kind"] in ("ClusterRoleBinding", "RoleBinding"):
        changed["subjects"] = [
            {**subject, "namespace": namespace} if subject.get("kind") == "ServiceAccount" else subject
            for subject in document.get("subjects") or ()
        ]
    return changed


def with_images(documents: list[Document], registry: str, own_image: str = "") -> list[Document]:
    """Return manifests with images from a mirror; `own_image` replaces the image of our services."""
    return [_with_images(document, registry, own_image) for document in documents]


def _with_images(value: Any, registry: str, own_image: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _image(key, item, registry, own_image) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_images(item, registry, own_image) for item in value]
    return value


def _image(key: str, value: Any, registry: str, own_image: str) -> Any:
    # By the key alone, so that images in custom resources (a runtime's pod template) are replaced as well.
    if key != "image" or not isinstance(value, str):
        return _with_images(value, registry, own_image)
    if own_image and value.partition(":")[0] == OUR_IMAGE:
        return own_image
    return mirror_name(value, registry) if registry else value


def mirror_name(image: str, registry: str) -> str:
    """Return an image's name at a mirror, without its original host."""
    host, slash, name = image.partition("/")
    # As the container engines decide it: `kubeflow/trainer` is a name on Docker Hub, not on a host.
    has_host = bool(slash) and ("." in host or ":" in host or host == "localhost")
    return f"{registry.rstrip('/')}/{name if has_host else image}"
