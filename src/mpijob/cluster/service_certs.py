"""TLS certificates for our services that users connect to, in `mpijob-<service>-tls`.

On OpenShift an annotation of the Service creates them, elsewhere cert-manager if an administrator sets it up;
such Secrets are used as they are. Otherwise they are created like the webhook's, each by its own small CA,
whose certificate is `ca.crt`. A renewal changes the Deployment, so pods are replaced one after the other.
"""

from __future__ import annotations

import hashlib

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api
from mpijob.cluster.apply import COMPONENT_LABEL, AppliedObject
from mpijob.cluster.webhook import tls_secret
from mpijob.formats.kubernetes.metadata.well_known import DOMAIN, Document

ANNOTATION = f"{DOMAIN}/certificate"
_SERVICES = ("broker", "page", "recorder")


def secret_of(service: str, namespace: str) -> AppliedObject:
    return AppliedObject("v1", "Secret", namespace, f"mpijob-{service}-tls")


def with_certificate(api: Api, service: str, documents: list[Document], *, openshift: bool) -> list[Document]:
    """Return a service's manifests with the digest of its certificate, which is created if necessary."""
    if service not in _SERVICES or openshift:
        return documents
    (deployment,) = (document for document in documents if document["kind"] == "Deployment")
    entry = secret_of(service, deployment["metadata"]["namespace"])
    secret = api.find(resources.SECRET.path(entry.namespace, entry.name))
    if secret is not None and tls_secret.parse_keys(secret) is None:
        # It was created by others (cert-manager), which also renew it.
        return documents
    # The Service's names as clients in the cluster use them.
    host = f"mpijob-{service}.{entry.namespace}"
    names = (f"{host}.svc", host, f"{host}.svc.cluster.local")
    keys = tls_secret.ensure_keys(
        api, entry.namespace, names, secret=entry.name, labels={COMPONENT_LABEL: service}
    )
    digest = hashlib.sha256(keys.certificate).hexdigest()[:16]
    return [_with_digest(document, digest) if document is deployment else document for document in documents]


def _with_digest(deployment: Document, digest: str) -> Document:
    template = deployment["spec"]["template"]
    metadata = {
        **template["metadata"],
        "annotations": {**(template["metadata"].get("annotations") or {}), ANNOTATION: digest},
    }
    return {**deployment, "spec": {**deployment["spec"], "template": {**template, "metadata": metadata}}}
