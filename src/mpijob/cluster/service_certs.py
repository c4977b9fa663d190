"""Certificates for our services that users talk to, where nobody else makes them: in `mpijob-<service>-tls`.

OpenShift makes them by an annotation of the Service, cert-manager where an administrator says so; their Secrets are
used as they are. Ours are made as the webhook's are, each by a small authority of its own, which users are given as
`ca.crt`. A renewed certificate is a change of the Deployment, so pods are replaced one after the other.
"""

from __future__ import annotations

import hashlib

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api
from mpijob.cluster.apply import COMPONENT_LABEL, AppliedObject
from mpijob.cluster.webhook import tls_secret
from mpijob.formats.kubernetes.metadata.well_known import DOMAIN, Document

ANNOTATION = f"{DOMAIN}/certificate"
_NEEDED = ("broker", "page", "recorder")


def secret_of(service: str, namespace: str) -> AppliedObject:
    """Return where a service's certificate is."""
    return AppliedObject("v1", "Secret", namespace, f"mpijob-{service}-tls")


def certified(api: Api, service: str, documents: list[Document], *, openshift: bool) -> list[Document]:
    """Return a service's documents with the mark of its certificate, which is made now where it must be."""
    if service not in _NEEDED or openshift:
        return documents
    (deployment,) = (one for one in documents if one["kind"] == "Deployment")
    entry = secret_of(service, deployment["metadata"]["namespace"])
    found = api.find(resources.SECRET.path(entry.namespace, entry.name))
    if found is not None and tls_secret.read(found) is None:
        return documents  # somebody else's, and theirs to renew
    full = f"mpijob-{service}.{entry.namespace}"
    names = (f"{full}.svc", full, f"{full}.svc.cluster.local")
    keys = tls_secret.ensure(
        api, entry.namespace, names, secret=entry.name, labels={COMPONENT_LABEL: service}
    )
    mark = hashlib.sha256(keys.certificate).hexdigest()[:16]
    return [_marked(one, mark) if one is deployment else one for one in documents]


def _marked(deployment: Document, mark: str) -> Document:
    template = deployment["spec"]["template"]
    metadata = {
        **template["metadata"],
        "annotations": {**(template["metadata"].get("annotations") or {}), ANNOTATION: mark},
    }
    return {**deployment, "spec": {**deployment["spec"], "template": {**template, "metadata": metadata}}}
